"""Single keys, without Enter, while a command shows live data. The terminal settings are restored in every case.

Ctrl-C keeps its meaning. SIGTERM would end the process before the settings are restored, so while keys are read it
raises `typer.Exit` instead. A job in the background reads no keys: the terminal belongs to the foreground job.
"""

import contextlib
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Final

import typer

_READ_BYTES: Final = 64
_SEQUENCE: Final = re.compile(r"\x1b([\[O][0-9;]*[ -~])?")
"""What a terminal sends for keys without a character, such as arrows."""


class Keys:
    """`file` is the descriptor of the terminal. None: there is no terminal, and `wait` never returns a key."""

    def __init__(self, file: int | None) -> None:
        self._file = file
        self._typed = ""

    @property
    def is_available(self) -> bool:
        return self._file is not None

    def wait(self, seconds: float) -> str:
        """The next key, or "" if none is pressed within that time. Keys without a character are ignored."""
        if not self._typed:
            self._typed = self._read(seconds)
        key, self._typed = self._typed[:1], self._typed[1:]
        return key

    def _read(self, seconds: float) -> str:
        if self._file is None:
            time.sleep(seconds)
            return ""
        readable, _, _ = select.select([self._file], [], [], seconds)
        if not readable:
            return ""
        try:
            typed = os.read(self._file, _READ_BYTES).decode("utf-8", "replace")
        except OSError:
            typed = ""
        if not typed:
            self._file = None  # The terminal was closed.
        return _SEQUENCE.sub("", typed).lower()


@contextlib.contextmanager
def keyboard() -> Iterator[Keys]:
    """Reads single keys until the block ends."""
    if not _is_foreground():
        yield Keys(None)
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)

    def listen(number: int = 0, frame: FrameType | None = None) -> None:
        tty.setcbreak(file, termios.TCSANOW)

    # The shell changes the terminal settings at Ctrl-Z and `fg`, so SIGCONT sets ours again.
    handlers = {signal.SIGTERM: signal.signal(signal.SIGTERM, _end), signal.SIGCONT: signal.SIG_DFL}
    handlers[signal.SIGCONT] = signal.signal(signal.SIGCONT, listen)
    try:
        listen()
        yield Keys(file)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    raise typer.Exit(128 + number)


def _is_foreground() -> bool:
    """Whether standard input is a terminal and this process is its foreground job."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return False
    try:
        file = sys.stdin.fileno()
    except (OSError, ValueError, AttributeError):
        return False  # No standard input, or one that is not a file.
    if not os.isatty(file):
        return False
    try:
        return os.tcgetpgrp(file) == os.getpgrp()
    except OSError:
        return True  # Not our controlling terminal, so no shell does job control on it.
