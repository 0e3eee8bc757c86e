"""Single keys, without Enter, while a command shows something live. The terminal is as before in the end, always.

Ctrl-C keeps its meaning. SIGTERM, which would end the process on the spot, ends it in order as long as keys are read.
A job in the background reads no keys: the terminal is somebody else's then.
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
"""What a terminal sends for keys that are no character."""


class Keys:
    """`file` is the terminal; None where there is none, and no key ever comes."""

    def __init__(self, file: int | None) -> None:
        self._file = file
        self._typed = ""

    @property
    def are_there(self) -> bool:
        return self._file is not None

    def wait(self, seconds: float) -> str:
        """The next key, if one is pressed within that time. Arrows and the like are nothing."""
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
            self._file = None  # The terminal is gone.
        return _SEQUENCE.sub("", typed).lower()


@contextlib.contextmanager
def keyboard() -> Iterator[Keys]:
    """Read single keys until the block is left."""
    if not _is_ours():
        yield Keys(None)
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)

    def listen(number: int = 0, frame: FrameType | None = None) -> None:
        tty.setcbreak(file, termios.TCSANOW)

    # After Ctrl-Z and `fg` the shell has set the terminal its own way.
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


def _is_ours() -> bool:
    """Whether somebody is at a keyboard, and it is for us."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        return False
    try:
        file = sys.stdin.fileno()
    except (OSError, ValueError, AttributeError):
        return False  # No standard input, or one in memory.
    if not os.isatty(file):
        return False
    try:
        return os.tcgetpgrp(file) == os.getpgrp()
    except OSError:
        return True  # Not the terminal that started us, so nobody else reads from it on our behalf.
