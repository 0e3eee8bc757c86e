"""`state.json`, the root of the folder: whose folder it is, and which files make the snapshot. And `cursors.json`.

Replacing `state.json` is what makes a snapshot valid: before the rename nothing of it is valid, after it everything is.
Both files end in a checksum of everything before it.
"""

import json
from typing import Final, TypeVar

import msgspec

from unibus.errors import StoreDamaged, StoreUnavailable, StoreVersion
from unibus.stores.files.disk import Files, replace
from unibus.stores.jsonfile.forms import SessionForm, checksum
from unibus.stores.jsonfile.items import Listed
from unibus.stores.jsonfile.log import damaged

FORMAT: Final = 1
STATE: Final = "state.json"
CURSORS: Final = "cursors.json"
FOLDERS: Final = ("entities", "messages", "wal")

_CRC: Final = b',\n  "crc": "'
_TAIL: Final = b'"\n}\n'

T = TypeVar("T")


class Counter(msgspec.Struct):
    """The last sequence that an entity assigned."""

    number: int
    name: str
    last: int


class State(msgspec.Struct):
    """The snapshot has all changes up to `covers`, and some of those up to `overlap`."""

    unibus: str
    format: int
    domain: str
    written: str = ""
    identity: str = ""
    generation: int = 0
    covers: int = 0
    overlap: int = 0
    reached: int = 0
    """The last change that the log had when the folder was opened, or closed in order (log_end.py)."""
    sequences: list[Counter] = []
    retired: dict[str, int] = {}
    deleted: dict[int, str] = {}
    positions: dict[str, int] = {}
    batches: list["BatchForm"] = []
    batches_evicted_ns: int = 0
    sessions: dict[int, list[SessionForm]] = {}
    marks: dict[int, dict[str, dict[str, int]]] = {}
    files: list[Listed] = []
    obsolete: list[str] = []
    """Files of the snapshot before, which are to be deleted."""


class BatchForm(msgspec.Struct):
    """An Applied change with names."""

    batch_id: str
    at_ns: int
    age_ns: int
    results: list[object]


class CursorRecord(msgspec.Struct):
    """The position of a history reader."""

    seq: int = 0


class Cursors(msgspec.Struct):
    """`oldest` is the first change that is not pruned; segments before it may be deleted."""

    unibus: str = "cursors"
    oldest: int = 1
    readers: dict[str, CursorRecord] = {}


class _Known(msgspec.Struct):
    unibus: str = ""
    format: int = 0


def write_state(files: Files, folder: str, state: State) -> None:
    replace(files, f"{folder}/{STATE}", sealed(msgspec.json.encode(state)))


def write_cursors(files: Files, folder: str, cursors: Cursors) -> None:
    replace(files, f"{folder}/{CURSORS}", sealed(msgspec.json.encode(cursors)))


def sealed(text: bytes) -> bytes:
    """Indented JSON with a checksum at its end."""
    body = msgspec.json.format(text, indent=2).removesuffix(b"\n}")
    return b"%b%b%b%b" % (body, _CRC, checksum(body).encode(), _TAIL)


def read_state(files: Files, folder: str) -> State:
    """StoreUnavailable if the file is not ours, StoreVersion if it is newer, StoreDamaged if its checksum is wrong."""
    path = f"{folder}/{STATE}"
    data = files.read(path)
    try:
        known = msgspec.json.decode(data, type=_Known)
    except msgspec.ValidationError:
        known = _Known()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(path, data) from error
    # Kind and version before the checksum: the file of another program, or of a newer version, is not damaged.
    if known.unibus != "store":
        raise StoreUnavailable(f"{path} is not one of unibus", "choose another folder")
    if known.format > FORMAT:
        raise StoreVersion(
            f"{path} has format {known.format}, this version of unibus knows {FORMAT}",
            "install the newer unibus; nothing was changed",
        )
    return opened(path, data, State)


def read_cursors(files: Files, folder: str) -> Cursors:
    path = f"{folder}/{CURSORS}"
    return opened(path, files.read(path), Cursors) if files.size(path) >= 0 else Cursors()


def opened(path: str, data: bytes, kind: type[T]) -> T:
    """The value that `sealed` has written. Raises StoreDamaged if the checksum is wrong."""
    body, _, rest = data.rpartition(_CRC)
    try:
        found = msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise damaged(path, 1, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(path, data) from error
    if rest != checksum(body).encode() + _TAIL:
        line = data.count(b"\n", 0, len(body)) + 2
        raise damaged(path, line, "its checksum is wrong, so the file was changed")
    return found


def malformed(path: str, data: bytes) -> StoreDamaged:
    """The error for a file that is not JSON, with the line."""
    try:
        json.loads(data)
    except json.JSONDecodeError as error:
        return damaged(path, error.lineno, f"it is not JSON: {error.msg}")
    except (UnicodeDecodeError, RecursionError) as error:
        at = error.start if isinstance(error, UnicodeDecodeError) else 0
        return damaged(path, data.count(b"\n", 0, at) + 1, "it is not JSON")
    return damaged(path, 1, "its JSON cannot be read")
