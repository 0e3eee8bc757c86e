"""How a failed command shows its error and hint: lines that fit a terminal, one line for a program."""

import os
import sys

import click
import pytest

from unibus.cli.terminal.report import print_error

WHAT = "'mysql' names no file: as a URL it is mysql://…, and this version cannot keep messages there"
HINT = "write sqlite:///file.db, jsonfile:///folder or memory://, or ./mysql for a file of that name " + "x" * 90


def test_lines_fit_the_terminal_and_words_stay_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((60, 24)))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    print_error(WHAT, HINT)
    lines = click.unstyle(capsys.readouterr().err).splitlines()
    assert [line for line in lines if len(line) > 60] == ["      " + "x" * 90]
    assert lines[0].startswith("error: 'mysql' names")
    assert lines[1].startswith("       ")
    assert " ".join(" ".join(lines).split()) == f"error: {WHAT} hint: {HINT}"


def test_a_program_reads_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(WHAT, HINT)
    assert capsys.readouterr().err.splitlines() == [f"error: {WHAT}", f"hint: {HINT}"]
