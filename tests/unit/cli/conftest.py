"""`unibus` as programs call it, through a pipe, and as people do, in a terminal of 80 columns."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from unibus.cli.main import app

PATIENCE_S = 60.0
# A parent that ignores SIGINT (a job in the background) hands that down; the program itself never does.
START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from unibus.cli.main import app
app(prog_name="unibus")
"""


def command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-W", "error", "-c", START, *arguments]


def environment() -> dict[str, str]:
    left_out = ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "UNIBUS_URL")
    kept = {name: text for name, text in os.environ.items() if name not in left_out}
    paths = [os.path.abspath(path) for path in sys.path if path]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "TERM": "xterm", "COLUMNS": "80", "LINES": "40"}


class Shell:
    """Runs commands in a folder of its own, with the output in a pipe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=input, prog_name="unibus")

    def records(self, *arguments: str) -> list[dict[str, Any]]:
        """The JSON lines of a command that succeeds."""
        result = self(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        return [json.loads(line) for line in result.stdout.splitlines()]

    def counts(self, queue: str) -> dict[str, Any]:
        return next(each for each in self.records("entities", "--dead-letters") if each["name"] == queue)

    def start(self, *arguments: str, stdin: int | None = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command(arguments), stdin=stdin, stdout=pipe, stderr=pipe, env=environment(), cwd=self.folder
        )


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNIBUS_URL", raising=False)
    return Shell(tmp_path)


class Terminal:
    """One command in a pseudo terminal."""

    def __init__(self, folder: Path, arguments: tuple[str, ...], stdin: int | None) -> None:
        pty = pytest.importorskip("pty")
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command(arguments),
            stdin=theirs if stdin is None else stdin,
            stdout=theirs,
            stderr=theirs,
            env=environment(),
            cwd=folder,
        )
        os.close(theirs)
        self.output = ""

    def read_until(self, wanted: str) -> None:
        while wanted not in self.output and (chunk := self._chunk()):
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
        except OSError:  # How Linux says that the other end was closed.
            return ""


@pytest.fixture
def terminal(shell: Shell) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*arguments: str, stdin: int | None = None) -> Terminal:
        opened.append(Terminal(shell.folder, arguments, stdin))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
