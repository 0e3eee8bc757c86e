"""Events of history as records, and filters for them: for `unibus tail`, for the server and for its clients.

A record has the fields of an event, with instants as text. A filter selects by channel, kind and fields; a name that
could never match raises UsageError with the nearest known name.
"""

import difflib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from unibus.core.lifecycle.events import KINDS, Event
from unibus.core.topics.index import SubscriptionIndex
from unibus.core.topics.pattern import Pattern, is_wildcard
from unibus.errors import UsageError

ALL: Final = "*"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES: Final = {"enqueued_us": "enqueued_at", "first_delivered_us": "first_delivered_at"}
_SHOWN: Final = tuple((name, _TIMES.get(name)) for name in Event.__struct_fields__ if name not in ("seq", "ts"))
FIELDS: Final = tuple(name for name in Event.__struct_fields__ if name != "attrs")
"""The fields that a filter may use, besides ATTRIBUTES."""
ATTRIBUTES: Final = (
    *("priority", "copies", "source", "source_sequence", "new_sequence", "dedup_key", "key"),
    *("target", "action", "name", "position", "messages", "batch_id"),
)
"""The attributes that an event may have."""

_REMEMBERED_MAX: Final = 10_000


def when(event_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=event_us)


def record_of(event: Event) -> dict[str, object]:
    """The fields of the event that are set; instants as text."""
    record: dict[str, object] = {"seq": event.seq, "at": when(event.ts).isoformat()}
    for name, instant in _SHOWN:
        value = getattr(event, name)
        if value is None:
            continue
        if instant is None:
            record[name] = value
        else:
            record[instant] = when(value).isoformat()
    return record


class EventFilter:
    """`channel` is a name, a pattern or `*`; as in `subscribe`, an entity with exactly this name (`is_known`) wins over
    the pattern. `where` are texts FIELD=VALUE, all of which must be true. Filters with equal `key` are equal."""

    def __init__(
        self,
        channel: str = ALL,
        kinds: Iterable[str] = (),
        where: Sequence[str] = (),
        is_known: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self.kinds: Final = frozenset(kinds)
        for kind in self.kinds:
            if kind not in KINDS:
                raise UsageError(f"history has no events of kind {kind!r:.80}", _near(kind, KINDS))
        self._conditions: Final = [_condition(text) for text in where]
        self._index: SubscriptionIndex | None = None
        self.exact = "" if channel == ALL else channel
        """The one channel to match; empty for all channels and for a pattern."""
        # As in `subscribe`: a name with wildcards that an entity has is that entity.
        if self.exact and is_wildcard(channel) and not is_known(channel):
            self._index = SubscriptionIndex()
            self._index.subscribe(1, Pattern.wildcard(channel))
            self.exact = ""
        self.key: Final = (channel, bool(self.exact), self.kinds, tuple(self._conditions))
        self._channels: dict[str, bool] = {}

    @property
    def is_all(self) -> bool:
        return not (self.exact or self._index or self.kinds or self._conditions)

    def means(self, channel: str) -> bool:
        """Whether the channel matches. The result for a pattern is cached per channel."""
        if self._index is None:
            return not self.exact or channel == self.exact
        found = self._channels.get(channel)
        if found is None:
            # Names come from history, so their number is not bounded by the filter.
            if len(self._channels) >= _REMEMBERED_MAX:
                self._channels.clear()
            found = self._channels[channel] = len(self._index.match(channel)) > 0
        return found

    def accepts(self, event: Event) -> bool:
        """Whether the other conditions match, for an event of a matching channel."""
        # The cheapest check first: a filter runs for each event of history.
        if self.kinds and event.kind not in self.kinds:
            return False
        return all([_value(event, name) == value for name, value in self._conditions])

    def __call__(self, event: Event) -> bool:
        return self.means(event.channel) and self.accepts(event)


def _condition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"where {text!r:.80} is not FIELD=VALUE", "for instance session_id=c1")
    if name not in FIELDS and name not in ATTRIBUTES:
        raise UsageError(f"an event has no field {name!r:.80}", _near(name, (*FIELDS, *ATTRIBUTES)))
    return name, value


def _value(event: Event, name: str) -> str | None:
    # Compared as text: a condition comes from a command line or a URL.
    value = getattr(event, name) if name in FIELDS else (event.attrs or {}).get(name)
    return None if value is None else str(value)


def _near(given: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(given, names, 1)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(names)}"
