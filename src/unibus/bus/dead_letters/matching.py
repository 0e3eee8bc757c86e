# mypyc: compiled
"""Checks dead-lettered messages against a filter: only the given conditions are evaluated. Compiled, because it runs
for each message."""

import fnmatch
from datetime import timedelta

from unibus.bus.dead_letters.filters import DeadLetterFilter
from unibus.bus.dead_letters.record import (
    RECOVERY_HEADER,
    dead_lettered_ns,
    error_in,
    number_in,
    owner_of,
    record_of,
    source_in,
    text_in,
)
from unibus.core.envelope.fields import seconds_ns
from unibus.core.flow.deadletter import ATTEMPTS_HEADER, DESCRIPTION_HEADER, REASON_HEADER
from unibus.core.lifecycle.state.changes import HeaderOverrides
from unibus.stores.seam.message_record import MessageRecord


class Matcher:
    """A filter at one moment, without its conditions on the entity (`is_in_entity`) and on the body (`where`)."""

    def __init__(self, chosen: DeadLetterFilter, now_ns: int) -> None:
        self._source = chosen.source
        self._reason = _folded(chosen.reason)
        self._error = _folded(chosen.error)
        self._description = _folded(chosen.description)
        self._before_ns = _ago(chosen.older_than, now_ns)
        self._after_ns = _ago(chosen.newer_than, now_ns)
        self._attempts_from = chosen.attempts_from
        self._attempts_below = chosen.attempts_below
        self._recoveries_from = chosen.recoveries_from
        self._recoveries_below = chosen.recoveries_below
        self._ids: frozenset[str] | None = None if chosen.ids is None else frozenset(chosen.ids)

    def takes(self, entry: MessageRecord) -> bool:
        if self._ids is not None and entry.who.message_id not in self._ids:
            return False
        overlay = record_of(entry)
        return self._has_texts(overlay) and self._has_age(entry) and self._has_counts(overlay)

    def _has_texts(self, overlay: HeaderOverrides) -> bool:
        if self._reason and self._reason not in text_in(overlay, REASON_HEADER).casefold():
            return False
        if self._error and self._error not in error_in(overlay).casefold():
            return False
        if self._description and self._description not in text_in(overlay, DESCRIPTION_HEADER).casefold():
            return False
        return self._source is None or is_named(self._source, source_in(overlay))

    def _has_age(self, entry: MessageRecord) -> bool:
        if self._before_ns is not None and dead_lettered_ns(entry) > self._before_ns:
            return False
        return self._after_ns is None or dead_lettered_ns(entry) > self._after_ns

    def _has_counts(self, overlay: HeaderOverrides) -> bool:
        return _is_within(overlay, ATTEMPTS_HEADER, self._attempts_from, self._attempts_below) and _is_within(
            overlay, RECOVERY_HEADER, self._recoveries_from, self._recoveries_below
        )


def is_in_entity(pattern: str | None, place: str) -> bool:
    """Whether the pattern matches the entity `place`, by its own name or by that of its queue."""
    return pattern is None or is_named(pattern, owner_of(place)) or is_named(pattern, place)


def is_named(pattern: str, name: str) -> bool:
    folded, wanted = name.casefold(), pattern.casefold()
    return folded == wanted or fnmatch.fnmatchcase(folded, wanted)


def _folded(text: str | None) -> str:
    return "" if text is None else text.casefold()


def _ago(age: float | timedelta | None, now_ns: int) -> int | None:
    return None if age is None else now_ns - seconds_ns("age", age)


def _is_within(overlay: HeaderOverrides, name: str, least: int | None, below: int | None) -> bool:
    if least is None and below is None:
        return True
    number = number_in(overlay, name)
    return (least is None or number >= least) and (below is None or number < below)
