"""Decodes an answer: into a record, or into the error class that the server raised.

The code in an error names a class of `unibus.errors`, so a remote caller catches the same class as a caller in the
server's process. A code that this version does not know becomes `ServerError`. An answer that does not come from a
unibus server becomes `AnswerInvalid`, and nothing of it is used.
"""

from functools import cache
from typing import Final, TypeVar

import msgspec

import unibus.errors as errors
from unibus.errors import AnswerInvalid, BusError, Forbidden, ServerError, Unauthorised

T = TypeVar("T")

_TEXT_CHARS_MAX: Final = 2_000
_NOT_OURS: Final = "is this a unibus server of this version, at this port?"


class _ErrorFields(msgspec.Struct):
    code: str = ""
    message: str = ""
    details: str = ""


class _Refusal(msgspec.Struct):
    error: _ErrorFields


def record_of(body: bytes, kind: type[T]) -> T:
    """The body as a record of that type; AnswerInvalid for anything else."""
    try:
        found: T = msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # The text of a ValidationError names a field, never its value.
        why = f": {error}" if isinstance(error, msgspec.ValidationError) else ""
        raise AnswerInvalid(f"the answer of the server cannot be read{why}", _NOT_OURS) from None
    return found


def error_of(status: int, body: bytes) -> BusError:
    """The error that an answer with a status other than 2xx reports."""
    try:
        error = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _by_status(status)
    what, hint = error.message[:_TEXT_CHARS_MAX], error.details[:_TEXT_CHARS_MAX]
    kind = by_code().get(error.code)
    if kind is not None:
        return kind(what or error.code, hint)
    if status == 404 and error.code == "NotFound":
        return AnswerInvalid("the server does not have this operation", _NOT_OURS)
    return ServerError(what or f"the server answered {status}", hint or f"its error code is {error.code[:100]}")


def _by_status(status: int) -> BusError:
    """The error of an answer without a readable body: from a proxy, or from another kind of server."""
    if status == 401:
        return Unauthorised("the server refused the key", "set another key: UNIBUS_KEY=rule:key")
    if status == 403:
        return Forbidden(
            "the server refused this operation", "set the key of a rule with that right: UNIBUS_KEY=rule:key"
        )
    if 300 <= status < 400:
        return AnswerInvalid(f"the server answered with a redirect ({status})", "use the address that it redirects to")
    return AnswerInvalid(f"the server answered {status} without a readable error", _NOT_OURS)


@cache
def by_code() -> dict[str, type[BusError]]:
    """Every error class by its code. A subclass without a code of its own is represented by its base class."""
    found: dict[str, type[BusError]] = {}
    for each in vars(errors).values():
        if isinstance(each, type) and issubclass(each, BusError):
            found.setdefault(each.code, each)
    return found
