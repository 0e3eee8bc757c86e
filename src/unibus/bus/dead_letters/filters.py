"""Selects dead-lettered messages. All given conditions must be true; an empty filter selects every message.

    queue, source            the entity that holds them, the one where they failed: a name, or a pattern with * and ?
    reason, error, description   a part of the text, regardless of case
    older_than, newer_than   the time since they were dead-lettered: seconds or a timedelta
    attempts_*, recoveries_* the deliveries before that; the recoveries after it
    ids                      message ids
    where                    a function of the message; the only condition that needs the body

Names of entities are compared regardless of case, and the name of a queue selects its dead-letter queue.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Final

from unibus.core.envelope.fields import seconds_ns
from unibus.core.envelope.message import Message
from unibus.display import given_fields
from unibus.errors import UsageError
from unibus.near_names import hint_for_name

ALIASES: Final = {"entity": "queue", "signature": "error", "error_type": "error", "id": "ids", "predicate": "where"}
"""Accepted synonyms, in filters that are given as dictionaries or keywords."""

_TEXTS: Final = ("queue", "source", "reason", "error", "description")
_AGES: Final = ("older_than", "newer_than")
_COUNTS: Final = ("attempts_below", "attempts_from", "recoveries_below", "recoveries_from")


@dataclass(frozen=True)
class DeadLetterFilter:
    """See the module. `attempts_from` is "at least", `attempts_below` "less than"."""

    queue: str | None = None
    source: str | None = None
    reason: str | None = None
    error: str | None = None
    description: str | None = None
    older_than: float | timedelta | None = None
    newer_than: float | timedelta | None = None
    attempts_below: int | None = None
    attempts_from: int | None = None
    recoveries_below: int | None = None
    recoveries_from: int | None = None
    ids: tuple[str, ...] | None = None
    where: Callable[[Message], object] | None = None

    def __post_init__(self) -> None:
        for name in _TEXTS:
            if not isinstance(getattr(self, name), (str, type(None))):
                raise UsageError(f"{name} of a filter must be a str, not {getattr(self, name)!r}")
        for name in _AGES:
            if getattr(self, name) is not None:
                seconds_ns(name, getattr(self, name))
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise UsageError(f"{name} of a filter must be a whole number of 0 or more, not {value!r}")
        if self.where is not None and not callable(self.where):
            raise UsageError(
                f"where of a filter must be a function, not {self.where!r:.60}",
                "pass a function that takes the message",
            )
        if self.ids is not None:
            object.__setattr__(self, "ids", _ids(self.ids))

    def __repr__(self) -> str:
        return given_fields(self)

    def is_everything(self) -> bool:
        return all(getattr(self, each.name) is None for each in fields(self))


def _ids(given: object) -> tuple[str, ...]:
    ids = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    if not ids or not all(isinstance(each, str) for each in ids):
        raise UsageError(f"ids of a filter must be message ids, not {given!r}", "pass one id, or a list of them")
    return ids


def filter_of(given: object, more: Mapping[str, object]) -> DeadLetterFilter:
    """The filter for the arguments of a call: a DeadLetterFilter, a dictionary, keywords, or nothing for all."""
    if isinstance(given, DeadLetterFilter):
        if more:
            raise UsageError("a DeadLetterFilter and keywords were both given", "pass one of them")
        return given
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"a filter must be a DeadLetterFilter or a dictionary, not {type(given).__name__}")
    known = {each.name for each in fields(DeadLetterFilter)}
    named: dict[str, object] = {}
    for name, value in {**(given or {}), **more}.items():
        meant = ALIASES.get(name, name)
        if meant not in known:
            raise UsageError(f"dead-lettered messages cannot be filtered by {name!r}", hint_for_name(str(name), known))
        named[meant] = value
    return DeadLetterFilter(**named)  # type: ignore[arg-type]  # The class checks each value.
