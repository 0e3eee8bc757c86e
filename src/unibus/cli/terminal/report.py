"""What a person sees when a command fails: what happened, what to do about it, and an exit code to match.

One table says which error ends with which code; a test holds it complete. Secrets do not reach the terminal,
with or without `--debug`.
"""

import enum
import re
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
    """What scripts may rely on. A signal ends a command with 128 and its number, as shells have it."""

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
"""The nearest class in the order of inheritance decides, so a family needs one line."""

_URL_SECRET: Final = re.compile(r"(://[^/\s:@]*):[^/\s]*@")
_NAMED_SECRET: Final = re.compile(
    r"\b(SharedAccessKey|SharedAccessSignature|password|passwd|pwd|secret|token|api[_-]?key|sig)=[^;&\s'\",)]+",
    re.IGNORECASE,
)


_debug: list[bool] = [False]


def set_debug(is_on: bool) -> None:
    _debug[0] = is_on


def debug_line(text: str) -> None:
    """One line on the error stream, with `--debug` only."""
    if _debug[0]:
        typer.echo(f"debug: {masked(text)}", err=True)


def exit_code(error: BaseException) -> ExitCode:
    return next((EXIT_CODES[kind] for kind in type(error).__mro__ if kind in EXIT_CODES), ExitCode.FAILED)


def masked(text: str) -> str:
    """The text without passwords in URLs and without the secrets of connection strings."""
    return _NAMED_SECRET.sub(r"\1=***", _URL_SECRET.sub(r"\1:***@", text))


def report(error: Exception, debug: bool) -> ExitCode:
    """Tell about an error that ended a command, on the error stream, and say how to exit."""
    if debug:
        typer.echo(masked("".join(traceback.format_exception(error))), err=True, nl=False)
    if isinstance(error, BusError):
        tell(error.what, error.hint)
    elif isinstance(error, OSError):
        tell(str(error) or type(error).__name__, "")
    else:
        again = "" if debug else "; `unibus --debug …` shows where it happened"
        tell(f"unexpected {type(error).__name__}: {error}", f"this is a defect of unibus, please report it{again}")
    return exit_code(error)


def tell(what: str, hint: str) -> None:
    """The two lines that every failed command ends with; the second only when there is advice to give."""
    typer.echo(f"{typer.style('error:', fg='red', bold=True)} {masked(what)}", err=True)
    if hint:
        typer.echo(f"{typer.style('hint:', fg='yellow')} {masked(hint)}", err=True)
