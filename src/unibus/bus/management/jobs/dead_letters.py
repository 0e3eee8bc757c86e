"""Lists dead-lettered messages for operators: pages by key, and counts by queue and reason.

A page has the first messages after a key, in the order of `unibus dlq ls`: (time of dead-lettering, entity, sequence).
A page scans every message once, a few hundred at a time, and keeps and reads only those of the page. So it takes the
same memory for ten dead-lettered messages as for a million, and other threads run meanwhile. Bodies are read only on
request.

    key        1700000000000000000:17:orders/$DeadLetterQueue     died_ns : sequence : entity
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from unibus.bus.dead_letters.dead_message import dead_message
from unibus.bus.dead_letters.filters import DeadLetterFilter
from unibus.bus.dead_letters.finding import FoundMessages, entities_of, scan
from unibus.bus.dead_letters.record import dead_lettered_ns, record_of, text_in
from unibus.bus.dead_letters.steps import Steps
from unibus.bus.queues.operations import Queues
from unibus.core.codec.codec import decode_json, encode_json
from unibus.core.envelope.message import Message
from unibus.core.flow.deadletter import REASON_HEADER
from unibus.errors import UsageError
from unibus.stores.seam.message_record import MessageRecord

PAGE_MAX: Final = 1_000
GROUPS_MAX: Final = 10_000
"""Groups in one response. Reasons are free text, so there may be as many groups as messages."""

RECORD_BYTES: Final = 1_000
"""The approximate size of a record in a response, without its texts and its body."""

_KEY: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19}):([\s\S]+)")


class FilterRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A DeadLetterFilter as JSON, without `where`. Ages are in seconds. An empty filter selects every message."""

    queue: str | None = None
    source: str | None = None
    reason: str | None = None
    error: str | None = None
    description: str | None = None
    older_than: float | None = None
    newer_than: float | None = None
    attempts_below: int | None = None
    attempts_from: int | None = None
    recoveries_below: int | None = None
    recoveries_from: int | None = None
    ids: tuple[str, ...] | None = None

    def as_filter(self) -> DeadLetterFilter:
        """UsageError for values that a filter cannot have."""
        return DeadLetterFilter(**msgspec.structs.asdict(self))

    @classmethod
    def of(cls, chosen: DeadLetterFilter) -> "FilterRecord":
        """UsageError for a filter with a function, which cannot be serialized."""
        if chosen.where is not None:
            raise UsageError("a filter with `where` cannot be sent to a server", "use the other conditions of a filter")
        given = {name: getattr(chosen, name) for name in cls.__struct_fields__}
        for name in ("older_than", "newer_than"):
            age = given[name]
            # JSON has no durations: a timedelta becomes seconds.
            given[name] = age.total_seconds() if hasattr(age, "total_seconds") else age
        return cls(**given)


class DeadLetterRecord(msgspec.Struct, frozen=True):
    """One dead-lettered message. `entity` is the queue that holds it, `source` the entity where it failed.

    `message` is the JSON document of the message as it was sent, `traceback` that of the handler's error. Both are
    present only if bodies were requested, else null and empty.
    """

    key: str
    id: str
    entity: str
    sequence: int
    source: str
    reason: str
    description: str
    error_type: str
    last_error: str
    died_ns: int
    attempts: int
    recoveries: int
    consumer: str
    state: str
    session_id: str | None
    size: int
    traceback: str = ""
    message: msgspec.Raw = msgspec.Raw(b"null")

    def original(self) -> Message:
        """The message itself; UsageError if the page was read without bodies."""
        document = bytes(self.message)
        if document == b"null":
            raise UsageError(f"the body of {self.id!r:.80} was not requested", "list messages with their bodies")
        return decode_json(document)


class DeadLetterPage(msgspec.Struct, frozen=True):
    """`next` is the `after` of the next page; None at the end."""

    items: list[DeadLetterRecord]
    next: str | None


class DeadGroupRecord(msgspec.Struct, frozen=True):
    entity: str
    reason: str
    count: int
    oldest_ns: int


class DeadGroups(msgspec.Struct, frozen=True):
    """`total` counts all messages that match; `left_off` the groups beyond GROUPS_MAX, which are not listed."""

    groups: list[DeadGroupRecord]
    total: int
    left_off: int = 0


class DeadLetterKey(NamedTuple):
    """The position of a message in the order of a list."""

    died_ns: int
    entity: str
    sequence: int

    def text(self) -> str:
        return f"{self.died_ns}:{self.sequence}:{self.entity}"


def key_of(text: str) -> DeadLetterKey:
    """The key for a text of `DeadLetterKey.text`. UsageError for any other text."""
    found = _KEY.fullmatch(text)
    if found is None:
        raise UsageError(f"after {text!r:.80} is not the position of a page", "pass the `next` of a page unchanged")
    return DeadLetterKey(int(found[1]), found[3], int(found[2]))


def _key(entry: MessageRecord) -> DeadLetterKey:
    return DeadLetterKey(dead_lettered_ns(entry), entry.entity, entry.sequence)


