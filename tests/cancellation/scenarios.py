"""For every public call that can be suspended: what was there before it, the call, and what a cancelled one promises.

`UNDONE`: as if it had not been made. `DONE`: its effect was decided before it was first suspended, and stays.
`EITHER`: one of the two, never something in between. `PARTLY`: some of its batches, each of them whole.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from unibus.bus.api.message_bus import MessageBus
from unibus.bus.queues.received import Received
from unibus.bus.queues.receivers import SessionReceiver
from unibus.core.envelope.message import Message

UNDONE: Final = "undone"
DONE: Final = "done"
EITHER: Final = "either"
PARTLY: Final = "partly"

BOTH: Final = ("memory", "sqlite")

FOLDER: Final[ContextVar[Path]] = ContextVar("folder")
"""Where a scenario may have files."""

Prepare = Callable[[MessageBus], Awaitable[Any]]
Call = Callable[[MessageBus, Any], Awaitable[Any]]


async def nothing(bus: MessageBus) -> None:
    """To prepare, or meanwhile."""


@dataclass(frozen=True)
class Scenario:
    """`meanwhile` happens while the call is suspended where it is to be cancelled, and lets it go on if it may."""

    name: str
    covers: tuple[str, ...]
    call: Call
    prepare: Prepare = nothing
    promise: str = DONE
    late_promise: str = ""  # Of a call that is cancelled after what it waited for is there, if that is another one.
    meanwhile: Prepare = nothing
    undo: Call | None = None  # What a call that is not done does instead, for instance a release.
    kinds: tuple[str, ...] = ("sqlite",)  # In memory most answers are there at once, and nothing is suspended.
    closes: bool = False  # Whether the call ends the bus.
    reads: bool = False  # Whether it has no effect at all.


# What there is before


async def one_message(bus: MessageBus) -> None:
    await bus.send("q", "one")


async def two_messages(bus: MessageBus) -> None:
    await bus.send_many("q", ["one", "two"])


async def locked(bus: MessageBus) -> Received:
    await bus.send("q", "one")
    (received,) = await bus.receive_batch("q", 1)
    return received


async def locked_two(bus: MessageBus) -> list[Received]:
    await two_messages(bus)
    return await bus.receive_batch("q", 2)


async def deferred(bus: MessageBus) -> int:
    received = await locked(bus)
    await received.defer()
    return received.sequence


async def scheduled(bus: MessageBus) -> int:
    return await bus.schedule("q", "later", 1_000.0)


async def topic(bus: MessageBus) -> None:
    await bus.create_topic("t")
    await bus.create_subscription("t", "s")
    await bus.send("t", "one")


async def sessions(bus: MessageBus) -> None:
    await bus.create_queue("s", requires_session=True)
    await bus.send("s", "one", session_id="a")
    await bus.send("s", "two", session_id="a")


async def session(bus: MessageBus) -> SessionReceiver:
    await sessions(bus)
    return await bus.accept_session("s", "a", 0)


async def session_with_deferred(bus: MessageBus) -> tuple[SessionReceiver, int]:
    held = await session(bus)
    (received,) = await held.receive_batch(1)
    await received.defer()
    return held, received.sequence


async def dead(bus: MessageBus) -> None:
    await bus.create_queue("other")
    await bus.send_many("q", ["one", "two", "three"])
    for received in await bus.receive_batch("q", 3):
        await received.dead_letter("broken")


async def dead_one(bus: MessageBus) -> Any:
    received = await locked(bus)
    await bus.create_queue("other")
    await received.dead_letter("broken")
    (letter,) = await bus.dead_letter_queue().list_messages()
    return letter


async def persistent(bus: MessageBus) -> None:
    """A channel with a group in the store, and no handler."""
    bus.create_channel("c", persistent=True)
    await bus.subscribe("c", _never, group="g").cancel()


async def _never(message: Message) -> None:
    raise AssertionError("it was cancelled before the first publish")


async def bounded(bus: MessageBus) -> None:
    """A persistent channel that is full, and blocks its publishers."""
    bus.create_channel("c", persistent=True, max_queue_size=1, drop_policy="block", block_timeout=None)
    await bus.subscribe("c", _never, group="g").cancel()
    await bus.publish("c", "first")


async def make_room(bus: MessageBus) -> None:
    (received,) = await bus.receive_batch("c/Subscriptions/g", 1)
    await received.complete()


async def full_channel(bus: MessageBus) -> None:
    bus.create_channel("m", max_queue_size=1, drop_policy="block", block_timeout=None, persistent=False)
    await bus.publish("m", "first")


async def pop_one(bus: MessageBus) -> None:
    assert bus.pop("m") is not None


async def answering(bus: MessageBus) -> None:
    async def answer(message: Message) -> object:
        await asyncio.sleep(0)
        return message.body

    bus.create_channel("m", persistent=False)
    bus.subscribe("m", answer)


async def working(bus: MessageBus) -> list[object]:
    """Handlers of all kinds, with work to do."""
    done: list[object] = []

    async def slow(message: Message) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        done.append(message.body)

    bus.create_channel("m", persistent=False)
    bus.create_channel("c", persistent=True)
    bus.subscribe("m", slow)
    bus.subscribe("m", lambda message: None)
    bus.subscribe("c", slow, group="g")
    for number in range(3):
        await bus.publish("m", number)
        await bus.publish("c", number)
    return done


async def subscribed(bus: MessageBus) -> Any:
    """A handler that is in the middle of its work."""
    entered = asyncio.Event()

    async def stuck(message: Message) -> None:
        entered.set()
        await asyncio.Event().wait()

    bus.create_channel("c", persistent=True)
    subscription = bus.subscribe("c", stuck, group="g")
    await bus.publish("c", "one")
    await entered.wait()
    return subscription


# Calls that are more than one expression


async def first_of(messages: Any) -> Received:
    async for message in messages:
        return message  # type: ignore[no-any-return]
    raise AssertionError("nothing came")


async def noise(bus: MessageBus, given: object) -> None:
    bus.send("noise", "noise")


def not_alone(call: Call) -> Call:
    """A claim that nothing else is written with is written at once. Here it is not: so it is suspended."""

    async def called(bus: MessageBus, given: Any) -> Any:
        await noise(bus, given)
        return await call(bus, given)

    return called


async def all_of(messages: Any) -> list[object]:
    return [message.body async for message in messages]


async def in_block(bus: MessageBus, received: Received) -> None:
    async with received:
        await asyncio.sleep(0)


async def failing_block(bus: MessageBus, received: Received) -> None:
    try:
        async with received:
            raise ValueError("no")
    except ValueError:
        return


async def released(bus: MessageBus, received: Received) -> None:
    await received.release()


async def in_session(bus: MessageBus, held: SessionReceiver) -> None:
    async with held:
        await asyncio.sleep(0)


async def in_transaction(bus: MessageBus, received: Received) -> None:
    async with bus.transaction():
        await asyncio.sleep(0)
        await bus.send("other", "two")
        await bus.send("other", "three")
        await received.complete()


async def with_other(bus: MessageBus) -> Received:
    await bus.create_queue("other")
    return await locked(bus)


async def entered(bus: MessageBus) -> None:
    async with bus:
        await bus.publish("m", "last")


async def received_again(bus: MessageBus, held: tuple[SessionReceiver, int]) -> None:
    await held[0].receive_deferred([held[1]])


def dlq(name: str, *given: Any, prepare: Prepare = dead, **options: Any) -> Scenario:
    """A call of the dead-letter queue that looks, or that moves several messages in batches of one."""
    promise = options.pop("promise", DONE)
    return Scenario(
        f"dlq.{name}",
        (f"DeadLetterManager.{name}",),
        lambda bus, _: getattr(bus.dead_letter_queue(), name)(*given, **options),
        prepare,
        promise,
        reads=promise == UNDONE,
    )


def one_dead(name: str, *given: Any) -> Scenario:
    return Scenario(
        f"dlq.{name}",
        (f"DeadLetterManager.{name}",),
        lambda bus, letter: getattr(bus.dead_letter_queue(), name)(letter, *given),
        dead_one,
        EITHER,
    )


def entity(name: str, *given: Any, prepare: Prepare = topic, reads: bool = False, **settings: Any) -> Scenario:
    return Scenario(
        f"entities.{name}",
        (f"Entities.{name}",),
        lambda bus, _: getattr(bus.entities, name)(*given, **settings),
        prepare,
        UNDONE if reads else DONE,
        reads=reads,
    )


def received(name: str, *given: Any) -> Scenario:
    return Scenario(f"received.{name}", (f"Received.{name}",), lambda _, one: getattr(one, name)(*given), locked)


SCENARIOS: Final = (
    # Publishing
    Scenario("publish", ("MessageBus.publish",), lambda bus, _: bus.publish("c", "one"), persistent),
    Scenario("publish in memory", (), lambda bus, _: bus.publish("m", "one"), answering),
    Scenario(
        "publish when blocked",
        (),
        lambda bus, _: bus.publish("c", "second"),
        bounded,
        UNDONE,
        DONE,
        make_room,
        kinds=BOTH,
    ),
    Scenario(
        "publish in memory when blocked",
        (),
        lambda bus, _: bus.publish("m", "second"),
        full_channel,
        UNDONE,
        meanwhile=pop_one,
        kinds=BOTH,
    ),
    Scenario(
        "publish many", ("MessageBus.publish_many",), lambda bus, _: bus.publish_many("c", ["one", "two"]), persistent
    ),
    Scenario(
        "publish many when blocked",
        (),
        lambda bus, _: bus.publish_many("m", ["second"]),
        full_channel,
        UNDONE,
        meanwhile=pop_one,
    ),
    Scenario("publish json", ("MessageBus.publish_json",), lambda bus, _: bus.publish_json("c", [1]), persistent),
    Scenario("request", ("MessageBus.request",), lambda bus, _: bus.request("m", "one", None), answering, kinds=BOTH),
    # Queues
    Scenario("send", ("MessageBus.send",), lambda bus, _: bus.send("q", "two"), one_message),
    Scenario("send many", ("MessageBus.send_many",), lambda bus, _: bus.send_many("q", ["two", "three"]), one_message),
    Scenario("schedule", ("MessageBus.schedule",), lambda bus, _: bus.schedule("q", "two", 9.0), one_message),
    Scenario(
        "cancel scheduled", ("MessageBus.cancel_scheduled",), lambda bus, seq: bus.cancel_scheduled("q", seq), scheduled
    ),
    Scenario(
        "receive",
        ("MessageBus.receive",),
        not_alone(lambda bus, _: first_of(bus.receive("q"))),
        one_message,
        UNDONE,
        undo=noise,
    ),
    Scenario(
        "receive batch",
        ("MessageBus.receive_batch",),
        not_alone(lambda bus, _: bus.receive_batch("q", 2)),
        two_messages,
        UNDONE,
        undo=noise,
    ),
    Scenario(
        "receive what comes later",
        (),
        lambda bus, _: bus.receive_batch("q", 2),
        lambda bus: bus.create_queue("q"),
        UNDONE,
        meanwhile=one_message,
        kinds=BOTH,
    ),
    Scenario(
        "receive and delete",  # At most once: what was removed for a call that is cancelled then is gone.
        (),
        not_alone(lambda bus, _: bus.receive_batch("q", 2, mode="receive_and_delete")),
        two_messages,
        EITHER,
        undo=noise,
    ),
    Scenario(
        "receive deferred",
        ("MessageBus.receive_deferred",),
        not_alone(lambda bus, seq: bus.receive_deferred("q", [seq])),
        deferred,
        UNDONE,
        undo=noise,
    ),
    Scenario("peek", ("MessageBus.peek",), lambda bus, _: bus.peek("q"), one_message, reads=True),
    Scenario("complete many", ("MessageBus.complete_many",), lambda bus, all_: bus.complete_many(all_), locked_two),
    received("complete"),
    received("abandon"),
    received("defer"),
    received("dead_letter", "broken"),
    received("release"),
    received("renew_lock"),
    Scenario("a block", ("Received.__aenter__", "Received.__aexit__"), in_block, locked, EITHER, undo=released),
    Scenario("a block that fails", (), failing_block, locked, EITHER),
    # Sessions
    Scenario(
        "accept session",
        ("MessageBus.accept_session",),
        not_alone(lambda bus, _: bus.accept_session("s", None, None)),
        sessions,
        UNDONE,
        undo=noise,
    ),
    Scenario(
        "accept a session that comes later",
        (),
        lambda bus, _: bus.accept_session("s", None, None),
        lambda bus: bus.create_queue("s", requires_session=True),
        UNDONE,
        meanwhile=lambda bus: bus.send("s", "one", session_id="a"),
        kinds=BOTH,
    ),
    Scenario(
        "session.receive",
        ("SessionReceiver.receive",),
        not_alone(lambda _, held: first_of(held.receive())),
        session,
        UNDONE,
        undo=noise,
    ),
    Scenario(
        "session.receive_batch",
        ("SessionReceiver.receive_batch",),
        not_alone(lambda _, held: held.receive_batch(2)),
        session,
        UNDONE,
        undo=noise,
    ),
    Scenario(
        "session.receive_deferred",
        ("SessionReceiver.receive_deferred",),
        not_alone(received_again),
        session_with_deferred,
        UNDONE,
        undo=noise,
    ),
    Scenario("session.state", ("SessionReceiver.state",), lambda _, held: held.state(), session, reads=True),
    Scenario("session.set_state", ("SessionReceiver.set_state",), lambda _, held: held.set_state(b"x"), session),
    Scenario("session.renew_lock", ("SessionReceiver.renew_lock",), lambda _, held: held.renew_lock(), session),
    Scenario("session.close", ("SessionReceiver.close",), lambda _, held: held.close(), session),
    Scenario("a session's block", ("SessionReceiver.__aenter__", "SessionReceiver.__aexit__"), in_session, session),
    # Transactions
    Scenario("transaction", ("Transaction.__aenter__", "Transaction.__aexit__"), in_transaction, with_other, EITHER),
    # Subscriptions and the life of the bus
    Scenario("cancel a subscription", ("Subscription.cancel",), lambda _, one: one.cancel(), subscribed, kinds=BOTH),
    Scenario("drain", ("MessageBus.drain",), lambda bus, _: bus.drain(), working, kinds=BOTH),
    Scenario("stop", ("MessageBus.stop",), lambda bus, _: bus.stop(), working, kinds=BOTH),
    Scenario("close", ("MessageBus.close",), lambda bus, _: bus.close(), working, closes=True),
    Scenario(
        "a bus's block",
        ("MessageBus.__aenter__", "MessageBus.__aexit__"),
        lambda bus, _: entered(bus),
        working,
        EITHER,
        closes=True,
    ),
    # Entities
    Scenario("create queue", ("MessageBus.create_queue",), lambda bus, _: bus.create_queue("new")),
    Scenario("create topic", ("MessageBus.create_topic",), lambda bus, _: bus.create_topic("new")),
    Scenario(
        "create subscription",
        ("MessageBus.create_subscription",),
        lambda bus, _: bus.create_subscription("t", "u"),
        topic,
    ),
    Scenario(
        "update entity",
        ("MessageBus.update_entity",),
        lambda bus, _: bus.update_entity("q", lock_duration=7.0),
        one_message,
    ),
    Scenario("delete entity", ("MessageBus.delete_entity",), lambda bus, _: bus.delete_entity("q"), one_message),
    entity("create_queue", "new"),
    entity("create_topic", "new"),
    entity("create_subscription", "t", "u"),
    entity("update", "t/Subscriptions/s", lock_duration=7.0),
    entity("delete", "t/Subscriptions/s"),
    entity("get", "t", reads=True),
    entity("exists", "t", reads=True),
    entity("create_rule", "t", "s", "r", "a = 1"),
    entity("update_rule", "t", "s", "$Default", "a = 1"),
    entity("delete_rule", "t", "s", "$Default"),
    entity("get_rule", "t", "s", "$Default", reads=True),
    entity("rules", "t", "s", reads=True),
    entity("list", reads=True),
    # History
    Scenario("trace", ("MessageBus.trace_message",), lambda bus, _: bus.trace_message("x"), one_message, reads=True),
    Scenario("replay", ("MessageBus.replay",), lambda bus, _: all_of(bus.replay("t")), topic, reads=True),
    Scenario("prune", ("MessageBus.prune_before",), lambda bus, _: bus.prune_before(9, "t"), topic, EITHER),
    Scenario("purge", ("MessageBus.purge",), lambda bus, _: bus.purge("q"), one_message, EITHER),
    Scenario(
        "delete message",
        ("MessageBus.delete_message",),
        lambda bus, found: bus.delete_message(found),
        lambda bus: _id(bus),
        EITHER,
    ),
    Scenario(
        "query",
        ("MessageBus.query_messages",),
        lambda bus, _: bus.query_messages("SELECT * FROM messages"),
        one_message,
        reads=True,
    ),
    Scenario(
        "execute query",
        ("MessageBus.execute_query",),
        lambda bus, _: bus.execute_query("SELECT 1", **_LIMITS),
        one_message,
        reads=True,
    ),
    Scenario(
        "relay outbox",
        ("MessageBus.relay_outbox",),
        lambda bus, path: bus.relay_outbox(path),
        lambda bus: _outbox(bus),
        EITHER,
    ),
    # Dead letters
    dlq("list_messages", promise=UNDONE),
    dlq("query_dlq", {}, promise=UNDONE),
    dlq("groups", promise=UNDONE),
    dlq("is_agent_available", "q", promise=UNDONE),
    dlq("try_rules", promise=UNDONE),
    dlq("peek", "unknown", promise=UNDONE),
    one_dead("retry_message"),
    one_dead("redirect_message", "other"),
    one_dead("discard_message"),
    one_dead("edit_and_resend", "new body"),
    dlq("retry_all", batch_size=1, promise=PARTLY),
    dlq("redirect_all", None, "other", batch_size=1, promise=PARTLY),
    dlq("discard_all", batch_size=1, promise=PARTLY),
    dlq("process_dead_letters", 1, [{"action": "discard"}], promise=PARTLY),
)

_LIMITS: Final[dict[str, object]] = {"time_limit": 5.0, "rows_max": 10, "memory_mb": 50.0}


async def _id(bus: MessageBus) -> str:
    return (await bus.send("q", "one")).id


async def _outbox(bus: MessageBus) -> Path:
    """A file of the user's with an outbox, and nothing left in it."""
    path = FOLDER.get() / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        async with bus.transaction(connection=connection):
            await bus.send("q", "one")
    await bus.relay_outbox(path)
    return path
