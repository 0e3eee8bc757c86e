"""One owner for one store: a lock file beside it that names whoever holds it.

The lock is the operating system's and ends with the process, however it ends; the text in the file is for people.
"""

import json
import os
import socket
import sys
from pathlib import Path

from unibus.errors import StoreBusy, StoreUnavailable


class Owner:
    """Holds `<path>.lock` until `release`. StoreBusy names the process that has it."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}.lock"
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreUnavailable(
                f"cannot open {self._path}: {error.strerror}", "is the folder there, and may you write to it?"
            ) from error
        if not _lock(self._file):
            holder = _read(self._path)
            os.close(self._file)
            self._file = -1
            raise StoreBusy(
                f"{Path(path).name} is in use by {holder}",
                "stop that process, or reach the messages through it; two owners would not see each other's changes",
                holder,
            )
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(_self()).encode(), 0)

    def release(self) -> None:
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            _unlock(self._file)  # A child of this process may have a copy of the descriptor.
            os.close(self._file)  # The file stays: removing it would let two processes lock two files of one name.
            self._file = -1


def _lock(file: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _unlock(file: int) -> None:
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def _self() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "program": Path(sys.argv[0] or "python").name}


def _read(path: str) -> str:
    try:
        held = json.loads(Path(path).read_text("utf-8"))
        return f"process {held['pid']} ({held['program']}) on {held['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
