"""Hints for a keyword that a method does not have: `receive("orders", timout=1)`, `publish("orders", 1, prioritet=3)`.

Python's own TypeError names the keyword, and not the one that was meant. How the hint is added depends on the method:

    most methods   wrapped once, when the class is made: the TypeError of a call becomes KeywordUnknown
    publish        not wrapped and without `**unknown`. A compiled method needs 26 ns to collect keywords that are not
                   there, a wrapper more, and a whole publish takes 275 ns. The TypeError stays, and gets the hint where
                   the bus sees it: as a note at the end of the `with` block, in the log of a handler that failed, and
                   in the log of a program that it ended before the bus was closed

Not compiled: a compiled function is no descriptor, so a wrapper would not get the object as its first argument.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from unibus.core.envelope.fields import BESIDE, NAMES
from unibus.errors import KeywordUnknown
from unibus.near_names import hint_for_name, near_name
from unibus.other_words import meant_among

COLD: Final = (
    "accept_session", "close", "dead_letter_queue", "drain", "peek", "prune_before", "query_messages", "receive",
    "receive_batch", "receive_deferred", "relay_outbox", "replay", "stop", "trace_message", "transaction",
)  # fmt: skip
"""Methods with keywords whose call is long beside a wrapper. Those that collect `**fields` check names themselves."""

PUBLISH: Final = (
    "channel", "payload", "priority", "trace_id", "headers", "correlation_id", "ttl", "dedup_key", "fields",
)  # fmt: skip

SCHEDULE: Final = (
    "use send(queue, payload, delay=…) or schedule(queue, payload, at), which store the message until then"
)
"""The hint for a publish with a delay: it delivers at once."""

CONSTRUCTOR: Final = ("store", "persistence_path", "worker_count", "strict", "idempotency_ttl", "clock")

_FORMS: Final = re.compile(
    r"(?:\w+\.)?publish(?:_from_sync)?\(\) got an unexpected keyword argument '(\w+)'.*"  # The interpreter's.
    r"|'(\w+)' is an invalid keyword argument for publish(?:_from_sync)?\(\)"  # That of compiled code.
)


def unknown_keyword(call: str, name: str, known: Iterable[str]) -> KeywordUnknown:
    """The error for a keyword that the call does not have."""
    return KeywordUnknown(f"{call}() has no argument {name!r}", _hint(name, list(known)))


def _hint(name: str, known: list[str]) -> str:
    return hint_for_name(name, known, meant=meant_among(known))


def check_request_keywords(fields: Mapping[str, object]) -> None:
    """Raise for a misspelt `timeout`, the one keyword of `request` that is no field of a message."""
    # `request` collects **fields, so a misspelt timeout would be a field of the message: refused, but with another
    # hint.
    for name in fields:
        if name not in NAMES and name not in BESIDE and near_name(name, ("timeout",), meant_among(("timeout",))):
            raise unknown_keyword("request", name, ("timeout",))


def name_unknown_keywords(owner: type, methods: Iterable[str] = COLD) -> None:
    """Make these methods of the class raise KeywordUnknown for a keyword that they do not have."""
    for name in methods:
        setattr(owner, name, _naming(name, getattr(owner, name)))


def _naming(name: str, method: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(method)
    def named(*arguments: object, **keywords: object) -> object:
        try:
            return method(*arguments, **keywords)
        # After the call and not before it: a call that is right pays nothing for the check.
        except TypeError:
            # An error of the method itself has only keywords that the method has, and is raised as it is.
            unknown = _unknown(method, keywords)
            if unknown is None:
                raise
        # Outside of the `except`: the TypeError of Python would be shown as its context, and adds nothing.
        raise unknown_keyword(name, *unknown)

    return named


def _unknown(method: Callable[..., object], given: Mapping[str, object]) -> tuple[str, list[str]] | None:
    """The first given keyword that the method does not have, and those that it has."""
    known = [name for name in inspect.signature(method).parameters if name != "self"]
    strange = [name for name in given if name not in known]
    return (strange[0], known) if strange else None


def publish_hint(error: BaseException) -> str:
    """What was meant by the unknown keyword of a publish; "" if the error is another one."""
    # Exactly: a subclass, such as KeywordUnknown, has a hint of its own.
    if type(error) is not TypeError:
        return ""
    found = _FORMS.fullmatch(str(error))
    if found is None:
        return ""
    return _publish_hint(found[1] or found[2])


def _publish_hint(name: str) -> str:
    """The words of other systems also mean what `publish` does not have as a keyword: fields, or options of `send`."""
    ours = meant_among((*PUBLISH, *NAMES, *BESIDE)).get(name, name)
    if ours in ("delay", "scheduled_at"):
        return SCHEDULE
    if ours == "message_id":
        return "publish makes the id itself; send takes message_id=, and dedup_key= detects a message published twice"
    return f"pass it as fields={{{ours!r}: …}}" if ours in NAMES and ours not in PUBLISH else _hint(name, list(PUBLISH))


def add_publish_hint(error: object) -> None:
    """Add the hint to an error that leaves the block of a bus: a note, which a traceback shows below the error."""
    if isinstance(error, BaseException):
        hint = publish_hint(error)
        if hint:
            error.add_note(f"publish: {hint}")
