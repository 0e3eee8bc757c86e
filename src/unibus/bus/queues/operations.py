# mypyc: compiled
"""Durable operations of a bus, shared by MessageBus and SyncMessageBus: build commands and return the store's answer.

    send(entity, payload, fields) ──▶ checks ──▶ Send command ──▶ open transaction? ──no──▶ store.apply ──▶ Pending
                                                                       │yes
                                                                       ▼
                                                          collected; stored at its commit

Every operation returns a Pending: MessageBus awaits it, SyncMessageBus waits for it. Bad input raises before the store
is called, so nothing changes. Waiting for messages is in receivers.py, in two forms: for tasks and for threads.

A missing queue is created by the first send or receive, unless the bus is strict.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, Protocol, TypeVar

from unibus.bus.entity_names import warn_if_reserved
from unibus.bus.names import checked_name
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.pubsub.pattern_names import check_new_entity
from unibus.bus.queues.lock_renewal import Renewals
from unibus.bus.queues.misspelt_queues import MisspeltQueues
from unibus.bus.queues.transactions import Transaction, current
from unibus.clock import Timers
from unibus.core.envelope.fields import seconds_ns, set_fields
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import MessageProperties
from unibus.core.envelope.payload import Payload
from unibus.core.envelope.priority import Priority, checked_priority
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import Cancel, Command, Declare, Drop, Renew, Send, SendResult, Settle
from unibus.core.lifecycle.envelope import peeked_message_of, send_of
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION, is_reserved, subscription_path
from unibus.core.lifecycle.state.settings import checked_settings
from unibus.core.topics.pattern import is_wildcard
from unibus.errors import MessageNotFound, NameInvalid, TransactionInvalid, UsageError
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.pending import Pending, resolved
from unibus.stores.seam.store import Store

T = TypeVar("T")

PEEK_LOCK: Final = "peek_lock"
RECEIVE_AND_DELETE: Final = "receive_and_delete"
QUEUE_NAME: Final = "queue name"  # In errors about a name.
NAMES_REMEMBERED_MAX: Final = 10_000


class Interceptor(Protocol):
    """Wraps the operations of the same names, for tracing. Most buses have none."""

    def send(self, entity: object, payload: object, fields: dict[str, object]) -> Pending[SendResult]: ...

    def send_many(
        self, entity: str, payloads: Iterable[object], fields: dict[str, object]
    ) -> Pending[list[SendResult]]: ...

    def settle(self, claimed: Claimed, command: Settle) -> Pending[list[object]]: ...

    def complete_many(self, commands: list[Command], messages: list[Message]) -> Pending[None]: ...

    # These wrap the operations of protocol servers (api/broker.py).

    def watch_send(
        self, entity: str, messages: list[Message], send: Callable[[list[Message]], Pending[list[object]]]
    ) -> Pending[list[object]]: ...

    def watch_settle(
        self, verb: int, entity: str, message_id: str, settle: Callable[[], Pending[list[object]]]
    ) -> Pending[list[object]]: ...

    async def watch_claim(self, entity: str, claiming: Awaitable[list[Claimed]]) -> list[Claimed]: ...


class Queues:
    """The durable operations of one bus on its store."""

    def __init__(self, store: Store, exchange: Exchange, timers: Timers, strict: bool) -> None:
        self.store = store
        self.strict = strict
        self.exchange = exchange
        self.timers = timers
        self.now_ns: Callable[[], int] = store.now_ns
        self.renewals = Renewals(store, timers, store.now_ns)
        self.named: set[str] = set()  # Cache of checked names; cleared when a channel in memory claims a name.
        self.chance: Callable[[], float] = random.random
        self.watcher: Interceptor | None = None
        self.misspelt = MisspeltQueues()
        self.received_from: set[str] = (
            set()
        )  # Where receivers of this bus have locked messages; for the end of the bus.
        self.check_entity: Callable[[str], None] = _nothing  # Raises EntityExists if a channel in memory has the name.

    # Sending

    def send(self, entity: object, payload: object, fields: dict[str, object]) -> Pending[SendResult]:
        """Store one message, through the interceptor if there is one."""
        watcher = self.watcher
        return self.send_now(entity, payload, fields) if watcher is None else watcher.send(entity, payload, fields)

    def send_now(self, entity: object, payload: object, fields: dict[str, object]) -> Pending[SendResult]:
        """Store one message: in the open transaction of this task or thread, else at once."""
        durability: Durability | None = None
        if fields:
            durability, raises = _taken(fields)
            command = self.command(entity, payload, fields)
            command.raises = raises
        else:
            command = self.command(entity, payload, fields)
        # The counter first: without an open transaction anywhere on this bus, no context variable is read.
        transaction = current(self.store) if self.exchange.transactions else None
        if transaction is not None:
            # Filled in by the commit. Until then the sequence is 0: the message has no position in the queue yet.
            result = SendResult(command.entity, 0, command.who.message_id, False)
            transaction.add(command, result)
            return resolved(result)
        pending = self.store.apply([command], durability)
        return pending.map(_first)

    def send_many(
        self, entity: str, payloads: Iterable[object], fields: dict[str, object]
    ) -> Pending[list[SendResult]]:
        """Store all messages in one batch, or none."""
        watcher = self.watcher
        if watcher is not None:
            return watcher.send_many(entity, payloads, fields)
        return self.send_many_now(entity, payloads, fields)

    def send_many_now(
        self, entity: str, payloads: Iterable[object], fields: dict[str, object]
    ) -> Pending[list[SendResult]]:
        durability, raises = _taken(fields)
        if isinstance(payloads, (str, bytes)):
            raise UsageError(
                f"send_many takes a list of payloads, not one {type(payloads).__name__}",
                "use send(), or put the payload into a list",
            )
        # A copy for each: `message` empties its fields.
        commands = [self.command(entity, payload, dict(fields)) for payload in payloads]
        for command in commands:
            command.raises = raises
        transaction = current(self.store) if self.exchange.transactions else None
        if transaction is not None:
            results = [SendResult(each.entity, 0, each.who.message_id, False) for each in commands]
            transaction.add_many(commands, results)
            return resolved(results)
        if not commands:
            return resolved([])
        return self.store.apply(commands, durability).map(_sent)

    def command(self, entity: object, payload: object, fields: dict[str, object]) -> Send:
        """The command that stores one message: from a payload and fields, or from a Message."""
        if isinstance(entity, Message):
            if payload is not None or fields:
                raise UsageError(
                    "send(message) takes no other arguments", "set payload and fields on the Message itself"
                )
            name = checked_name(entity.channel, QUEUE_NAME)
            if name not in self.named:
                self._remember(name)
            command = send_of(entity, name)
        else:
            if not isinstance(entity, str) or entity not in self.named:
                self._remember(checked_name(entity, QUEUE_NAME))
            assert isinstance(entity, str)
            command = self._command(entity, payload, fields)
        # Decided by the store when it applies the command, and not by a lookup here: two first senders create one
        # queue.
        command.creates = 0 if self.strict else QUEUE
        return command

    def _remember(self, name: str) -> None:
        """Check the name and cache that. A pattern is not cached: it is valid only while an entity has the name."""
        self.check_entity(name)
        if is_wildcard(name):
            check_new_entity(name, self.store)
            return
        if not self.strict and self.misspelt.may_compare_sends() and self.store.catalog.find(name) is None:
            self.misspelt.compare_send(name, self.store.entities())
        # Names come from callers, so the cache must not grow without a limit. Clearing it costs one more check for each
        # name.
        if len(self.named) > NAMES_REMEMBERED_MAX:
            self.named.clear()
        self.named.add(name)

    def _command(self, entity: str, payload: object, fields: dict[str, object]) -> Send:
        return send_of(self.message(entity, payload, fields), entity)

    def message(self, entity: str, payload: object, fields: dict[str, object]) -> Message:
        """The message that `send` stores. Empties `fields`; an unknown field raises."""
        body = payload.value if isinstance(payload, Payload) else payload
        if not fields:
            return Message(self.exchange.id_generator, entity, body, Priority.NORMAL, None)
        # These three are no properties of the envelope; what is left in `fields` is checked by `set_fields`.
        priority = fields.pop("priority", None)
        delay = fields.pop("delay", None)
        message_id = fields.pop("message_id", None)
        properties: MessageProperties | None = None
        if fields or delay is not None:
            properties = MessageProperties()
            set_fields(properties, fields)
            if delay is not None:
                # By the store's clock, which decides when the message is due.
                properties.scheduled_at_ns = self.now_ns() + seconds_ns("delay", delay)
        level = Priority.NORMAL if priority is None else checked_priority(priority)
        message = Message(self.exchange.id_generator, entity, body, level, properties)
        if message_id is not None:
            message = _with_id(message, message_id)
        return message

    def submit(self, command: Command) -> Pending[None]:
        """Apply a settlement: collected in the open transaction, else at once."""
        transaction = current(self.store) if self.exchange.transactions else None
        if transaction is not None:
            transaction.add(command)
            return resolved(None)
        return self.store.apply([command]).map(_nothing)

    def submit_many(self, commands: list[Command]) -> Pending[None]:
        """The same for several commands, in one batch: all or none."""
        transaction = current(self.store) if self.exchange.transactions else None
        if transaction is not None:
            transaction.add_many(commands, [None] * len(commands))
            return resolved(None)
        return self.store.apply(commands).map(_nothing) if commands else resolved(None)

    def settle(self, claimed: Claimed, command: Settle) -> Pending[list[object]]:
        """Settle a message of a pump: at once, and never in a transaction of the handler's task."""
        # Straight to the store, and not by `submit`: a handler may leave a transaction open, or roll it back, and the
        # settlement of its message must not depend on that.
        watcher = self.watcher
        return self.store.apply([command]) if watcher is None else watcher.settle(claimed, command)

    def complete_many(self, commands: list[Command], messages: list[Message]) -> Pending[None]:
        watcher = self.watcher
        return self.submit_many(commands) if watcher is None else watcher.complete_many(commands, messages)

    def renew(self, claimed: Claimed, command: Renew) -> Pending[None]:
        """Extend a lock; never in a transaction, which could take the renewal back. Raises LockLost."""
        # Set as soon as the store has decided it: a renewal that a crash undoes only ends the lock earlier.
        return self.store.apply([command]).tap(partial(_extend, claimed)).map(_nothing)

    def schedule(self, entity: str, payload: object, at: object, fields: dict[str, object]) -> Pending[int]:
        """Store a message that is delivered at a time or after a delay. The result is the number to cancel it by."""
        # `fields` is the caller's own dict of keywords, so it may be changed.
        if isinstance(at, (int, float, timedelta)):
            fields["delay"] = at
        else:
            fields["scheduled_at"] = at
        # The number is the result, and a caller could cancel by it. Inside a transaction it would be 0.
        if self.exchange.transactions and current(self.store) is not None:
            what = "schedule() is not possible in a transaction: its sequence number exists only after the commit"
            raise UsageError(what, "use send(delay=…) or send(scheduled_at=…)")
        return self.send(entity, payload, fields).map(_sequence)

    def cancel(self, entity: str, sequences: Iterable[int]) -> Pending[None]:
        """Remove scheduled messages: all of them, or MessageNotFound and none."""
        return self.submit_many([_cancel(entity, sequence) for sequence in sequences])

    def transaction(self, durability: object) -> Transaction:
        return Transaction(self.store, self.exchange, None if durability is None else Durability.of(durability))

    # Peeking

    def peek(self, entity: str, count: int, from_sequence: int) -> Pending[list[Message]]:
        """Read messages without locking them."""
        if count < 1:
            raise UsageError(f"count must be 1 or more, got {count}")
        return self.store.peek(entity, from_sequence, count).map(_decoded)

    # Entities

    def outside_of_transactions(self) -> "Queues":
        """These operations, for calls on entities. Raises TransactionInvalid inside a transaction.

        Changes of entities take effect at once, so a rollback could not undo them.
        """
        if self.exchange.transactions and current(self.store) is not None:
            raise TransactionInvalid(
                "entities and rules cannot be created, changed, purged or deleted inside a transaction",
                "do it before the transaction or after it; send() creates a missing queue itself",
            )
        return self

    def create(self, kind: int, name: str, settings: Mapping[str, object]) -> Pending[None]:
        # `check_entity` after the name itself is checked: an invalid name is the more precise error.
        command = declaration(kind, name, settings, self.store)
        self.check_entity(command.name)
        return self._declare(command)

    def create_subscription(self, topic: str, name: str, settings: Mapping[str, object]) -> Pending[None]:
        path = subscription_path(checked_entity_name(topic), checked_subscription_name(name))
        return self._declare(Declare(path, SUBSCRIPTION, checked_settings(settings)))

    def update(self, name: str, settings: Mapping[str, object]) -> Pending[None]:
        return self._declare(Declare(name, 0, checked_settings(settings), True))

    def delete(self, name: str) -> Pending[None]:
        return self.store.apply([Drop(name)]).map(_nothing)

    def _declare(self, command: Declare) -> Pending[None]:
        return self.store.apply([command]).map(_nothing)


