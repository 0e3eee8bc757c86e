"""Runs `unibus` as a separate process, with pipes or in a pseudo terminal."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE_S = 60.0
OF_SERVERS = ("UNIBUS_URL", "UNIBUS_KEY", "UNIBUS_CONNECTION_STRING", "UNIBUS_CA")
LOOK_AGAIN_S = 0.005
# A parent that ignores SIGINT (a background job) passes that on; so the program sets the default handler again.
START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from unibus.cli.main import app
app(prog_name="unibus")
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-c", START, *arguments]


def environment(columns: int = 80) -> dict[str, str]:
    left_out = ("FORCE_COLOR", "NO_COLOR", "COLUMNS", *OF_SERVERS)
    kept = {name: text for name, text in os.environ.items() if name not in left_out}
    paths = [os.path.abspath(path) for path in sys.path if path]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "TERM": "xterm", "COLUMNS": str(columns), "LINES": "40"}


class Terminal:
    """One command in a pseudo terminal."""

    def __init__(self, folder: Path, arguments: tuple[str, ...], stdin: int | None = None, columns: int = 80) -> None:
        pty = pytest.importorskip("pty")
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command(*arguments),
            stdin=theirs if stdin is None else stdin,
            stdout=theirs,
            stderr=theirs,
            env=environment(columns),
            cwd=folder,
        )
        os.close(theirs)
        self.output = ""

    @property
    def file(self) -> int:
        """The terminal itself, for its settings."""
        return self._ours

    def read_until(self, wanted: str) -> None:
        ends_s = time.monotonic() + PATIENCE_S  # A live view never stops writing.
        while wanted not in self.output and time.monotonic() < ends_s and (chunk := self._chunk()):
            self.output += chunk
        assert wanted in self.output

    def read_all(self) -> int:
        while chunk := self._chunk():
            self.output += chunk
        return self.process.wait(PATIENCE_S)

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def _chunk(self) -> str:
        readable, _, _ = select.select([self._ours], [], [], PATIENCE_S)
        assert readable, "the command has gone silent"
        try:
            return os.read(self._ours, 65_536).decode("utf-8", "replace")
        except OSError:  # Linux reports the closed end of a terminal like this.
            return ""
