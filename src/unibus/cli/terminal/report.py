"""How a command reports that it failed: what was wrong, a hint what to do, and an exit code.

`EXIT_CODES` maps errors to exit codes; a test checks that it covers every error. Passwords and keys are masked in all
of this output, with and without `--debug`.
"""

import enum
import re
import shutil
import sys
import textwrap
import traceback
from typing import Final

import typer

from unibus.errors import (
    AccessRefused,
    AnswerInvalid,
    BusClosed,
    BusError,
    BusForked,
    CaptureBusy,
    CaptureDamaged,
    CaptureMismatch,
    ChannelExists,
    DecodeError,
    EntityExists,
    EntityNotFound,
    EvaluationError,
    ExtraMissing,
    JobEnded,
    JobNotFound,
    LakeBusy,
    LakeError,
    LockLost,
    LoopMismatch,
    MessageNotFound,
    OutcomeUnknown,
    PayloadMismatch,
    PortUnavailable,
    PositionMoved,
    PublishError,
    QueryStopped,
    RequestFailed,
    RequestTimeout,
    ServerError,
    SessionLocked,
    SessionNotAllowed,
    SessionNotFound,
    SessionRequired,
    StoreFailed,
    StoreUnavailable,
    SubscriptionLimit,
    TransactionInvalid,
    UsageError,
)


class ExitCode(enum.IntEnum):
    """A stable interface for scripts. After a signal the exit code is 128 plus its number, as in shells."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOTHING_MATCHED = 3
    CANNOT_CONNECT = 4
    UNAUTHORISED = 5


EXIT_CODES: Final[dict[type[BaseException], ExitCode]] = {
    AccessRefused: ExitCode.UNAUTHORISED,
    UsageError: ExitCode.USAGE,
    StoreUnavailable: ExitCode.CANNOT_CONNECT,
    ConnectionError: ExitCode.CANNOT_CONNECT,
    PortUnavailable: ExitCode.CANNOT_CONNECT,
    PublishError: ExitCode.FAILED,
    SubscriptionLimit: ExitCode.FAILED,
    EvaluationError: ExitCode.FAILED,
    ChannelExists: ExitCode.FAILED,
    BusClosed: ExitCode.FAILED,
    BusForked: ExitCode.FAILED,
    LoopMismatch: ExitCode.FAILED,
    RequestTimeout: ExitCode.FAILED,
    RequestFailed: ExitCode.FAILED,
    DecodeError: ExitCode.FAILED,
    PayloadMismatch: ExitCode.FAILED,
    EntityNotFound: ExitCode.NOTHING_MATCHED,
    MessageNotFound: ExitCode.NOTHING_MATCHED,
    SessionNotFound: ExitCode.NOTHING_MATCHED,
    JobNotFound: ExitCode.NOTHING_MATCHED,
    JobEnded: ExitCode.FAILED,
    SessionRequired: ExitCode.USAGE,
    SessionNotAllowed: ExitCode.USAGE,
    SessionLocked: ExitCode.FAILED,
    EntityExists: ExitCode.FAILED,
    LockLost: ExitCode.FAILED,
    PositionMoved: ExitCode.FAILED,
    TransactionInvalid: ExitCode.FAILED,
    QueryStopped: ExitCode.FAILED,
    StoreFailed: ExitCode.FAILED,
    ServerError: ExitCode.FAILED,
    AnswerInvalid: ExitCode.FAILED,
    OutcomeUnknown: ExitCode.FAILED,
    ExtraMissing: ExitCode.FAILED,
    CaptureBusy: ExitCode.CANNOT_CONNECT,
    LakeBusy: ExitCode.CANNOT_CONNECT,
    LakeError: ExitCode.FAILED,
    CaptureMismatch: ExitCode.FAILED,
    CaptureDamaged: ExitCode.FAILED,
}
"""The nearest base class decides, so one row covers an error and its subclasses."""

_URL_SECRET: Final = re.compile(r"(://[^/\s:@]*):[^/\s]*@")
_NAMED_SECRET: Final = re.compile(
    r"\b(SharedAccessKey|SharedAccessSignature|password|passwd|pwd|secret|token|api[_-]?key|sig)=[^;&\s'\",)]+",
    re.IGNORECASE,
)

WIDTH_MIN: Final = 40
"""A narrower terminal wraps by itself."""

_debug: list[bool] = [False]


def set_debug(is_on: bool) -> None:
    _debug[0] = is_on


def debug_line(text: str) -> None:
    """Prints one line on the error stream, with `--debug` only."""
    if _debug[0]:
        typer.echo(f"debug: {masked(text)}", err=True)


def exit_code(error: BaseException) -> ExitCode:
    return next((EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES), ExitCode.FAILED)


def masked(text: str) -> str:
    """The text with the passwords of URLs and the secrets of connection strings replaced by ***."""
    return _NAMED_SECRET.sub(r"\1=***", _URL_SECRET.sub(r"\1:***@", text))


def report(error: Exception, debug: bool) -> ExitCode:
    """Prints the error that ended a command, and returns the exit code."""
    if debug:
        typer.echo(masked("".join(traceback.format_exception(error))), err=True, nl=False)
    if isinstance(error, BusError):
        print_error(error.what, error.hint)
    elif isinstance(error, OSError):
        print_error(str(error) or type(error).__name__, "")
    else:
        again = "" if debug else "; `unibus --debug …` shows the traceback"
        print_error(f"unexpected {type(error).__name__}: {error}", f"this is a bug in unibus, please report it{again}")
    return exit_code(error)


def print_error(what: str, hint: str) -> None:
    """The end of every failed command: the error, and a hint if there is one. On a terminal both fit its width."""
    _print_labelled("error:", typer.style("error:", fg="red", bold=True), what)
    if hint:
        _print_labelled("hint:", typer.style("hint:", fg="yellow"), hint)


def _print_labelled(label: str, styled: str, text: str) -> None:
    lines = _wrapped(masked(text), label) if sys.stderr.isatty() else [masked(text)]
    typer.echo(f"{styled} {lines[0]}", err=True)
    for line in lines[1:]:
        typer.echo(line, err=True)


def _wrapped(text: str, label: str) -> list[str]:
    """The text in lines of the terminal, indented below its first word. Words are whole: commands and URLs are copied.

    A program that reads the error stream gets one line.
    """
    width = shutil.get_terminal_size().columns
    indent = " " * (len(label) + 1)
    found: list[str] = []
    for paragraph in text.split("\n"):
        found += textwrap.wrap(
            paragraph,
            max(width, WIDTH_MIN),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return [found[0][len(indent) :], *found[1:]]