def notify_settled(queues: Queues, entity: str, pending: Pending[T]) -> Pending[T]:
    """Notify blocked publishers once the settlement is decided: a place is free then, and not before."""
    if pending.is_accepted:
        queues.renewals.settled(entity)
        return pending
    return pending.tap(lambda _: queues.renewals.settled(entity))


def declaration(kind: int, name: str, settings: Mapping[str, object], store: Store) -> Declare:
    """The command that creates a queue or topic. The caller checks that no channel in memory has the name."""
    path = checked_entity_name(name)
    check_new_entity(path, store)
    warn_if_reserved(path)
    return Declare(path, kind, checked_settings(settings))


def _cancel(entity: str, sequence: int) -> Cancel:
    if not 0 <= sequence < 2**63:
        raise MessageNotFound(
            f"{entity!r} has no scheduled message #{sequence}", "pass the number that schedule() returned"
        )
    return Cancel(entity, sequence)


def _extend(claimed: Claimed, renewed: Pending[list[object]]) -> None:
    if renewed.error is None:
        until_ns = renewed.value[0]
        assert isinstance(until_ns, int)
        claimed.until_ns = until_ns


def _first(results: list[object]) -> SendResult:
    result = results[0]
    assert isinstance(result, SendResult)
    return result


def _sequence(results: object) -> int:
    assert isinstance(results, list)
    return _first(results).sequence


