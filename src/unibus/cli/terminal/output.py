"""Writing results: JSON Lines for programs, text for people. Who reads is told by the terminal, not by colours.

A reader that goes away (`unibus receive … | head`) is no error worth a message: the command ends as if the signal of
a closed pipe had ended it. It learns of it before it has settled what it could not write.
"""

import os
import select
import sys
from typing import Final

import msgspec
import typer

SIGPIPE_EXIT: Final = 128 + 13
"""Written as numbers: not every system has the signal."""


def is_terminal() -> bool:
    """Whether a person reads the output. FORCE_COLOR and the like do not make a pipe a person."""
    return sys.stdout.isatty()


def write_json(record: object) -> None:
    """One line. It is out only after `flush`."""
    write(msgspec.json.encode(record) + b"\n")


def write(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
    except BrokenPipeError:
        raise _reader_is_gone() from None


def flush() -> None:
    """Until this returns nothing counts as shown."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise _reader_is_gone() from None


def check_reader() -> None:
    """End the command if the reader of a pipe has left, also while there is nothing to write."""
    if is_terminal() or not hasattr(select, "poll"):
        return
    try:
        file = sys.stdout.fileno()
    except OSError:  # Not a file, as in a test.
        return
    poll = select.poll()
    poll.register(file, 0)  # Errors are always reported.
    if any(state & select.POLLERR for _, state in poll.poll(0)):
        raise _reader_is_gone()


def aside(text: str) -> None:
    """A remark for the person at the terminal; programs do not get it."""
    if sys.stderr.isatty():
        typer.secho(text, dim=True, err=True)


def printable(text: str) -> str:
    """What came from outside may not steer the terminal: all but line ends, tabs and visible characters is escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _reader_is_gone() -> typer.Exit:
    # The interpreter flushes once more at its end and would complain: let it write to nowhere.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return typer.Exit(SIGPIPE_EXIT)
