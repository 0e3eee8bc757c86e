"""From the bytes of an answer to a record, or to the error that the server raised, with its own class.

The code in an error names a class of `unibus.errors`, so a caller here catches what a caller in the server's process
would. A code that this version does not know becomes `ServerError`. What is no answer of a unibus server at all becomes
`AnswerInvalid`, and nothing of it is used.
"""

from functools import cache
from typing import Final, TypeVar

import msgspec

import unibus.errors as errors
from unibus.errors import AnswerInvalid, BusError, Forbidden, ServerError, Unauthorised

T = TypeVar("T")

_TEXT_CHARS_MAX: Final = 2_000
_NOT_OURS: Final = "is this a unibus server of this version, at this port?"


class _Told(msgspec.Struct):
    code: str = ""
    message: str = ""
    details: str = ""


class _Refusal(msgspec.Struct):
    error: _Told


def record_of(body: bytes, kind: type[T]) -> T:
    """The body as a record of that type; AnswerInvalid for anything else."""
    try:
        found: T = msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # Of a ValidationError the text names a field, and never its value.
        why = f": {error}" if isinstance(error, msgspec.ValidationError) else ""
        raise AnswerInvalid(f"the answer of the server cannot be read{why}", _NOT_OURS) from None
    return found


def error_of(status: int, body: bytes) -> BusError:
    """The error that an answer with another status than 200 reports."""
    try:
        told = msgspec.json.decode(body, type=_Refusal).error
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _without_text(status)
    what, hint = told.message[:_TEXT_CHARS_MAX], told.details[:_TEXT_CHARS_MAX]
    kind = by_code().get(told.code)
    if kind is not None:
        return kind(what or told.code, hint)
    if status == 404 and told.code == "NotFound":
        return AnswerInvalid("the server does not have this operation", _NOT_OURS)
    return ServerError(what or f"the server answered {status}", hint or f"its code is {told.code[:100]}")


def _without_text(status: int) -> BusError:
    """The status alone: of a proxy, or of a server that is none of ours."""
    if status == 401:
        return Unauthorised("the server refused the key", "UNIBUS_KEY=rule:key names another one")
    if status == 403:
        return Forbidden("the server refused this", "UNIBUS_KEY=rule:key names another rule")
    if 300 <= status < 400:
        return AnswerInvalid(f"the server answered {status} and another address", "call that address itself")
    return AnswerInvalid(f"the server answered {status} without an error that can be read", _NOT_OURS)


@cache
def by_code() -> dict[str, type[BusError]]:
    """Every class of the tree by its code; the class that named the code first where a subclass has none of its own."""
    found: dict[str, type[BusError]] = {}
    for each in vars(errors).values():
        if isinstance(each, type) and issubclass(each, BusError):
            found.setdefault(each.code, each)
    return found