def _sent(results: list[object]) -> list[SendResult]:
    return [result for result in results if isinstance(result, SendResult)]


def _decoded(seen: list[Claimed]) -> list[Message]:
    return [peeked_message_of(claimed) for claimed in seen]


def _nothing(results: object) -> None:
    return None


def _taken(fields: dict[str, object]) -> tuple[Durability | None, bool]:
    """Remove the options `durability` and `on_duplicate` from the fields: they are no part of the envelope."""
    level = fields.pop("durability", None)
    on_duplicate = fields.pop("on_duplicate", "drop")
    if on_duplicate not in ("drop", "error"):
        raise UsageError(f"on_duplicate {on_duplicate!r} is not valid", "use 'drop' or 'error'")
    return (None if level is None else Durability.of(level)), on_duplicate == "error"


def _with_id(message: Message, message_id: object) -> Message:
    from unibus.core.envelope.message import restored

    if not isinstance(message_id, str) or not message_id:
        raise UsageError(f"message_id must be a non-empty str, not {message_id!r:.40}")
    other = restored(message_id, message.channel, message.body, message.timestamp_ns, message.properties)
    other.priority = message.priority
    return other


def checked_entity_name(name: str) -> str:
    checked = checked_name(name, "name of a queue or topic")
    if is_reserved(checked):
        raise NameInvalid(
            f"entity name {name!r} uses a reserved word", "no part of it may begin with $ or be 'Subscriptions'"
        )
    return checked


def checked_subscription_name(name: str) -> str:
    checked = checked_name(name, "subscription name")
    if "/" in checked or checked.startswith("$"):
        raise NameInvalid(f"subscription name {name!r} contains / or begins with $", "choose another name")
    return checked
