"""Histories as a store could have written them, made by chance: sends, deliveries, returns, ends, drops."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unibus.capture.manifest import Manifest
from unibus.capture.schema import table_of
from unibus.capture.segments import SegmentWriter
from unibus.core.lifecycle.events import Event

BEGAN_US = 1_790_000_000_000_000
CHANNELS = ("orders", "bills", "orders/$dead")


@dataclass
class Held:
    channel: str
    sequence: int
    message_id: str
    size: int
    trace_id: str | None
    correlation_id: str | None
    session_id: str | None
    state: str
    enqueued_us: int
    first_us: int | None = None
    count: int = 0
    consumer: str | None = None
    was_deferred: bool = False


@dataclass
class History:
    """Performs random operations, each only if the lifecycle allows it."""

    chance: random.Random
    domain: str = "local"
    events: list[Event] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CHANNELS, 0))
    now_us: int = BEGAN_US

    def play(self, operations: Sequence[str]) -> list[Event]:
        for operation in operations:
            self.now_us += self.chance.choice((0, 1, 7, 900, 250_000, 40_000_000))
            getattr(self, operation)()
        return self.events

    def _note(self, kind: str, held: Held, who: bool = True, **more: object) -> None:
        about = ("message_id", "size", "trace_id", "correlation_id", "session_id")
        told = {name: getattr(held, name) for name in about} if who else {}
        self._event(kind, held.channel, held.sequence, **told, **more)

    def _event(self, kind: str, channel: str, sequence: int, **more: object) -> None:
        attrs = more.pop("attrs", None)
        seq = len(self.events) + 1
        self.events.append(Event(seq, self.now_us, self.domain, channel, kind, sequence, attrs=attrs, **more))  # type: ignore[arg-type]

    def _any(self, *states: str) -> Held | None:
        found = [each for each in self.held if each.state in states]
        return self.chance.choice(found) if found else None

    def _store(self, channel: str, like: Held | None = None, state: str = "active") -> Held:
        self.last[channel] += 1
        number = self.chance.randrange(50)
        held = Held(
            channel,
            self.last[channel],
            like.message_id if like else f"m{number}",  # Ids repeat.
            like.size if like else number * 10,
            like.trace_id if like else self.chance.choice((None, "t1", "t2")),
            like.correlation_id if like else self.chance.choice((None, None, "c1", "t1")),
            like.session_id if like else self.chance.choice((None, "s1")),
            state,
            self.now_us,
        )
        self.held.append(held)
        return held

    # Coming

    def send(self) -> None:
        self._note("sent", self._store(self.chance.choice(CHANNELS[:2])), attrs={"priority": "128"})

    def schedule(self) -> None:
        held = self._store("orders", state="scheduled")
        self._note("scheduled", held, attrs={"visible_us": str(self.now_us + 5_000)})

    def copy(self) -> None:
        held = self._store("bills", state=self.chance.choice(("active", "scheduled")))
        later = {"visible_us": str(self.now_us + 9_000)} if held.state == "scheduled" else {}
        self._note("copied", held, attrs={"source_seq": "1", **later})

    # Staying

    def deliver(self) -> None:
        held = self._any("active", "deferred")
        if held is not None:
            held.was_deferred |= held.state == "deferred"
            held.state = "locked"
            held.count += 1
            held.consumer = self.chance.choice(("w1", "w2", None))
            held.first_us = held.first_us or self.now_us
            until = {"until_us": str(self.now_us + 30_000)}
            self._note("delivered", held, delivery_count=held.count, consumer=held.consumer, attrs=until)

    def renew(self) -> None:
        held = self._any("locked")
        if held is not None:
            self._note("renewed", held, who=False, attrs={"until_us": str(self.now_us + 60_000)})

    def give_back(self) -> None:
        held = self._any("locked")
        if held is not None:
            reason = self.chance.choice(("abandoned", "released", "lock ended"))
            held.count -= reason == "released"
            later = not held.was_deferred and self.chance.random() < 0.4
            held.state = "deferred" if held.was_deferred else "scheduled" if later else "active"
            attrs = {"visible_us": str(self.now_us + 2_000)} if later else None
            self._note("returned", held, delivery_count=held.count, reason=reason, attrs=attrs)

    def defer(self) -> None:
        held = self._any("locked")
        if held is not None:
            held.state, held.was_deferred = "deferred", True
            self._note("deferred", held, delivery_count=held.count)

    def activate(self) -> None:
        held = self._any("scheduled")
        if held is None:
            return
        new = held.sequence if held.first_us else self.last[held.channel] + 1
        self._note("activated", held, attrs={"new_sequence": str(new)})
        if new != held.sequence:
            self.last[held.channel] = held.sequence = new
            held.enqueued_us = self.now_us
        held.state = "active"

    # Ending

    def complete(self) -> None:
        held = self._any("locked")
        if held is not None:
            times = {"enqueued_us": held.enqueued_us, "first_delivered_us": held.first_us}
            self._end("completed", held, delivery_count=held.count, consumer=held.consumer, **times)

    def dead_letter(self) -> None:
        held = self._any("locked", "active", "scheduled")
        if held is None:
            return
        self._note("copied", self._store("orders/$dead", held), attrs={"source": held.channel})
        self._end(
            "dead_lettered",
            held,
            delivery_count=held.count,
            enqueued_us=held.enqueued_us,
            first_delivered_us=held.first_us,
            reason=self.chance.choice(("failed", "too many")),
            signature=self.chance.choice((None, "ValueError")),
            consumer=held.consumer,
        )

    def expire(self) -> None:
        held = self._any("active")
        if held is not None:
            times = {"enqueued_us": held.enqueued_us, "first_delivered_us": held.first_us}
            self._end("expired", held, delivery_count=held.count, **times)

    def cancel(self) -> None:
        held = self._any("scheduled")
        if held is not None:
            self._end("cancelled", held)

    def purge(self) -> None:
        held = self._any("active", "locked", "deferred", "scheduled")
        if held is not None:
            self._end("purged", held, reason="by hand")

    def move(self) -> None:
        held = self._any("active", "deferred")
        if held is not None:
            self._note("copied", self._store("bills", held), attrs={"source": held.channel})
            self._end("moved", held, delivery_count=held.count, enqueued_us=held.enqueued_us)

    def _end(self, kind: str, held: Held, **more: object) -> None:
        self._note(kind, held, **more)
        self.held.remove(held)

    def drop(self) -> None:
        channel = self.chance.choice(CHANNELS)
        gone = [each for each in self.held if each.channel == channel]
        self._event("dropped", channel, self.last[channel], attrs={"messages": str(len(gone))})
        self.held = [each for each in self.held if each.channel != channel]

    def noise(self) -> None:
        kind = self.chance.choice(("published", "duplicate", "session_taken", "declared", "processed", "pruned"))
        channel = self.chance.choice(CHANNELS)
        self._event(kind, channel, self.last[channel], attrs={"key": "k"})


OPERATIONS = (
    *("send",) * 4,
    *("deliver",) * 5,
    *("complete",) * 3,
    *("schedule", "copy", "renew", "give_back", "give_back", "defer", "activate", "activate", "dead_letter", "expire"),
    *("cancel", "purge", "move", "drop", "noise"),
)


def history(seed: int, operations: int, domain: str = "local") -> list[Event]:
    chance = random.Random(seed)
    return History(chance, domain).play(chance.choices(OPERATIONS, k=operations))


def write_segments(folder: Path, events: Sequence[Event], domain: str = "local", size: int = 40) -> Path:
    """What follows those that are there, in segments of so many."""
    writer = SegmentWriter(str(folder), domain)
    try:
        fresh = [each for each in events if each.seq > writer.last]
        if fresh and fresh[0].seq > writer.last + 1:
            writer.gap(writer.last + 1, fresh[0].seq - 1)
        for at in range(0, len(fresh), size):
            writer.write(table_of(fresh[at : at + size]))
    finally:
        writer.close()
    return folder


def join_segments(folder: Path, first: int, count: int, domain: str = "local") -> None:
    """As compaction does: one segment in place of several, over whatever a batch has read of them."""
    gone = Manifest.load(str(folder)).segments[first : first + count]
    if len(gone) > 1:
        writer = SegmentWriter(str(folder), domain)
        try:
            writer.join(gone)
        finally:
            writer.close()
