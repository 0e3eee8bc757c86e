"""Writes results: JSON Lines to a pipe or file, text to a terminal. Settings for colours do not change which.

A reader that closes the pipe (`unibus receive … | head`) is not an error: the command ends silently with the exit code
of SIGPIPE. `write` and `flush` raise before the caller settles a message, so what was not written is released.
"""

import os
import select
import sys
from typing import Final

import msgspec
import typer

SIGPIPE_EXIT: Final = 128 + 13
"""As numbers, because Windows has no SIGPIPE."""


def is_terminal() -> bool:
    """Whether standard output is a terminal. FORCE_COLOR and similar variables do not change the answer."""
    return sys.stdout.isatty()


def write_json(record: object) -> None:
    """Writes one line. It is written for certain only after `flush`."""
    write(msgspec.json.encode(record) + b"\n")


def write(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
    except BrokenPipeError:
        raise _pipe_closed() from None


def flush() -> None:
    """Nothing counts as shown until this returns."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise _pipe_closed() from None


def check_reader() -> None:
    """Ends the command if the reader has closed the pipe, even while there is nothing to write."""
    if is_terminal() or not hasattr(select, "poll"):
        return
    try:
        file = sys.stdout.fileno()
    except OSError:  # Standard output is not a file, as in a test.
        return
    poll = select.poll()
    poll.register(file, 0)  # No events requested: poll reports errors in any case.
    if any(state & select.POLLERR for _, state in poll.poll(0)):
        raise _pipe_closed()


def aside(text: str) -> None:
    """Prints a remark on the error stream if that is a terminal; scripts do not get it."""
    if sys.stderr.isatty():
        typer.secho(text, dim=True, err=True)


def printable(text: str) -> str:
    """Escapes control characters except line ends and tabs, so that data from outside cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _pipe_closed() -> typer.Exit:
    # The interpreter flushes standard output at exit and would report the closed pipe: redirect it to /dev/null.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    return typer.Exit(SIGPIPE_EXIT)
