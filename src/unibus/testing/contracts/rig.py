"""Short helpers for tests of a store: each applies one command and waits for its result.

They use only the protocol `Store`, so the same tests run on every store.
"""

from collections.abc import Callable, Iterable
from typing import Final

import pytest

from unibus.core.codec.codec import encode
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Command,
    Declare,
    Drop,
    Renew,
    Send,
    SendResult,
    SessionCommand,
    Settle,
)
from unibus.core.lifecycle.envelope import message_of
from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION, TOPIC, subscription_path
from unibus.stores.seam.message_record import MessageRecord
from unibus.stores.seam.store import ClaimRequest, EntityInfo, SessionLock, Store
from unibus.stores.seam.store_view import OpenStoreView, all_messages
from unibus.testing.clock.virtual_clock import VirtualClock

SECOND: Final = 1_000_000_000
ANSWER_S: Final = 30.0
"""Of real time: a store that does not answer fails the test instead of hanging it."""

OpenStore = Callable[[VirtualClock], Store]


class RigEntities:
    """The clock, commands, and operations on entities."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock

    def now_ns(self) -> int:
        return self.clock.wall_ns()

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def run(self, *commands: Command) -> list[object]:
        return self.store.apply(commands).wait(ANSWER_S)

    def queue(self, name: str, **settings: str | int | float | bool | None) -> None:
        self.run(Declare(name, QUEUE, dict(settings)))

    def topic(self, name: str, **settings: str | int | float | bool | None) -> None:
        self.run(Declare(name, TOPIC, dict(settings)))

    def subscription(self, topic: str, name: str, **settings: str | int | float | bool | None) -> str:
        path = subscription_path(topic, name)
        self.run(Declare(path, SUBSCRIPTION, dict(settings)))
        return path

    def update(self, name: str, **settings: str | int | float | bool | None) -> None:
        self.run(Declare(name, QUEUE, dict(settings), update=True))

    def drop(self, name: str) -> None:
        self.run(Drop(name))

    def info(self, name: str) -> EntityInfo:
        return next(each for each in self.store.entities().wait(ANSWER_S) if each.name == name)


class Rig(RigEntities):
    """A store on a virtual clock."""

    # Messages in

    def send(self, entity: str, body: object = None, priority: int = 50, **fields: object) -> SendResult:
        [result] = self.run(sending(entity, body, priority, **fields))
        assert isinstance(result, SendResult)
        return result

    def fill(self, entity: str, bodies: Iterable[object], **fields: object) -> list[int]:
        return [self.send(entity, body, 50, **fields).sequence for body in bodies]

    # Messages out

    def claim(self, entity: str, count: int = 1, lock: bool = True) -> list[Claimed]:
        return self.store.claim(ClaimRequest(entity, count, lock)).wait(ANSWER_S)

    def one(self, entity: str) -> Claimed:
        [claimed] = self.claim(entity)
        return claimed

    def deferred(self, entity: str, *sequences: int) -> list[Claimed]:
        return self.store.claim(ClaimRequest(entity, sequences=sequences)).wait(ANSWER_S)

    def was_processed(self, entity: str, key: str) -> bool:
        """Whether a message with this id, sent now, is known as processed. The entity has no other ready messages."""
        self.send(entity, message_id=key)
        [claimed] = self.store.claim(ClaimRequest(entity, lock=False, asks_processed=True)).wait(ANSWER_S)
        return bool(claimed.was_processed)

    def drain(self, entity: str) -> list[object]:
        """Receive and remove all active messages; returns their bodies in order."""
        return bodies(self.claim(entity, 1_000, lock=False))

    def peek(self, entity: str, from_sequence: int = 0, count: int = 1_000) -> list[Claimed]:
        return self.store.peek(entity, from_sequence, count).wait(ANSWER_S)

    def messages(self) -> list[MessageRecord]:
        """The records of all messages, by entity and sequence."""
        return list(all_messages(OpenStoreView(self.store)))

    def dead(self, entity: str) -> list[Message]:
        return [message_of(message) for message in self.peek(sub_queue(entity))]

    def settle(self, verb: int, claimed: Claimed, **fields: object) -> None:
        self.run(settling(verb, claimed, **fields))

    def complete(self, claimed: Claimed) -> None:
        self.settle(COMPLETE, claimed)

    def abandon(self, claimed: Claimed, **fields: object) -> None:
        self.settle(ABANDON, claimed, **fields)

    def defer(self, claimed: Claimed) -> None:
        self.settle(DEFER, claimed)

    # Sessions

    def accept(self, entity: str, session_id: str | None = None) -> SessionLock:
        lock = self.store.accept(entity, session_id, "tester").wait(ANSWER_S)
        assert lock is not None
        return lock

    def claim_in(self, lock: SessionLock, count: int = 1, sequences: tuple[int, ...] = ()) -> list[Claimed]:
        request = ClaimRequest(lock.entity, count, session=(lock.session_id, lock.token), sequences=sequences)
        return self.store.claim(request).wait(ANSWER_S)

    def session(self, verb: int, lock: SessionLock, state: bytes | None = None) -> object:
        command = SessionCommand(verb, lock.entity, lock.session_id, lock.token)
        command.state = state
        return self.run(command)[0]

    # The whole store

    def events(self, after: int = 0) -> list[Event]:
        """The events of history without `applied`: a store that sends batches again gives each of them an id."""
        return [event for event in self.all_events(after) if event.kind != "applied"]

    def all_events(self, after: int = 0) -> list[Event]:
        """The events of history, read page by page as a reader does."""
        found: list[Event] = []
        while True:
            rows, safe = self.store.history.events_after(found[-1].seq if found else after, 7)
            if not rows:
                return found
            assert rows[-1].seq <= safe
            found += rows

    def picture(self) -> object:
        """The visible state of the store: two pictures are equal if nothing changed in between."""
        infos = self.store.entities().wait(ANSWER_S)
        held = {info.name: [seen(each) for each in self.peek(info.name)] for info in infos}
        return infos, held


def sending(entity: str, body: object = None, priority: int = 50, **fields: object) -> Send:
    """The command itself. Fields are those of Send, and `message_id` and `session_id`."""
    message = Message.new(entity, body, priority)
    if "dedup_key" in fields:
        message = message.with_fields({"dedup_key": fields["dedup_key"]})  # It is part of the encoded message, too.
    data = encode(message)
    message_id, session_id = fields.pop("message_id", message.id), fields.pop("session_id", None)
    assert isinstance(message_id, str)
    assert session_id is None or isinstance(session_id, str)
    command = Send(entity, MessageRef(message_id, len(data), session_id), data, priority)
    for name, value in fields.items():
        setattr(command, name, value)
    return command


def settling(verb: int, claimed: Claimed, **fields: object) -> Settle:
    command = Settle(verb, claimed.entity, claimed.sequence, claimed.token)
    for name, value in fields.items():
        setattr(command, name, value)
    return command


def bodies(claimed: Iterable[Claimed]) -> list[object]:
    return [message_of(each).body for each in claimed]


def headers(claimed: Claimed) -> dict[str, HeaderValue]:
    return dict(message_of(claimed).headers)


def seen(claimed: Claimed) -> tuple[object, ...]:
    return (claimed.sequence, claimed.state, claimed.delivery_count, claimed.data, claimed.overlay, claimed.expires_ns)


def every_settlement(claimed: Claimed, token: bytes) -> list[Command]:
    """Each command that ends or renews a lock, with a given token."""
    verbs = (COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE)
    settles: list[Command] = [Settle(verb, claimed.entity, claimed.sequence, token) for verb in verbs]
    return [*settles, Renew(claimed.entity, claimed.sequence, token)]


class Contract:
    """A part of the contract. The test class has a fixture `open_store`: a function from a clock to an open store."""

    @pytest.fixture
    def rig(self, open_store: OpenStore) -> "Iterable[Rig]":
        with VirtualClock() as clock:
            store = open_store(clock)
            yield Rig(store, clock)
            if store.health().ok:
                assert store.check() == []
            store.close()
