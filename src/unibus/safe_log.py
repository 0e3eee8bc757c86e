"""The logger of unibus: a line that cannot be logged never fails the work that it reports.

A log handler of the program may raise, and so may `__str__` of an exception. Where messages are delivered, such an
exception would skip the retry of a message, or end the thread that delivers. So a line that fails is written to the
error stream instead, unless `logging.raiseExceptions` is False, and the caller continues.

Rule: only what Python raises for a signal goes through: in the main thread a log handler that is interrupted by Ctrl-C
or by SystemExit raises it to the caller. Callers log after they have changed the state, so nothing is lost then.

Control characters and the characters that reverse the direction of text are escaped: a text of a user must not change
what a terminal shows. Line breaks stay; a caller that logs texts of users in one line removes them.
"""

import logging
import sys
import threading
from types import TracebackType
from typing import cast

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

_STACK_LEVEL = 4
"""Above `_record`, `_log` and the method: a record names the line that called the method."""


class SafeLogger:
    """A logger with the methods that unibus uses. It takes positional arguments as `logging.Logger` does."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def is_enabled_for(self, level: int) -> bool:
        return self._logger.isEnabledFor(level)

    def info(self, text: str, *args: object) -> None:
        self._log(logging.INFO, text, args)

    def warning(self, text: str, *args: object, exc_info: ExcInfo | None = None, exc_text: str = "") -> None:
        self._log(logging.WARNING, text, args, exc_info, exc_text)

    def error(self, text: str, *args: object, exc_info: ExcInfo | None = None, exc_text: str = "") -> None:
        """`exc_text` is what standard formatters show for `exc_info`; without it they format the exception."""
        self._log(logging.ERROR, text, args, exc_info, exc_text)

    def exception(self, text: str, *args: object) -> None:
        """An error with the traceback of the exception that is being handled."""
        kind, error, trace = sys.exc_info()
        self._log(logging.ERROR, text, args, None if kind is None or error is None else (kind, error, trace))

    def _log(
        self, level: int, text: str, args: tuple[object, ...], exc_info: ExcInfo | None = None, exc_text: str = ""
    ) -> None:
        try:
            if self._logger.isEnabledFor(level):
                self._logger.handle(self._record(level, text, args, exc_info, exc_text))
        except BaseException as error:
            if not issubclass(type(error), Exception) and threading.current_thread() is threading.main_thread():
                raise
            _report_lost(_formatted(text, args)[1], error)

    def _record(
        self, level: int, text: str, args: tuple[object, ...], exc_info: ExcInfo | None, exc_text: str
    ) -> logging.LogRecord:
        args, message = _formatted(text, args)
        shown = printable(message)
        if shown != message:
            text, args = "%s", (shown,)
        # The record is made here, and not by Logger.log, which cannot be given an `exc_text`.
        file, line, function, _ = self._logger.findCaller(False, _STACK_LEVEL)
        record = self._logger.makeRecord(self._logger.name, level, file, line, text, args, exc_info, function)
        record.exc_text = exc_text or None
        return record


def printable(text: str) -> str:
    """The text with everything escaped that is neither printable nor a line break or tab."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() or each in "\n\t" else escaped(each) for each in text])


def escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _formatted(text: str, args: tuple[object, ...]) -> tuple[tuple[object, ...], str]:
    """The line, and its arguments. An argument that cannot be formatted is replaced by a text that says so."""
    try:
        return args, text % args if args else text
    except BaseException as broken:  # Raised by `__str__` of an argument: even SystemExit does not concern the program.
        args = tuple([each if type(each) in (str, int, float) else _text_of(each) for each in args])
        return args, f"{text % args} ({type_name(broken)} while the line was formatted)"


def _text_of(value: object) -> str:
    try:
        return str(value)
    except BaseException as broken:
        return f"(no text: {type_name(broken)})"


def type_name(error: BaseException) -> str:
    """The name of its class, even if a metaclass defines another `__name__`, which may raise."""
    return cast(str, type.__dict__["__name__"].__get__(type(error)))


def _report_lost(message: str, error: BaseException) -> None:
    if not logging.raiseExceptions or sys.stderr is None:
        return
    write_unlogged(f"a log handler failed ({type_name(error)}: {_text_of(error)}) for: {message}")


def write_unlogged(line: str) -> None:
    """Write a line to the error stream, for one that cannot be logged."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"unibus: {printable(line)}\n")
    except (OSError, ValueError):
        return  # As logging.Handler.handleError does: the stream is closed, or cannot encode the text.
