"""Asks a server that `unibus pipeline serve` has started, where there is one.

No Spark and no Arrow here: whoever asks a server has its answer before those would be imported.
"""

import os
import socket
from pathlib import Path
from typing import Final

import msgspec

from unibus.errors import StoreUnavailable
from unibus.pipeline.reports.request import Reply, ReportRequest

ADDRESS: Final = "serve.json"
ANSWER_PATIENCE_S: Final = 600.0
CONNECT_PATIENCE_S: Final = 2.0


class ServingAddress(msgspec.Struct, frozen=True):
    """serve.json. `connect` is for pyspark, with its token; `lake` is the folder that is served: the file goes along
    when a lake is copied, and the server does not."""

    pid: int
    socket: str
    connect: str
    lake: str = ""
    format: int = 1


def address_of(lake: Path) -> ServingAddress | None:
    """Of the server that was started for the lake last; whether it is still there shows when it is asked. None for
    the address of another lake's server."""
    try:
        found = msgspec.json.decode((lake / ADDRESS).read_bytes(), type=ServingAddress)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found.lake == os.path.realpath(lake) else None


def ask(lake: Path, request: ReportRequest) -> Reply | None:
    """None where no server runs, or where it ends before it has answered. What it refuses is in the reply."""
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
        try:
            line.sendall(msgspec.json.encode(request) + b"\n")
            with line.makefile("rb") as file:
                data = file.readline()
        except TimeoutError as error:
            what = f"the server has not answered for {ANSWER_PATIENCE_S:g} s"
            raise StoreUnavailable(what, "stop it, and start it anew") from error
        except OSError:
            return None
    return _decoded(data) if data.endswith(b"\n") else None


def _decoded(data: bytes) -> Reply:
    try:
        return msgspec.json.decode(data, type=Reply)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreUnavailable("the server is of another version", "stop it, and start it anew") from error


def is_alive(address: ServingAddress) -> bool:
    if not hasattr(socket, "AF_UNIX"):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(CONNECT_PATIENCE_S)
        return line.connect_ex(address.socket) == 0
