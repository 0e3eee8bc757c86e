"""Random work on a store, from a seed: what a busy program would do, with every call announced to a ledger first.

Several calls may be on their way at once, as they are with many tasks: they are written as one group.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.crash.ledger import (
    ABANDONED,
    DEAD,
    LOCK_S,
    REASON,
    Mark,
    Op,
    Place,
    Taken,
    body_of,
    crc_of,
    position_mark,
)
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    LEAVE_SESSION,
    SET_SESSION_STATE,
    Advance,
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
from unibus.core.lifecycle.state.changes import MessageRef, Settings
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION, TOPIC
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED
from unibus.errors import BusError, EntityNotFound, StoreFailed, StoreFull
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.message_record import MessageRecord
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import ClaimRequest, SessionLock
from unibus.testing.model import SECOND

GUARD_S = 30.0
"""The longest wait: a result that does not arrive is an error."""

DELIVERIES_MAX = 4
BULK = 700
"""More than one piece of a snapshot holds."""

QUEUE_SETTINGS: Settings = {"lock_duration": LOCK_S, "max_delivery_count": DELIVERIES_MAX}
COPIES = ("topic/Subscriptions/one", "topic/Subscriptions/two")
ENTITIES: tuple[tuple[str, int, Settings], ...] = (
    ("a", QUEUE, QUEUE_SETTINGS),
    ("b", QUEUE, {**QUEUE_SETTINGS, "ordering": "sequence"}),
    ("topic", TOPIC, {}),
    (COPIES[0], SUBSCRIPTION, QUEUE_SETTINGS),
    (COPIES[1], SUBSCRIPTION, QUEUE_SETTINGS),
    ("sessions", QUEUE, {**QUEUE_SETTINGS, "requires_session": True}),
    ("mended", QUEUE, QUEUE_SETTINGS),
)
RECEIVED_FROM = ("a", "b", *COPIES, "a" + DEAD, "b" + DEAD, "mended")
SESSIONS = ("s1", "s2", "s3")


class Book(Protocol):
    """The recorder of calls: a ledger in this process, or one behind a pipe."""

    def begin(self, op: Op) -> None: ...

    def acked(self, op: Op) -> None: ...

    def refused(self, op: Op) -> None: ...


@dataclass
class Holding:
    """A message that is locked for us."""

    place: Place
    sequence: int
    token: bytes
    until_ns: int
    count: int


class Worker:
    """`seed` makes its ids and names its own; `lane` separates its calls from those of other threads."""

    def __init__(self, store: EmbeddedStore, state: Book, seed: str, lane: int = 0) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self._state = state
        self._prefix = seed
        self._lane = lane
        self._count = 0
        self._flight: list[tuple[Op, Pending[object], Callable[[object], None]]] = []
        self._holdings: list[Holding] = []
        self._deferred: list[tuple[str, int]] = []
        self._scheduled: list[tuple[Place, int]] = []
        self._session: SessionLock | None = None
        self._extra: list[str] = []

    def prepare(self) -> None:
        """Make every entity, in case it is not there yet."""
        there = self.entities()
        for name, kind, settings in ENTITIES:
            if name not in there:
                self._call(Op(self._lane, marks=[("declared", name, "", "")]), [Declare(name, kind, settings)])
                self.flush()

    def entities(self) -> set[str]:
        return {info.name for info in self.store.entities().wait(GUARD_S)}

    def step(self) -> None:
        """One call; now and then all answers are waited for."""
        kinds, weights = zip(*_WEIGHTS, strict=True)
        self.chance.choices(kinds, weights)[0](self)
        if len(self._flight) > 5 or self.chance.random() < 0.5:
            self.flush()

    def flush(self) -> None:
        """Wait for every answer. StoreFailed or StoreFull once all of them are in."""
        flight, self._flight = self._flight, []
        failure: BusError | None = None
        for op, pending, then in flight:
            try:
                value = pending.wait(GUARD_S)
            except StoreFull as error:
                self._state.refused(op)  # Not stored, and that is certain.
                failure = error
                continue
            except StoreFailed as error:
                failure = error
                continue
            then(value)
            self._state.acked(op)
        if failure is not None:
            raise failure

    # Calls

    def _call(self, op: Op, commands: Sequence[Command], then: Callable[[list[object]], None] | None = None) -> None:
        level = Durability.D2 if op.synced else Durability.D1

        def ask() -> Pending[list[object]]:
            return self.store.apply(commands, level)

        self._announce(op, ask, lambda results: then(results) if then is not None else None)

    def _announce(self, op: Op, ask: Callable[[], Pending], then: Callable) -> None:  # type: ignore[type-arg]
        self._state.begin(op)
        try:
            pending = ask()
        except StoreFailed:
            raise
        except BusError:
            self._state.refused(op)
            return
        self._flight.append((op, pending, then))

    def _name(self, kind: str = "m") -> str:
        self._count += 1
        return f"{kind}{self._prefix}.{self._lane}.{self._count}"

    def _op(self, marks: list[Mark]) -> Op:
        return Op(self._lane, synced=self.chance.random() < 0.7, marks=marks)

    # Sends

    def _send(self, entity: str) -> tuple[Send, list[Mark], list[Place]]:
        message_id = self._name()
        data = body_of(message_id)
        session = self.chance.choice(SESSIONS) if entity == "sessions" else None
        command = Send(entity, MessageRef(message_id, len(data), session), data, self.chance.choice((10, 20, 30)))
        if entity == "topic":
            marks = [("published", entity, message_id, "")] + [("copied", copy, message_id, "") for copy in COPIES]
            return command, marks, [(copy, message_id) for copy in COPIES]
        return command, [("send", entity, message_id, "")], [(entity, message_id)]

    def send(self) -> None:
        entity = self.chance.choice(("a", "a", "b", "topic", "sessions", *self._extra))
        command, marks, places = self._send(entity)
        if entity in ("a", "b"):
            luck = self.chance.random()
            if luck < 0.2:
                command.dedup_key = f"key-{self.chance.randrange(8)}"
            elif luck < 0.3:
                command.visible_ns = self.store.now_ns() + self.chance.randrange(1, 20) * SECOND
            elif luck < 0.4:
                command.ttl_ns = self.chance.randrange(1, 60) * SECOND
        op = self._op(marks)
        self._call(op, [command], lambda results: self._sent(op, results, [places], command.visible_ns > 0))

    def send_durably(self) -> None:
        """One message, and its answer at the highest level."""
        self.prepare()
        command, marks, places = self._send("a")
        op = Op(self._lane, marks=marks)
        self._call(op, [command], lambda results: self._sent(op, results, [places]))
        self.flush()

    def _sent(self, op: Op, results: list[object], places: list[list[Place]], scheduled: bool = False) -> None:
        sent = [result for result in results if isinstance(result, SendResult)]
        for result, there in zip(sent, places, strict=True):
            if not result.duplicate:
                op.stored += there
                if scheduled:
                    self._scheduled.append((there[0], result.sequence))

    def send_many(self) -> None:
        """To several entities at once: one batch."""
        self._batch([], self.chance.randrange(2, 6))

    def bulk(self) -> None:
        names = [self._name("tiny") for _ in range(BULK)]
        commands = [Send("a", MessageRef(name, len(body_of(name))), body_of(name), 20) for name in names]
        op = self._op([("send", "a", name, "") for name in names])
        self._call(op, commands, lambda results: self._sent(op, results, [[("a", name)] for name in names]))

    def transaction(self) -> None:
        """What was received is completed together with what is sent because of it."""
        self.flush()
        taken = [self._holdings.pop() for _ in range(min(len(self._holdings), self.chance.randrange(1, 4)))]
        self._batch(taken, self.chance.randrange(1, 4))

    def _batch(self, taken: list[Holding], sends: int) -> None:
        commands: list[Command] = []
        op = self._op([])
        for holding in taken:
            commands.append(self._settle(COMPLETE, holding, op))
        places: list[list[Place]] = []
        for _ in range(sends):
            command, marks, there = self._send(self.chance.choice(("a", "b", "topic", "sessions")))
            commands.append(command)
            op.marks += marks
            places.append(there)
        self._call(op, commands, lambda results: self._sent(op, results, places))

    # Claims

    def claim(self) -> None:
        channel = self.chance.choice((*RECEIVED_FROM, *self._extra))
        self.receive(channel, self.chance.choice((1, 1, 3, 10)), self.chance.random() < 0.85)

    def receive(self, channel: str, count: int, lock: bool = True, sequences: tuple[int, ...] = ()) -> Op:
        """Up to this many messages. The operation has what was taken once its result arrives."""
        op = Op(self._lane, self._name("c"), synced=not lock)
        session = (self._session.session_id, self._session.token) if channel == "sessions" and self._session else None
        request = ClaimRequest(channel, count, lock, op.name, session, sequences)
        self._announce(op, lambda: self.store.claim(request), lambda found: self._took(op, found))
        return op

    def _took(self, op: Op, found: list[Claimed]) -> None:
        for each in found:
            place = (each.entity, each.who.message_id)
            op.taken.append(Taken(*place, each.delivery_count, each.until_ns, crc_of(each.data)))
            if each.until_ns:
                op.marks.append(("delivered", *place, str(each.delivery_count)))
                self._holdings.append(Holding(place, each.sequence, each.token, each.until_ns, each.delivery_count))
            else:
                op.marks.append(("completed", *place, ""))

    def claim_deferred(self) -> None:
        if self._deferred:
            channel, sequence = self._deferred.pop()
            self.receive(channel, 1, True, (sequence,))

    # Settlements

    def _settle(self, verb: int, holding: Holding, op: Op) -> Settle:
        channel, message_id = holding.place
        command = Settle(verb, channel, holding.sequence, holding.token)
        if verb == COMPLETE:
            op.marks.append(("completed", channel, message_id, ""))
            if self.chance.random() < 0.3:
                command.processed_key = self._name("p")
                op.marks.append(("processed", channel, "", command.processed_key))
        elif verb == ABANDON:
            op.marks.append(("returned", channel, message_id, f"{holding.count} {ABANDONED}"))
            if self.chance.random() < 0.4:
                command.delay_ns = self.chance.randrange(1, 10) * SECOND
        elif verb == DEFER:
            op.marks.append(("deferred", channel, message_id, str(holding.count)))
        else:
            command.reason = REASON
            op.marks.append(("dead_lettered", channel, message_id, REASON))
            op.marks.append(("copied", channel.removesuffix(DEAD) + DEAD, message_id, ""))
        return command

    def settle(self) -> None:
        self.flush()
        if not self._holdings:
            return
        holding = self._holdings.pop(self.chance.randrange(len(self._holdings)))
        verbs = [COMPLETE] * 5 + [DEFER]
        if holding.count < DELIVERIES_MAX:
            verbs += [ABANDON] * 2
        if not holding.place[0].endswith(DEAD):
            verbs.append(DEAD_LETTER)
        op = self._op([])
        command = self._settle(self.chance.choice(verbs), holding, op)
        self._call(op, [command], lambda _: self._settled(op, command, holding.place))

    def _settled(self, op: Op, command: Settle, place: Place) -> None:
        if command.verb == DEFER:
            self._deferred.append((command.entity, command.sequence))
        elif command.verb == DEAD_LETTER:
            op.stored.append((place[0] + DEAD, place[1]))

    def complete_many(self) -> None:
        self.flush()
        taken, self._holdings = self._holdings, []
        op = self._op([])
        commands = [self._settle(COMPLETE, holding, op) for holding in taken if holding.until_ns > self.store.now_ns()]
        if commands:
            self._call(op, commands)

    def renew(self) -> None:
        self.flush()
        if self._holdings:
            holding = self.chance.choice(self._holdings)
            command = Renew(holding.place[0], holding.sequence, holding.token)
            op = self._op([])
            self._call(op, [command])

    def cancel(self) -> None:
        if self._scheduled:
            place, sequence = self._scheduled.pop()
            self._call(self._op([("cancelled", *place, "")]), [Cancel(place[0], sequence)])

    # By hand

    def mend(self) -> None:
        """Move some dead-lettered messages to another queue, together with a position."""
        self.flush()
        channel = self.chance.choice(("a", "b")) + DEAD
        letters = [entry for entry in self._waiting(channel) if entry.state == ACTIVE][: self.chance.randrange(1, 5)]
        name = f"mending {self._lane}"
        position = self.store.position(name).wait()
        op = self._op([("advanced", "", "", position_mark(name, position + 1))])
        commands: list[Command] = [Advance(name, position, position + 1)]
        stored: list[Place] = []
        for letter in letters:
            message_id = letter.who.message_id
            commands.append(Move(channel, letter.sequence, "mended"))
            op.marks += [("moved", channel, message_id, ""), ("copied", "mended", message_id, "")]
            stored.append(("mended", message_id))
        self._call(op, commands, lambda _: op.stored.extend(stored))

    def remove(self) -> None:
        self.flush()
        channel = self.chance.choice(("a", "mended", "b" + DEAD))
        waiting = [entry for entry in self._waiting(channel) if entry.state in (ACTIVE, DEFERRED)]
        if waiting:
            entry = self.chance.choice(waiting)
            op = self._op([("purged", channel, entry.who.message_id, "")])
            self._call(op, [Remove(channel, entry.sequence, "by hand")])

    def _waiting(self, channel: str) -> list[MessageRecord]:
        try:
            return self.store.list_messages(channel, count=1_000_000).wait()
        except EntityNotFound:
            return []

    # Sessions

    def session(self) -> None:
        self.flush()
        if self._session is None:
            self._accept()
        elif self.chance.random() < 0.5:
            self.receive("sessions", 3)
        else:
            self._work_in(self._session)

    def _accept(self) -> None:
        try:
            self._session = self.store.accept("sessions", None, "").wait(GUARD_S)
        except StoreFailed:
            raise
        except BusError:
            self._session = None

    def take_session(self, session_id: str) -> bytes | None:
        """Everything that waits in a session, for good. Gives its state."""
        self._session = lock = self.store.accept("sessions", session_id, "").wait(GUARD_S)
        assert lock is not None
        seen = self.store.peek("sessions", 0, 10**9).wait(GUARD_S)
        deferred = [each.sequence for each in seen if each.state == DEFERRED and each.who.session_id == session_id]
        self.receive("sessions", 1, False, tuple(deferred))
        self.receive("sessions", 1_000, lock=False)
        self.flush()
        self._session = None
        return self.store.session_state(lock).wait(GUARD_S)

    def _work_in(self, lock: SessionLock) -> None:
        verb = self.chance.choice((LEAVE_SESSION, SET_SESSION_STATE, SET_SESSION_STATE))
        command = SessionCommand(verb, "sessions", lock.session_id, lock.token)
        op = self._op([])
        commands: list[Command] = [command]
        if verb == LEAVE_SESSION:
            self._session = None
        else:
            # With a message: its event shows whether the batch took place.
            op.states[lock.session_id] = self._name("state")
            command.state = op.states[lock.session_id].encode()
            send, op.marks, places = self._send("a")
            commands.append(send)
            self._call(op, commands, lambda results: self._sent(op, results, [places]))
            return
        self._call(op, commands)

    # Entities

    def make(self) -> None:
        name = self._name("extra")
        self._call(self._op([("declared", name, "", "")]), [Declare(name, QUEUE, QUEUE_SETTINGS)])
        self.flush()
        self._extra.append(name)

    def drop(self) -> None:
        self.flush()
        if self._extra:
            name = self._extra.pop()
            self._holdings = [holding for holding in self._holdings if holding.place[0] != name]
            self._deferred = [each for each in self._deferred if each[0] != name]
            self._call(self._op([("dropped", name, "", "")]), [Drop(name)])

    # After a crash

    def inherit(self, other: "Worker") -> None:
        """Go on with what another worker held, as far as the store still knows it."""
        known = {
            (name, seen.sequence): seen.token
            for name in self.entities()
            for seen in self.store.peek(name, 0, 10**9).wait(GUARD_S)
        }
        self._holdings = [each for each in other._holdings if known.get((each.place[0], each.sequence)) == each.token]
        there = self.entities()
        self._extra = [name for name in other._extra if name in there]

    def check_holdings(self) -> list[str]:
        """Locks that have not ended must still be good for something: each is used."""
        wrong = []
        for holding in self._holdings:
            if holding.until_ns > self.store.now_ns() and holding.place[0] != "sessions":
                op = Op(self._lane)
                command = self._settle(COMPLETE, holding, op)
                self._call(op, [command])
                if not self._flight:
                    wrong.append(f"{holding} is not ours any more")
                self.flush()
        self._holdings = []
        return wrong


_WEIGHTS: tuple[tuple[Callable[[Worker], None], float], ...] = (
    (Worker.send, 30),
    (Worker.send_many, 8),
    (Worker.claim, 25),
    (Worker.settle, 20),
    (Worker.transaction, 8),
    (Worker.mend, 3),
    (Worker.remove, 1),
    (Worker.complete_many, 3),
    (Worker.claim_deferred, 3),
    (Worker.renew, 2),
    (Worker.cancel, 2),
    (Worker.session, 8),
    (Worker.make, 1),
    (Worker.drop, 1),
    (Worker.bulk, 0.3),
)


def drain(worker: Worker) -> None:
    """Take everything that waits or was deferred, for good. Sessions are taken by themselves."""
    for info in worker.store.entities().wait():
        if info.kind == "topic" or info.settings["requires_session"]:
            continue
        seen = worker.store.peek(info.name, 0, 10**9).wait(GUARD_S)
        deferred = tuple(each.sequence for each in seen if each.state == DEFERRED)
        if deferred:
            worker.receive(info.name, 1, False, deferred)
        while info.active:
            op = worker.receive(info.name, 1_000, lock=False)
            worker.flush()
            if not op.taken:
                break
    worker.flush()
