"""A store and the model beside it: opened, closed, crashed and compared together.

Time moves only between steps, and nothing runs in the background: what is due is done by the next verb, at the same
instant in both. A crash is a copy of the files after a step that was answered, opened again.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.crash.power import StillTimers
from tests.property.topologies.worlds import kind_of, settings_of
from unibus.clock import Clock
from unibus.core.flow.deadletter import DESCRIPTION_HEADER
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import Advance, Command, Declare
from unibus.core.lifecycle.envelope import message_of
from unibus.core.lifecycle.state.states import STATE_NAMES
from unibus.errors import BusError
from unibus.stores.engine import snapshot
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.message_record import MessageRecord
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.model import SECOND, ModelMessage, ModelQueue, ModelRules, ModelStore

KINDS: Final = ("memory", "sqlite", "jsonfile")
ANSWER_S: Final = 20.0
START_NS: Final = 1_700_000_000 * SECOND
REMEMBERED: Final = 12  # Locks and sessions, old ones included, that a step may try.
PART_ENTRIES: Final = snapshot.PART_ENTRIES


@dataclass(frozen=True)
class Lock:
    entity: str
    sequence: int
    token: bytes


@dataclass(frozen=True)
class SessionProof:
    entity: str
    id: str
    token: bytes

    @property
    def pair(self) -> tuple[str, bytes]:
        return self.id, self.token


class Undecided(Exception):
    """Several deadlines at one instant wanted the same place, or the same dedup key: which got it is not promised."""


class Pair:
    """`log` records the steps, for the reader of a failure."""

    def __init__(self, kind: str, chance: Random) -> None:
        self.kind = kind
        self.every = chance.choice((1, 3, 8, 1000))
        self.memory_mb = chance.choice((0.0001, 1.0))
        snapshot.PART_ENTRIES = chance.choice((1, 2, 500))
        self.now_ns = START_NS
        self.clock = Clock(lambda: self.now_ns, lambda: self.now_ns)
        self.model = ModelStore()
        self.restarts = 0
        self.log: list[str] = []
        self.locks: list[Lock] = []
        self.sessions: list[SessionProof] = []
        self.scheduled: list[tuple[str, int]] = []
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.store = self.open()

    # Opening

    def open(self) -> EmbeddedStore:
        return EmbeddedStore(
            self.journal(),
            self.clock,
            StillTimers(),
            snapshot_every=self.every,
            memory_budget_mb=self.memory_mb,
        )

    def journal(self) -> Journal:
        if self.kind == "memory":
            return MemoryJournal()
        if self.kind == "sqlite":
            return SqliteJournal(str(self.folder / "bus.db"))
        return JsonFileJournal(str(self.folder / "bus"))

    def close(self) -> None:
        snapshot.PART_ENTRIES = PART_ENTRIES
        try:
            self.store.close()
        finally:
            shutil.rmtree(self.folder)

    def restart(self, crash: bool) -> None:
        """Close and open, or open what a killed process would leave. In memory there is only the check."""
        if self.kind != "memory":
            # What was only due was not answered, and would be done again later than the model did it.
            self.run(Advance("restarts", self.restarts, self.restarts + 1))
            self.restarts += 1
            copied = self.crashed_files() if crash else None
            self.store.close()
            if copied is not None:
                shutil.rmtree(self.folder)
                self.folder = copied
            self.store = self.open()
        same(self.store.check(), [], "the check of the store")

    def crashed_files(self) -> Path:
        copied = Path(tempfile.mkdtemp(dir=self.folder.parent))
        if self.kind == "jsonfile":
            shutil.copytree(self.folder / "bus", copied / "bus", ignore=shutil.ignore_patterns("*.lock"))
        for file in self.folder.glob("bus.db*"):
            if file.suffix in (".db", ".db-wal"):
                shutil.copy(file, copied / file.name)
        return copied

    # Both at once

    def tick(self, seconds: int = 0) -> None:
        """No two steps happen at one instant, so that deadlines of different steps are never the same."""
        self.now_ns += seconds * SECOND + 1_000
        self.tick_model()
        if self.model.has_ties:
            self.compare()  # A verb that follows may need to know which message came first.

    def tick_model(self) -> None:
        self.model.tick(self.now_ns)
        if self.model.is_undecided:
            raise Undecided

    def both(self, wanted: Callable[[], Any], asked: Callable[[], Any]) -> tuple[Any, Any] | None:
        """What the model and what the store answer; None if both raise the same error."""
        try:
            expected = wanted()
        except BusError as error:
            try:
                answer = asked()
            except BusError as other:
                same(type(other), type(error), f"the model raises {error!r}, the store {other!r}")
                return None
            raise AssertionError(f"the model raises {error!r}, the store answers {answer!r}") from error
        return expected, asked()

    def run(self, *commands: Command) -> list[object]:
        return self.store.apply(commands).wait(ANSWER_S)

    def make(self, name: str, rules: ModelRules) -> None:
        self.tick()
        self.model.make(name, rules)
        self.run(Declare(name, kind_of(name), settings_of(rules, kind_of(name))))

    def change(self, name: str, rules: ModelRules) -> None:
        self.model.change(name, rules)
        self.run(Declare(name, kind_of(name), settings_of(rules, kind_of(name)), update=True))

    def names(self, wanted: Callable[[ModelQueue], bool]) -> list[str]:
        return [name for name, queue in self.model.queues.items() if wanted(queue)]

    # Comparing

    def compare(self) -> None:
        # The store does what is due before it looks. A message that is abandoned after its time to live is due at once.
        self.tick_model()
        infos = {info.name: info for info in self.store.entities().wait(ANSWER_S)}
        same(sorted(infos), sorted(self.model.queues), "entities")
        for name, queue in self.model.queues.items():
            records = {each.sequence: each for each in self.store.list_messages(name, 0, 1_000).wait(ANSWER_S)}
            peeked = self.store.peek(name, 0, 1_000).wait(ANSWER_S)
            found = {each.sequence: (each, records[each.sequence]) for each in peeked}
            if self.model.has_ties:
                adopt(queue, found)
            wanted = {sequence: shape(queue, queue.messages[sequence]) for sequence in sorted(queue.messages)}
            same({sequence: seen(queue, each) for sequence, each in found.items()}, wanted, f"messages of {name}")
            same(list(found), list(wanted), f"the order of the messages of {name}")
            info = infos[name]
            states = [message.state for message in queue.messages.values()]
            counts = [states.count(state) for state in ("active", "locked", "scheduled", "deferred")]
            same([info.active, info.locked, info.scheduled, info.deferred], counts, f"the counts of {name}")
            same(info.last_sequence, queue.sequence, f"the last sequence of {name}")
        self.model.has_ties = False


Peeked = tuple[Claimed, MessageRecord]


def same(found: object, wanted: object, what: str) -> None:
    """pytest explains no assertion of a module that holds no tests."""
    if found != wanted:
        raise AssertionError(f"{what}:\n  the store  {found}\n  the model  {wanted}")


def adopt(queue: ModelQueue, found: dict[int, Peeked]) -> None:
    """Take over which message came first where that is not promised: what was stored at one instant, by deadlines."""
    for tie in {message.tie for message in queue.messages.values() if message.tie}:
        messages = [message for message in queue.messages.values() if message.tie == tie]
        for sequence in sorted(message.sequence for message in messages):
            peeked = found.get(sequence)
            alike = [each for each in messages if peeked is not None and shape(queue, each) == seen(queue, peeked)]
            if not alike:
                raise AssertionError(
                    f"{queue.name} #{sequence} is {peeked and seen(queue, peeked)}, not one of {messages}"
                )
            messages.remove(alike[0])
            alike[0].sequence, alike[0].tie = sequence, 0
    queue.messages = {
        message.sequence: message for message in sorted(queue.messages.values(), key=lambda each: each.sequence)
    }


def shape(queue: ModelQueue, message: ModelMessage) -> tuple[object, ...]:
    """All that there is to know about a message of the model, but for its place."""
    timed = message.state == "scheduled" or (message.state == "locked" and not queue.rules.by_session)
    return (
        message.text,
        message.state,
        message.count,
        message.priority,
        message.session,
        message.correlation,
        dict(message.headers),
        message.expires_ns,
        message.until_ns if timed else 0,
        message.hops,
    )


def seen(queue: ModelQueue, peeked: Peeked) -> tuple[object, ...]:
    """The same of a message of the store."""
    claimed, record = peeked
    message = message_of(claimed)
    state = STATE_NAMES[claimed.state]
    timed = state == "scheduled" or (state == "locked" and not queue.rules.by_session)
    return (
        str(message.body),
        state,
        claimed.delivery_count,
        claimed.priority,
        claimed.who.session_id,
        message.correlation_id,
        {name: value for name, value in message.headers.items() if name != DESCRIPTION_HEADER},
        claimed.expires_ns,
        (record.scheduled_ns or record.locked_until_ns) if timed else 0,
        record.hops,
    )