class _First:
    """Keeps the first `count` messages after a key, of all that are added. Memory is bounded by `count` and a chunk."""

    def __init__(self, count: int, after: DeadLetterKey | None) -> None:
        self._count = count
        self._after = after
        self._last: DeadLetterKey | None = None  # The largest key of `count` known messages: later keys are not needed.
        self._known: list[tuple[DeadLetterKey, MessageRecord]] = []

    def narrow(self, entries: list[MessageRecord]) -> list[MessageRecord]:
        """Drop messages outside of the page by their time alone: cheaper than the filter, and mostly sufficient."""
        # By time alone, and inclusive: `add` compares whole keys, also of messages of the same instant.
        from_ns = 0 if self._after is None else self._after.died_ns
        if self._last is None:
            return [entry for entry in entries if dead_lettered_ns(entry) >= from_ns] if from_ns else entries
        until_ns = self._last.died_ns
        return [entry for entry in entries if from_ns <= dead_lettered_ns(entry) <= until_ns]

    def add(self, entries: Iterable[MessageRecord]) -> None:
        after, last = self._after, self._last
        for entry in entries:
            key = _key(entry)
            if (after is None or key > after) and (last is None or key < last):
                self._known.append((key, entry))
        # Sorted once per chunk that overflows, not per message. From then on `_last` bounds what can still be on the
        # page.
        if len(self._known) > self._count:
            self._known = self.in_order()
            self._last = self._known[-1][0]

    def in_order(self) -> list[tuple[DeadLetterKey, MessageRecord]]:
        return sorted(self._known, key=lambda each: each[0])[: self._count]


def page(
    queues: Queues, chosen: DeadLetterFilter, after: DeadLetterKey | None, top: int, bodies: bool, bytes_max: int
) -> Steps[DeadLetterPage]:
    """The first `top` messages after a key; fewer, but at least one, if they exceed `bytes_max` together."""
    if not 1 <= top <= PAGE_MAX:
        raise UsageError(f"top must be a whole number from 1 to {PAGE_MAX}, got {top}")
    # One more than shown: whether a next page exists is known without a second scan.
    first = _First(top + 1, after)
    found = FoundMessages((yield from entities_of(queues.store)))
    yield from scan(queues.store, chosen, queues.now_ns(), found, first.add, first.narrow)
    known = first.in_order()
    shown = _fitting(known[:top], bodies, bytes_max)
    # After the page is chosen: the bodies of all other messages are never read.
    data = (yield queues.store.read_bodies([entry.key for _, entry in shown])) if bodies else {}
    items = [_record(key, entry, data.get(entry.key)) for key, entry in shown if not bodies or entry.key in data]
    # The key of the last scanned message, even if it was settled meanwhile: the next page begins after it either way.
    return DeadLetterPage(items, shown[-1][0].text() if len(known) > len(shown) else None)


def _fitting(
    known: list[tuple[DeadLetterKey, MessageRecord]], bodies: bool, bytes_max: int
) -> list[tuple[DeadLetterKey, MessageRecord]]:
    size = 0
    for at, (_, entry) in enumerate(known):
        texts = sum([len(value) for value in record_of(entry).values() if isinstance(value, str)])
        # Twice the size: bytes become base64 in JSON, and text may need escapes.
        size += RECORD_BYTES + 2 * texts + (2 * entry.who.size if bodies else 0)
        # At least one, whatever its size: a page without messages could not say where the next one begins.
        if size > bytes_max and at:
            return known[:at]
    return known


def _record(key: DeadLetterKey, entry: MessageRecord, data: bytes | None) -> DeadLetterRecord:
    seen = dead_message(entry, data or b"")
    return DeadLetterRecord(
        key=key.text(),
        id=seen.id,
        entity=seen.entity,
        sequence=seen.sequence,
        source=seen.source,
        reason=seen.failure_reason,
        description=seen.description,
        error_type=seen.error_type,
        last_error=seen.last_error,
        died_ns=seen.failure_ns,
        attempts=seen.attempts,
        recoveries=seen.recovery_attempts,
        consumer=seen.consumer,
        state=seen.state,
        session_id=seen.session_id,
        size=seen.size,
        traceback="" if data is None else seen.traceback,
        message=msgspec.Raw(b"null" if data is None else encode_json(seen.original)),
    )


def groups(queues: Queues, chosen: DeadLetterFilter, bytes_max: int) -> Steps[DeadGroups]:
    """The number of messages by entity and reason, in the order of `unibus dlq ls --summary`."""
    counted: dict[tuple[str, str], list[int]] = {}

    def count(entries: list[MessageRecord]) -> None:
        for entry in entries:
            known = counted.setdefault((entry.entity, text_in(record_of(entry), REASON_HEADER)), [0, 0])
            failed_ns = dead_lettered_ns(entry)
            # The scan is in no order of time, so each message may be the oldest.
            known[1] = min(known[1], failed_ns) if known[0] else failed_ns
            known[0] += 1

    found = FoundMessages((yield from entities_of(queues.store)))
    yield from scan(queues.store, chosen, queues.now_ns(), found, count)
    everything = [DeadGroupRecord(*key, *values) for key, values in counted.items()]
    everything.sort(key=lambda group: (group.entity, -group.count, group.reason))
    shown = _bounded(everything, bytes_max)
    return DeadGroups(shown, sum([group.count for group in everything]), len(everything) - len(shown))


def _bounded(everything: list[DeadGroupRecord], bytes_max: int) -> list[DeadGroupRecord]:
    size = 0
    for at, group in enumerate(everything[:GROUPS_MAX]):
        size += 200 + 2 * (len(group.entity) + len(group.reason))
        if size > bytes_max:
            return everything[:at]
    return everything[:GROUPS_MAX]
