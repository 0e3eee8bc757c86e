"""Runs `unibus` as scripts do, with a pipe, and as people do, in a terminal of 80 columns."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.unit.cli.programs import OF_SERVERS, Terminal, command, environment
from unibus.cli.main import app


class Shell:
    """Runs commands in a separate folder, with the output in a pipe."""

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
            command(*arguments), stdin=stdin, stdout=pipe, stderr=pipe, env=environment(), cwd=self.folder
        )


@pytest.fixture
def shell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(folder)
    for name in OF_SERVERS:
        monkeypatch.delenv(name, raising=False)
    return Shell(folder)


@pytest.fixture
def terminal(shell: Shell) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*arguments: str, stdin: int | None = None, columns: int = 80) -> Terminal:
        opened.append(Terminal(shell.folder, arguments, stdin, columns))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
