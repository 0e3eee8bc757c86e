"""The client of a server that `unibus pipeline serve` has started.

No Spark and no Arrow here: a server answers before they would be imported.
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
    """serve.json. `connect` is the address for pyspark, with its token. `lake` is the folder that is served: a copy of
    the lake has a copy of the file, which must not be used."""

    pid: int
    socket: str
    connect: str
    lake: str = ""
    format: int = 1


def address_of(lake: Path) -> ServingAddress | None:
    """Of the last server of the lake, which may have ended since. None if the file belongs to another lake."""
    try:
        found = msgspec.json.decode((lake / ADDRESS).read_bytes(), type=ServingAddress)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found.lake == os.path.realpath(lake) else None


def ask(lake: Path, request: ReportRequest) -> Reply | None:
    """None if no server runs, or if it ends before it answers. An error of the server is in the reply."""
    address = address_of(lake)
    if address is None or not hasattr(socket, "AF_UNIX"):
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(CONNECT_PATIENCE_S)
        try:
            line.connect(address.socket)
        except OSError:
            return None  # It was killed, and left its files.
        line.settimeout(ANSWER_PATIENCE_S)
        try:
            line.sendall(msgspec.json.encode(request) + b"\n")
            with line.makefile("rb") as file:
                data = file.readline()
        except TimeoutError as error:
            what = f"the server has not answered for {ANSWER_PATIENCE_S:g} s"
            raise StoreUnavailable(what, "stop it, and start it again") from error
        except OSError:
            return None
    return _decoded(data) if data.endswith(b"\n") else None


def _decoded(data: bytes) -> Reply:
    try:
        return msgspec.json.decode(data, type=Reply)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreUnavailable("the server has another version of unibus", "stop it, and start it again") from error


def is_alive(address: ServingAddress) -> bool:
    if not hasattr(socket, "AF_UNIX"):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(CONNECT_PATIENCE_S)
        return line.connect_ex(address.socket) == 0
