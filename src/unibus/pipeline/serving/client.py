"""Asks a server that `unibus pipeline serve` has started, where there is one.

No Spark and no Arrow here: whoever asks a server has its answer before those would be imported.
"""

import socket
from pathlib import Path
from typing import Final

import msgspec

from unibus.errors import StoreUnavailable
from unibus.pipeline.questions.request import Reply, Request

ADDRESS: Final = "serve.json"
ANSWER_PATIENCE_S: Final = 600.0
CONNECT_PATIENCE_S: Final = 2.0


class Address(msgspec.Struct, frozen=True):
    """serve.json. `connect` is for pyspark, with its token."""

    pid: int
    socket: str
    connect: str
    format: int = 1


def address_of(lake: Path) -> Address | None:
    """Of the server that was started for the lake last; whether it is still there shows when it is asked."""
    try:
        return msgspec.json.decode((lake / ADDRESS).read_bytes(), type=Address)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def ask(lake: Path, request: Request) -> Reply | None:
    """None where no server runs. What it refuses is in the reply."""
    address = address_of(lake)
    if address is None or not hasattr(socket, "AF_UNIX"):
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(CONNECT_PATIENCE_S)
        try:
            line.connect(address.socket)
        except OSError:
            return None  # It was killed, and could not clean up.
        line.settimeout(ANSWER_PATIENCE_S)
        with line.makefile("rwb") as file:
            file.write(msgspec.json.encode(request) + b"\n")
            file.flush()
            return _decoded(file.readline())


def _decoded(data: bytes) -> Reply:
    try:
        return msgspec.json.decode(data, type=Reply)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreUnavailable("the server went away, or is of another version", "try again") from error


def is_alive(address: Address) -> bool:
    if not hasattr(socket, "AF_UNIX"):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(CONNECT_PATIENCE_S)
        return line.connect_ex(address.socket) == 0
