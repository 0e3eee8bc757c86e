"""What was asked of a store and what it answered, in the order of asking. The store is never asked about itself here.

An operation is *open* until it is answered; one that never was may have happened or not, but not by half. What it does
to messages is written down as marks: the events that history must show, all of them or none.
"""

import random
import zlib
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from unibus.core.lifecycle.events import Event

Mark = tuple[str, str, str, str]
"""(kind, channel, message id, detail): one event, as far as the one who asked for it can know it."""

Place = tuple[str, str]
"""(channel, message id): no id is sent twice, so this is one message in one queue."""

OPEN, ACKED, REFUSED = "open", "acked", "refused"

LOCK_S = 5.0
ABANDONED = "abandoned"
REASON = "because"
DEAD = "/$DeadLetterQueue"


@lru_cache(maxsize=4096)
def body_of(message_id: str) -> bytes:
    """Every id has one body: mostly small, sometimes of several pages."""
    chance = random.Random(message_id)
    if message_id.startswith("tiny"):
        return message_id.encode()
    return message_id.encode() + chance.randbytes(chance.choice((0, 10, 100, 100, 500, 3_000, 20_000)))


def crc_of(data: bytes | None) -> int:
    return -1 if data is None else zlib.crc32(data)


@dataclass
class Taken:
    """A message as a claim handed it out."""

    channel: str
    id: str
    count: int
    until_ns: int
    crc: int


@dataclass
class Op:
    """One call. `name` is its consumer if it is a claim: history says by that name what it took."""

    lane: int = 0
    name: str = ""
    synced: bool = True
    marks: list[Mark] = field(default_factory=list)
    stored: list[Place] = field(default_factory=list)
    """Filled by the answer: what is held by the store from then on."""
    taken: list[Taken] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    """By session: the state that it has from then on."""
    status: str = OPEN
    index: int = -1

    def ends(self) -> list[Place]:
        return [(channel, message_id) for kind, channel, message_id, _ in self.marks if kind in ENDINGS]


ENDINGS = frozenset({"completed", "cancelled", "dead_lettered", "moved", "purged"})


@dataclass
class Findings:
    """What is wrong. `lost`, `doubled` and `half` are the promises; `wrong` is everything else that does not fit."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    half: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        return [f"{name}: {text}" for name in ("lost", "doubled", "half", "wrong") for text in getattr(self, name)]


class Ledger:
    """Takes down every call. What contradicts an earlier answer is found at once, the rest by the audit."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.history: list[Event] = []
        """Every event that was read so far; a store may have forgotten the old ones since."""
        self.durable = -1
        """The last operation that was answered as synced: it and all before it survive a power cut."""
        self.findings = Findings()
        self.counts: Counter[str] = Counter()
        self.deliveries: dict[Place, int] = {}
        self.locks: dict[Place, int] = {}
        self.gone: set[Place] = set()

    # From the one who works

    def begin(self, op: Op) -> None:
        op.index = len(self.ops)
        self.ops.append(op)
        self._unlock(op)

    def acked(self, op: Op) -> None:
        op.status = ACKED
        self.counts["acked"] += 1
        if op.synced and op.marks:
            self.durable = max(self.durable, op.index)
        for taken in op.taken:
            self._check_taken(op, taken)
        self._learn(op)
        self.counts["completed"] += sum(mark[0] == "completed" for mark in op.marks)

    def refused(self, op: Op) -> None:
        """Said no at once: nothing of it may ever be seen."""
        op.status = REFUSED

    def _check_taken(self, op: Op, taken: Taken) -> None:
        place = (taken.channel, taken.id)
        if place in self.gone:
            self.findings.doubled.append(f"{place} was handed out to {op.name} after it was completed")
        if taken.count <= self.deliveries.get(place, 0):
            self.findings.wrong.append(f"{place}: delivery {taken.count} after {self.deliveries[place]}")
        if taken.until_ns and taken.until_ns - round(LOCK_S * 1e9) < self.locks.get(place, 0):
            self.findings.doubled.append(f"{place} was handed out to {op.name} while it was locked")
        if taken.crc != crc_of(body_of(taken.id)):
            self.findings.wrong.append(f"{place} came with another body")

    def _learn(self, op: Op) -> None:
        for taken in op.taken:
            place = (taken.channel, taken.id)
            self.deliveries[place] = taken.count
            # A session's messages are locked by its session, which may end before.
            if taken.until_ns and taken.channel != "sessions":
                self.locks[place] = taken.until_ns
        self.gone.update(op.ends())

    def _unlock(self, op: Op) -> None:
        for _, channel, message_id, _ in op.marks:
            self.locks.pop((channel, message_id), None)

    # From the audit

    def keep(self, survived: list[Op]) -> None:
        """Only these have happened; rebuild everything from them."""
        self.durable = sum(op.index <= self.durable for op in survived) - 1
        self.ops = survived
        self.deliveries, self.locks, self.gone = {}, {}, set()
        for index, op in enumerate(survived):
            self._unlock(op)
            if op.status == ACKED:
                self._learn(op)
            op.index = index

    def asked_to_end(self) -> set[Place]:
        """Messages that some call meant to end, answered or not."""
        return {place for op in self.ops if op.status != REFUSED for place in op.ends()}


def position_of(event: Event) -> tuple[str, int]:
    attrs = event.attrs or {}
    return attrs["name"], int(attrs["position"])


def position_mark(name: str, position: int) -> str:
    return f"{name} {position}"


def mark_of(event: Event) -> Mark:
    """An event as the one who caused it would have announced it."""
    detail = ""
    kind = event.kind
    message_id = event.message_id or ""
    if kind in ("sent", "scheduled", "duplicate"):
        kind = "send"
    elif kind in ("delivered", "deferred"):
        detail = str(event.delivery_count)
    elif kind == "returned":
        detail = f"{event.delivery_count} {event.reason}"
    elif kind == "dead_lettered":
        detail = event.reason or ""
    elif kind == "processed":
        detail = (event.attrs or {})["key"]
    elif kind == "advanced":
        detail = position_mark(*position_of(event))
    return kind, event.channel, message_id, detail
