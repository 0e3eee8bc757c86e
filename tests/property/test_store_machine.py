"""Stores against the model, step by step: sends, settlements, sessions, batches, time, restarts and crashes.

Time only moves by the steps, and nothing runs in the background: what is due is done by the next verb, at the
same instant in the store and in the model. A crash is a copy of the files after an acknowledged step, opened again.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.crash.power import StillTimers
from unibus.clock import Clock
from unibus.core.codec.codec import encode
from unibus.core.envelope.message import Message
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import (
    ABANDON,
    BY_TOKEN,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    LEAVE_SESSION,
    RENEW_SESSION,
    SET_SESSION_STATE,
    Cancel,
    Command,
    Declare,
    Drop,
    Move,
    Remove,
    Renew,
    Send,
    SendResult,
    SessionCommand,
    Settle,
)
from unibus.core.lifecycle.envelope import message_of
from unibus.core.lifecycle.state.apply import replay
from unibus.core.lifecycle.state.changes import MessageRef, Settings
from unibus.core.lifecycle.state.deadlines import NEVER
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION, TOPIC
from unibus.core.lifecycle.state.ready_queue import ReadyQueue
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.states import GONE, STATE_NAMES
from unibus.errors import BusError
from unibus.stores.engine import snapshot
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.store import ClaimRequest, SessionLock
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.misbehaving_store import MisbehavingStore
from unibus.testing.model import SECOND, ModelMessage, ModelRules, ModelSend, ModelStore

PART_ENTRIES = snapshot.PART_ENTRIES
START_NS = 1_700_000_000 * SECOND
ANSWER_S = 20.0
REMEMBERED = 12  # Locks, old ones included, that a step may try.

SHORT = ModelRules(lock_ns=10 * SECOND, deliveries_max=2)
WORLD: dict[str, ModelRules] = {
    "q": ModelRules(10 * SECOND, 2, 40 * SECOND, 20 * SECOND, knows_ids=True, dead_letters_expired=True),
    "f": ModelRules(10 * SECOND, 2, by_priority=False, dead_letters_to="g"),
    "g": SHORT,
    "s": ModelRules(10 * SECOND, 3, 40 * SECOND, by_session=True),
    "w": ModelRules(ttl_ns=30 * SECOND, forward_to="g"),
    "t": ModelRules(is_topic=True),
    "t/Subscriptions/a": SHORT,
    "t/Subscriptions/b": ModelRules(forward_to="f"),
    "t/Subscriptions/s": ModelRules(10 * SECOND, 3, by_session=True),
}
SENDABLE = ("q", "f", "g", "s", "w", "t")
QUEUES = ("q", "f", "g", "t/Subscriptions/a", sub_queue("q"), sub_queue("g"), sub_queue("s"))
WITH_SESSIONS = ("s", "t/Subscriptions/s")
LOOSE = frozenset({"g", *(sub_queue(name) for name in WORLD)})
"""Where messages arrive whose locks ended at one instant: which of them is first is not specified."""

names = st.sampled_from(SENDABLE)
queues = st.sampled_from(QUEUES)
picks = st.integers(0, REMEMBERED - 1)
steps_s = st.sampled_from([0, 1, 5, 10, 15, 20, 41, 700])


@dataclass(frozen=True)
class Lock:
    entity: str
    sequence: int
    token: bytes


@dataclass(frozen=True)
class HeldSession:
    entity: str
    id: str
    token: bytes

    @property
    def proof(self) -> tuple[str, bytes]:
        return self.id, self.token


def settings_of(rules: ModelRules) -> Settings:
    given: Settings = {
        "lock_duration": rules.lock_ns / 1e9,
        "max_delivery_count": rules.deliveries_max,
        "default_ttl": rules.ttl_ns / 1e9 if rules.ttl_ns else None,
        "dedup_window": rules.window_ns / 1e9 if rules.knows_ids else None,
        "ordering": "priority" if rules.by_priority else "sequence",
        "requires_session": rules.by_session,
        "dead_letter_on_expiration": rules.dead_letters_expired,
    }
    if rules.forward_to:
        given["forward_to"] = rules.forward_to
    if rules.dead_letters_to:
        given["forward_dead_letters_to"] = rules.dead_letters_to
    return given


def seen(claimed: Claimed) -> tuple[str, str, int, int]:
    body = message_of(claimed).body
    return str(body), STATE_NAMES[claimed.state], claimed.delivery_count, claimed.priority


def summary(message: ModelMessage) -> tuple[str, str, int, int]:
    return message.text, message.state, message.count, message.priority


@st.composite
def posts(draw: st.DrawFn) -> dict[str, Any]:
    """A send without its text and its instant."""
    return {
        "priority": draw(st.sampled_from([0, 50, 50, 200])),
        "session": draw(st.sampled_from([None, "x", "y"])),
        "ttl_s": draw(st.sampled_from([0, 0, 5, 25])),
        "delay_s": draw(st.sampled_from([0, 0, 0, 5, 15])),
        "key": draw(st.sampled_from([None, None, "k1", "k2"])),
    }


class Machine(RuleBasedStateMachine):
    """The steps. Subclasses say what to open."""

    crashes: ClassVar[bool] = False
    late: ClassVar[int | None] = None
    """The seed of a store whose answers are late, lost and asked for again."""

    def open_store(self) -> EmbeddedStore:
        raise NotImplementedError

    def opened(self) -> EmbeddedStore | MisbehavingStore:
        self.real = self.open_store()
        return self.real if self.late is None else MisbehavingStore(self.real, late=self.late)

    @initialize(every=st.sampled_from([1, 3, 8, 1000]), part=st.sampled_from([1, 2, 500]), tiny=st.booleans())
    def begin(self, every: int, part: int, tiny: bool) -> None:
        self.every, self.part, self.memory_mb = every, part, 0.0001 if tiny else 1.0
        self.now_ns = START_NS
        self.clock = Clock(lambda: self.now_ns, lambda: self.now_ns)
        self.sent = 0
        self.locks: list[Lock] = []
        self.sessions: list[HeldSession] = []
        self.scheduled: list[tuple[str, int]] = []
        self.model = ModelStore()
        snapshot.PART_ENTRIES = part
        self.folder = Path(tempfile.mkdtemp(dir=memory_disk()))
        self.store = self.opened()
        self.real._state.by_token(b"")  # Makes the index of tokens, which every step has to keep.
        for name in WORLD:
            self.make(name)

    def teardown(self) -> None:
        snapshot.PART_ENTRIES = PART_ENTRIES
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    # Both at once

    def tick(self) -> None:
        # No two steps happen at one instant, so that deadlines of different steps are never the same.
        self.now_ns += 1_000
        self.model.tick(self.now_ns)

    def both(self, wanted: Callable[[], Any], asked: Callable[[], Any]) -> tuple[Any, Any] | None:
        """What the model and what the store say; None if both refuse."""
        self.tick()
        try:
            expected = wanted()
        except BusError as error:
            with pytest.raises(type(error)):
                asked()
            return None
        return expected, asked()

    def run(self, *commands: Command) -> list[object]:
        return self.store.apply(commands).wait(ANSWER_S)

    def make(self, name: str) -> None:
        rules = WORLD[name]
        self.tick()
        self.model.make(name, rules)
        kind = TOPIC if rules.is_topic else SUBSCRIPTION if "/" in name else QUEUE
        self.run(Declare(name, kind, settings_of(rules)))

    # Sending

    def model_send(self, fields: dict[str, Any]) -> ModelSend:
        self.sent += 1
        # Never two at one instant: which of them would be first in a third entity is not specified.
        visible_ns = self.now_ns + fields["delay_s"] * SECOND + self.sent if fields["delay_s"] else 0
        text = f"m{self.sent}"
        return ModelSend(
            text, fields["priority"], fields["session"], fields["ttl_s"] * SECOND, visible_ns, fields["key"]
        )

    def command(self, name: str, sent: ModelSend) -> Send:
        data = encode(Message.new(name, sent.text, sent.priority))
        command = Send(name, MessageRef(sent.text, len(data), sent.session), data, sent.priority)
        command.ttl_ns, command.visible_ns, command.dedup_key = sent.ttl_ns, sent.visible_ns, sent.key
        return command

    @rule(name=names, fields=posts())
    def send(self, name: str, fields: dict[str, Any]) -> None:
        sent = self.model_send(fields)
        found = self.both(lambda: self.model.send(name, sent), lambda: self.run(self.command(name, sent)))
        if found is not None:
            sequence, [result] = found
            assert (result.sequence, result.duplicate) == (sequence, sequence == 0)
            if sent.visible_ns:
                self.scheduled = [*self.scheduled, (name, sequence)][-REMEMBERED:]

    @rule(sends=st.lists(st.tuples(names, posts()), min_size=1, max_size=6))
    def send_together(self, sends: list[tuple[str, dict[str, Any]]]) -> None:
        made = [(name, self.model_send(fields)) for name, fields in sends]
        found = self.both(
            lambda: self.model.together([lambda each=each: self.model.send(*each) for each in made], made),
            lambda: self.run(*[self.command(name, sent) for name, sent in made]),
        )
        if found is not None:
            assert [result.sequence for result in found[1]] == found[0]

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        if self.scheduled:
            name, sequence = self.scheduled[pick % len(self.scheduled)]
            self.both(lambda: self.model.cancel(name, sequence), lambda: self.run(Cancel(name, sequence)))

    # Receiving

    def received(self, name: str, messages: list[ModelMessage], claims: list[Claimed], lock: bool) -> None:
        assert [each.text for each in messages] == [str(message_of(each).body) for each in claims]
        for message, claimed in zip(messages, claims, strict=True):
            assert (message.count + 1, message.sequence) == (claimed.delivery_count, claimed.sequence)
            if lock:
                self.model.lock(name, message, claimed.token)
                self.locks = [*self.locks, Lock(name, claimed.sequence, claimed.token)][-REMEMBERED:]
            else:
                self.model.take(name, message)

    @rule(name=queues, count=st.integers(1, 4), lock=st.sampled_from([True, True, True, False]))
    def claim(self, name: str, count: int, lock: bool) -> None:
        if name in self.model.queues:
            request = ClaimRequest(name, count, lock)
            found = self.both(lambda: self.model.claim(name, count), lambda: self.store.claim(request).wait(ANSWER_S))
            if found is not None:
                self.received(name, *found, lock)

    @rule(name=st.sampled_from(["q", "f", "g"]), pick=picks, several=st.booleans())
    def receive_deferred(self, name: str, pick: int, several: bool) -> None:
        deferred = [each.sequence for each in self.model.queues[name].messages.values() if each.state == "deferred"]
        sequences = deferred[pick % len(deferred) :][: 2 if several else 1] if deferred else [pick + 1]
        request = ClaimRequest(name, sequences=tuple(sequences))
        found = self.both(
            lambda: self.model.deferred(name, sequences), lambda: self.store.claim(request).wait(ANSWER_S)
        )
        if found is not None:
            self.received(name, *found, True)

    # Settling

    def settlement(
        self, verb: int, lock: Lock, delay_s: int, by_token: bool = False
    ) -> tuple[Callable[[], object], Command]:
        # Where the entity is named too, an unknown one is the same error in both ways.
        command = Settle(verb, lock.entity, BY_TOKEN if by_token else lock.sequence, lock.token)
        command.delay_ns = delay_s * SECOND
        where = (lock.entity, lock.sequence, lock.token)
        model = self.model
        wanted: dict[int, Callable[[], object]] = {
            COMPLETE: lambda: model.complete(*where),
            ABANDON: lambda: model.abandon(*where, delay_s * SECOND),
            DEFER: lambda: model.defer(*where),
            DEAD_LETTER: lambda: model.dead_letter(*where),
        }
        return wanted[verb], command

    @precondition(lambda self: self.locks)
    @rule(
        verb=st.sampled_from([COMPLETE, ABANDON, DEFER, DEAD_LETTER]),
        pick=picks,
        delay_s=st.sampled_from([0, 0, 5]),
        by_token=st.booleans(),
    )
    def settle(self, verb: int, pick: int, delay_s: int, by_token: bool) -> None:
        wanted, command = self.settlement(verb, self.locks[pick % len(self.locks)], delay_s, by_token)
        self.both(wanted, lambda: self.run(command))

    @precondition(lambda self: self.locks)
    @rule(pick=picks, by_token=st.booleans())
    def renew(self, pick: int, by_token: bool) -> None:
        lock = self.locks[pick % len(self.locks)]
        if lock.entity not in WITH_SESSIONS:
            found = self.both(
                lambda: self.model.renew(lock.entity, lock.sequence, lock.token),
                lambda: self.run(Renew(lock.entity, BY_TOKEN if by_token else lock.sequence, lock.token)),
            )
            assert found is None or found[1] == [found[0]]

    @rule(
        sends=st.lists(st.tuples(names, posts()), max_size=3),
        settles=st.lists(st.tuples(st.sampled_from([COMPLETE, ABANDON, DEFER, DEAD_LETTER]), picks), max_size=3),
        leaves=st.booleans(),
    )
    def transaction(
        self, sends: list[tuple[str, dict[str, Any]]], settles: list[tuple[int, int]], leaves: bool
    ) -> None:
        steps: list[Callable[[], object]] = []
        commands: list[Command] = []
        if leaves and self.sessions:
            wanted, command = self.session_step(LEAVE_SESSION, self.sessions[-1])
            steps, commands = [wanted], [command]
        for verb, pick in settles if self.locks else []:
            wanted, command = self.settlement(verb, self.locks[pick % len(self.locks)], 0)
            steps.append(wanted)
            commands.append(command)
        made = [(name, self.model_send(fields)) for name, fields in sends]
        steps += [lambda each=each: self.model.send(*each) for each in made]
        commands += [self.command(name, sent) for name, sent in made]
        self.tick()
        try:
            expected = self.model.together(steps, made)
        except BusError:
            # Which of several errors is raised is up to the store.
            with pytest.raises(BusError):
                self.run(*commands)
            return
        results = self.run(*commands)
        sent = [(want, got) for want, got in zip(expected, results, strict=True) if isinstance(got, SendResult)]
        assert [want for want, _ in sent] == [got.sequence for _, got in sent]

    # By hand

    @rule(name=st.sampled_from((*QUEUES, "s")), pick=picks, into=st.sampled_from((*SENDABLE, "t/Subscriptions/a", "")))
    def move_or_remove(self, name: str, pick: int, into: str) -> None:
        """Into another entity, or away."""
        if name not in self.model.queues:
            return
        self.tick()
        self.store.peek(name, 0, 1).wait(ANSWER_S)  # What is due happens first, in both.
        there = sorted(self.model.queues[name].messages)
        sequence = there[pick % len(there)] if there else pick + 1
        if into:
            self.both(lambda: self.model.move(name, sequence, into), lambda: self.run(Move(name, sequence, into)))
        else:
            self.both(lambda: self.model.remove(name, sequence), lambda: self.run(Remove(name, sequence, "by hand")))

    # Sessions

    @rule(name=st.sampled_from(WITH_SESSIONS), session_id=st.sampled_from([None, "x", "y", "z"]))
    def accept(self, name: str, session_id: str | None) -> None:
        if session_id is None:
            self.tick()
            lock = self.store.accept(name, None, "").wait(ANSWER_S)
            free = self.model.free_sessions(name)
            assert lock.session_id in free if lock is not None else not free
        else:
            found = self.both(
                lambda: self.model.may_accept(name, session_id),
                lambda: self.store.accept(name, session_id, "").wait(ANSWER_S),
            )
            lock = None if found is None else found[1]
        if lock is not None:
            assert self.model.accept(name, lock.session_id, lock.token) == lock.until_ns
            self.sessions = [*self.sessions, HeldSession(name, lock.session_id, lock.token)][-REMEMBERED:]

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, count=st.integers(1, 3))
    def claim_in_session(self, pick: int, count: int) -> None:
        held = self.sessions[-1 - pick % len(self.sessions)]
        request = ClaimRequest(held.entity, count, session=held.proof)
        found = self.both(
            lambda: self.model.claim(held.entity, count, held.proof), lambda: self.store.claim(request).wait(ANSWER_S)
        )
        if found is not None:
            self.received(held.entity, *found, True)

    @precondition(lambda self: self.sessions)
    @rule(pick=picks)
    def receive_deferred_in_session(self, pick: int) -> None:
        held = self.sessions[-1 - pick % len(self.sessions)]
        queue = self.model.queues[held.entity]
        sequences = [each.sequence for each in queue.messages.values() if each.state == "deferred"][:1] or [1]
        request = ClaimRequest(held.entity, session=held.proof, sequences=tuple(sequences))
        found = self.both(
            lambda: self.model.deferred(held.entity, sequences, held.proof),
            lambda: self.store.claim(request).wait(ANSWER_S),
        )
        if found is not None:
            self.received(held.entity, *found, True)

    def session_step(self, verb: int, held: HeldSession) -> tuple[Callable[[], object], Command]:
        command = SessionCommand(verb, held.entity, held.id, held.token)
        command.state = f"state {self.now_ns}".encode() if self.now_ns % 3_000 else None
        model = self.model
        wanted: dict[int, Callable[[], object]] = {
            RENEW_SESSION: lambda: model.renew_session(held.entity, held.proof),
            LEAVE_SESSION: lambda: model.leave(held.entity, held.proof),
            SET_SESSION_STATE: lambda: model.set_state(held.entity, held.proof, command.state),
        }
        return wanted[verb], command

    @precondition(lambda self: self.sessions)
    @rule(verb=st.sampled_from([RENEW_SESSION, LEAVE_SESSION, SET_SESSION_STATE]), pick=picks)
    def change_session(self, verb: int, pick: int) -> None:
        wanted, command = self.session_step(verb, self.sessions[-1 - pick % len(self.sessions)])
        found = self.both(wanted, lambda: self.run(command))
        assert found is None or verb != RENEW_SESSION or found[1] == [found[0]]

    # Time and accidents

    @rule(seconds=steps_s)
    def time_passes(self, seconds: int) -> None:
        self.now_ns += seconds * SECOND
        self.tick()

    @rule(name=st.sampled_from(["q", "g", "s", "w", "t/Subscriptions/a"]))
    def make_anew(self, name: str) -> None:
        self.tick()
        self.model.drop(name)
        self.run(Drop(name))
        self.make(name)

    @rule()
    def restart(self) -> None:
        if self.crashes:
            self.store.close()
            self.store = self.opened()

    @rule()
    def crash(self) -> None:
        if self.crashes:
            copied = Path(tempfile.mkdtemp(dir=memory_disk()))
            self.copy_files(copied)
            self.store.close()
            shutil.rmtree(self.folder)
            self.folder = copied
            self.store = self.opened()

    def copy_files(self, copied: Path) -> None:
        """What a crash would leave."""
        for file in self.folder.glob("bus.db*"):
            if file.suffix in (".db", ".db-wal"):
                shutil.copy(file, copied / file.name)

    # What must hold after every step

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "store"):
            return
        # The store does what is due before it looks. A message that is abandoned after its time to live is due at once.
        self.model.tick(self.now_ns)
        infos = {info.name: info for info in self.store.entities().wait(ANSWER_S)}
        assert infos.keys() == self.model.queues.keys()
        for name, queue in self.model.queues.items():
            found = self.store.peek(name, 0, 1_000).wait(ANSWER_S)
            if name in LOOSE:
                self.adopt(name, found)
            assert [(each.sequence, *seen(each)) for each in found] == [
                (each.sequence, *summary(each))
                for each in sorted(queue.messages.values(), key=lambda each: each.sequence)
            ]
            self.peeks_agree(name, [each.sequence for each in found], found)
            info = infos[name]
            states = [each.state for each in queue.messages.values()]
            counts = (info.active, info.locked, info.scheduled, info.deferred)
            assert counts == tuple(states.count(state) for state in ("active", "locked", "scheduled", "deferred"))
            assert info.size_bytes == sum(each.who.size for each in found)
            assert info.last_sequence == queue.sequence

    def peeks_agree(self, name: str, sequences: list[int], found: list[Claimed]) -> None:
        """From the middle, and session by session: the same messages in the same order."""
        middle = len(sequences) // 2
        for first in sequences[middle : middle + 1]:
            seen_from = self.store.peek(name, first, 1_000).wait(ANSWER_S)
            assert [each.sequence for each in seen_from] == sequences[middle:]
        for session_id in {each.who.session_id for each in found} if name in WITH_SESSIONS else ():
            wanted = [each.sequence for each in found if each.who.session_id == session_id]
            own = self.store.peek(name, 0, 1_000, session_id).wait(ANSWER_S)
            assert [each.sequence for each in own] == wanted
        if name in WITH_SESSIONS:
            stated = {key for key, held in self.model.queues[name].sessions.items() if held.state is not None}
            listed = stated | {each.who.session_id for each in found if each.who.session_id is not None}
            assert self.store.catalog.sessions(name, 0, 0, 1_000).wait(ANSWER_S) == sorted(listed)

    def adopt(self, name: str, found: list[Claimed]) -> None:
        """Take over which of the messages has which sequence, where that is not promised."""
        queue = self.model.queues[name]
        assert sorted(queue.messages) == sorted(each.sequence for each in found)
        sequences = {seen(each)[0]: each.sequence for each in found}
        if len(sequences) == len(found) and sequences.keys() == {each.text for each in queue.messages.values()}:
            for message in queue.messages.values():
                message.sequence = sequences[message.text]
            queue.messages = {each.sequence: each for each in queue.messages.values()}

    @invariant()
    def sessions_have_the_same_state(self) -> None:
        for held in self.sessions[-2:] if hasattr(self, "sessions") else []:
            found = self.both(
                lambda held=held: self.model.state(held.entity, held.proof),
                lambda held=held: self.store.session_state(self.as_lock(held)).wait(ANSWER_S),
            )
            assert found is None or found[0] == found[1]

    def as_lock(self, held: HeldSession) -> SessionLock:
        return SessionLock(held.entity, held.id, held.token, 0)


def picture(state: StoreState) -> object:
    """The whole state, as far as it is the state. The lines are emptied by this."""
    state.by_token(b"")
    assert state.tokens is not None
    locks = {token: (entry.entity.number, entry.sequence) for token, entry in state.tokens.items()}
    return (
        state.retired,
        locks,
        {
            entity.number: (
                (entity.name, entity.kind, entity.sequence, entity.settings.given, entity.size_bytes),
                (entity.active, entity.locked, entity.scheduled, entity.deferred),
                [(sequence, entry.as_saved(), entry.data) for sequence, entry in entity.entries.items()],
                [(session.as_saved(), line(session.waiting)) for session in entity.sessions.values()],
                (line(entity.waiting), set(entity.ready), {} if entity.marks is None else dict(entity.marks.items())),
            )
            for entity in state.entities.values()
        },
    )


def line(waiting: ReadyQueue) -> list[int]:
    found = []
    while (placed := waiting.pop()) is not None:
        found.append(placed.sequence)
        placed.state = GONE
    return found


class MemoryMachine(Machine):
    def open_store(self) -> EmbeddedStore:
        self.journal = MemoryJournal()
        return EmbeddedStore(self.journal, self.clock, StillTimers())

    def teardown(self) -> None:
        """The recorded changes, replayed in their order, make the same state."""
        if hasattr(self, "store"):
            self.store.peek("q", 0, 1).wait(ANSWER_S)
            replayed = StoreState(NEVER)
            for _, change in self.journal.changes_after(0):
                replay(replayed, change)
            assert picture(replayed) == picture(self.real._state)
        super().teardown()


class SqliteMachine(Machine):
    crashes = True

    def open_store(self) -> EmbeddedStore:
        return EmbeddedStore(
            SqliteJournal(str(self.folder / "bus.db")),
            self.clock,
            StillTimers(),
            snapshot_every=self.every,
            memory_budget_mb=self.memory_mb,
        )

    @invariant()
    def history_has_no_gap(self) -> None:
        if hasattr(self, "store"):
            rows, safe = self.store.history.events_after(0, 100_000)
            assert [row.seq for row in rows] == list(range(1, safe + 1))


class JsonFileMachine(SqliteMachine):
    def open_store(self) -> EmbeddedStore:
        return EmbeddedStore(
            JsonFileJournal(str(self.folder / "bus")),
            self.clock,
            StillTimers(),
            snapshot_every=self.every,
            memory_budget_mb=self.memory_mb,
        )

    def copy_files(self, copied: Path) -> None:
        shutil.copytree(self.folder / "bus", copied / "bus", ignore=shutil.ignore_patterns("*.lock"))


class LateMemoryMachine(MemoryMachine):
    late = 1


class LateSqliteMachine(SqliteMachine):
    late = 2


class LateJsonFileMachine(JsonFileMachine):
    late = 3


def memory_disk() -> str | None:
    """Syncs cost nothing there; what a sync is worth is not the subject here."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


MODEST = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


# Classes of their own: hypothesis keeps one TestCase for each machine, and setting something on that one sets it
# for everybody who runs the machine. Soak does, and is collected in the same run.
@pytest.mark.unchecked  # Its teardown empties the ready queues, after it has checked more than that.
class TestMemory(MemoryMachine.TestCase):
    settings = MODEST


class TestSqlite(SqliteMachine.TestCase):
    settings = MODEST


class TestJsonFile(JsonFileMachine.TestCase):
    settings = settings(MODEST, max_examples=6)


A_FEW = settings(MODEST, max_examples=4, stateful_step_count=30)


@pytest.mark.unchecked
class TestLateMemory(LateMemoryMachine.TestCase):
    settings = A_FEW


class TestLateSqlite(LateSqliteMachine.TestCase):
    settings = A_FEW


class TestLateJsonFile(LateJsonFileMachine.TestCase):
    settings = A_FEW
