"""The operations for protocol servers: names and lock tokens in, claimed messages and results out."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from unibus import MessageBus, Pattern
from unibus.bus.api.broker import ANSWER_BYTES_MAX, Broker, SessionLock
from unibus.bus.entities.entities import rule_of
from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule
from unibus.core.lifecycle.commands import ABANDON, COMPLETE, DEAD_LETTER, DEFER
from unibus.errors import (
    BusError,
    EntityExists,
    EntityNotFound,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    NameInvalid,
    QueueFull,
    RateLimited,
    SessionLocked,
    SessionLockLost,
    SessionNotFound,
    UsageError,
)
from unibus.testing import VirtualClock


@pytest.fixture(params=["memory", "sqlite", "jsonfile"])
async def bus(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[MessageBus]:
    url = {"memory": "memory://", "sqlite": f"sqlite:///{folder}/bus.db", "jsonfile": f"jsonfile:///{folder}/bus"}
    async with MessageBus(url[request.param]) as opened:
        yield opened


@pytest.fixture
async def stored(folder: Path) -> AsyncIterator[MessageBus]:
    """A bus whose channels are topics of its store. Without a file they are in memory, and no topics."""
    async with MessageBus(f"sqlite:///{folder}/bus.db") as opened:
        yield opened


@pytest.fixture
async def broker(bus: MessageBus) -> Broker:
    return Broker(bus)


async def sent(broker: Broker, entity: str, body: object = "x", **fields: object) -> str:
    result = await broker.send(entity, broker.message(entity, body, fields))
    return result.id


# Messages


async def test_a_message_goes_in_by_name_and_is_settled_by_its_token_alone(broker: Broker) -> None:
    await broker.create("queue", "q", {})
    message_id = await sent(broker, "Q", {"n": 1}, message_id="m-1", headers={"h": 1}, session_id=None)
    [claimed] = await broker.receive("q")
    message = broker.decode(claimed)
    assert (message_id, message.id, message.body, dict(message.headers)) == ("m-1", "m-1", {"n": 1}, {"h": 1})
    assert (message.channel, claimed.entity, claimed.delivery_count) == ("q", "q", 1)
    await broker.settle(COMPLETE, claimed.token)
    assert (await broker.entity("q")).completed == 1
    with pytest.raises(LockLost):
        await broker.settle("complete", claimed.token)


async def test_id_and_entity_have_to_match_and_the_lock_stays(broker: Broker) -> None:
    for name in ("q", "other"):
        await broker.create("queue", name, {})
    await sent(broker, "q", message_id="mine")
    [claimed] = await broker.receive("q")
    with pytest.raises(MessageNotFound):
        await broker.settle(COMPLETE, claimed.token, message_id="another")
    with pytest.raises(MessageNotFound):
        await broker.renew(claimed.token, entity="other")
    with pytest.raises(EntityNotFound):
        await broker.settle(COMPLETE, claimed.token, entity="nowhere")
    with pytest.raises(LockLost):
        await broker.settle(COMPLETE, bytes(16), entity="q", message_id="mine")
    assert await broker.renew(claimed.token, entity="Q", message_id="mine") >= claimed.until_ns
    await broker.settle(COMPLETE, claimed.token, entity="Q", message_id="mine")


async def test_every_way_to_settle(broker: Broker) -> None:
    await broker.create("queue", "q", {})
    await sent(broker, "q")
    [claimed] = await broker.receive("q", consumer="tester")
    await broker.settle(ABANDON, claimed.token, properties={"why": "busy"})
    [again] = await broker.receive("q")
    assert (again.delivery_count, dict(broker.decode(again).headers)["why"]) == (2, "busy")
    await broker.settle(DEFER, again.token)
    assert await broker.receive("q") == []
    [deferred] = await broker.receive_deferred("q", [again.sequence])
    await broker.settle(DEAD_LETTER, deferred.token, reason="bad", description="very")
    [dead] = await broker.receive("q/$DeadLetterQueue", lock=False)
    headers = dict(broker.decode(dead).headers)
    assert (headers["DeadLetterReason"], headers["DeadLetterErrorDescription"]) == ("bad", "very")
    info = await broker.entity("q")
    assert (info.sent, info.delivered, info.completed, info.abandoned, info.dead_lettered) == (1, 3, 0, 1, 1)


async def test_several_are_sent_together_or_none(broker: Broker) -> None:
    await broker.create("queue", "q", {"max_count": 2})
    messages = [broker.message("q", n, {}) for n in range(3)]
    with pytest.raises(BusError):
        await broker.send_many("q", messages)
    results = await broker.send_many("q", messages[:2])
    assert [result.sequence for result in results] == [1, 2]
    assert await broker.send_many("q", []) == []


@pytest.mark.immediate
async def test_nothing_is_created_by_being_named(broker: Broker) -> None:
    with pytest.raises(EntityNotFound):
        broker.message("q", 1, {})
    await broker.create("queue", "real", {})
    with pytest.raises(EntityNotFound):
        broker.send("q", broker.message("real", 1, {}))
    with pytest.raises(EntityNotFound):
        await broker.receive("q")
    with pytest.raises(EntityNotFound):
        broker.peek("q")
    with pytest.raises(EntityNotFound):
        await broker.accept_session("q")
    assert [info.name for info in await broker.entities("queue")] == ["real"]


async def test_a_scheduled_message_is_cancelled(broker: Broker) -> None:
    await broker.create("queue", "q", {})
    result = await broker.send("q", broker.message("q", 1, {"delay": 3600}))
    await broker.cancel("q", [result.sequence])
    with pytest.raises(MessageNotFound):
        await broker.cancel("q", [result.sequence])
    with pytest.raises(MessageNotFound):
        await broker.cancel("q", [-1])


async def test_one_receive_gives_no_more_bytes_than_a_server_can_hold(broker: Broker) -> None:
    await broker.create("queue", "q", {})
    for number in range(5):
        await sent(broker, "q", b"x" * (ANSWER_BYTES_MAX * 2 // 5), message_id=str(number))
    found = [[broker.decode(each).id for each in await broker.receive("q", 100, lock=lock)] for lock in (True, False)]
    assert found == [["0", "1", "2"], ["3", "4"]]
    await sent(broker, "q", b"x" * (ANSWER_BYTES_MAX + 1))
    assert len(await broker.receive("q", 100)) == 1


async def test_deferred_messages_too_large_for_one_answer_are_refused_as_a_whole(broker: Broker) -> None:
    await broker.create("queue", "q", {})
    for size in (ANSWER_BYTES_MAX // 2, ANSWER_BYTES_MAX // 2 - 1_000, 2_000, ANSWER_BYTES_MAX + 1):
        await sent(broker, "q", b"x" * size)
    for claimed in [*await broker.receive("q", 3), *await broker.receive("q", 1)]:
        await broker.settle(DEFER, claimed.token)
    for lock in (True, False):
        with pytest.raises(MessageTooLarge, match="fewer"):
            await broker.receive_deferred("q", [1, 2, 3], lock=lock)
    assert (await broker.entity("q")).deferred == 4
    assert [each.delivery_count for each in await broker.receive_deferred("q", [1, 3])] == [2, 2]
    with pytest.raises(MessageTooLarge):
        await broker.receive_deferred("q", [2, 4])
    assert [each.sequence for each in await broker.receive_deferred("q", [4], lock=False)] == [4]
    with pytest.raises(MessageNotFound):
        await broker.receive_deferred("q", [2, 2])


async def test_a_receiver_waits_for_a_message(broker: Broker) -> None:
    await broker.create("queue", "q", {})
    waiting = asyncio.ensure_future(broker.receive("q", timeout_s=30))
    await asyncio.sleep(0)
    await sent(broker, "q", "late")
    [claimed] = await waiting
    assert broker.decode(claimed).body == "late"
    assert await broker.receive("q", timeout_s=0.01) == []


async def test_a_cancelled_receive_releases_what_it_claimed_uncounted(stored: MessageBus) -> None:
    broker = Broker(stored)
    await broker.create("queue", "q", {})
    await sent(broker, "q")
    receiving = asyncio.ensure_future(broker.receive("q"))
    await asyncio.sleep(0)  # It has claimed, and waits for the write.
    receiving.cancel()
    await asyncio.wait([receiving])
    assert receiving.cancelled()
    [claimed] = await broker.receive("q", timeout_s=30)
    assert claimed.delivery_count == 1


async def test_a_cancelled_accept_frees_the_session(stored: MessageBus) -> None:
    broker = Broker(stored)
    await broker.create("queue", "q", {"requires_session": True})
    await sent(broker, "q", session_id="s")
    accepting = asyncio.ensure_future(broker.accept_session("q", "s"))
    await asyncio.sleep(0)
    accepting.cancel()
    await asyncio.wait([accepting])
    assert accepting.cancelled()
    assert (await broker.accept_session("q", "s", timeout_s=30)).session_id == "s"


async def test_a_peek_shows_no_token_and_begins_anywhere(broker: Broker) -> None:
    await broker.create("queue", "q", {})
    for number in range(5):
        await sent(broker, "q", number)
    until_ns = (await broker.receive("q", 2))[1].until_ns
    seen = await broker.peek("q", from_sequence=2, count=3)
    assert [(each.sequence, each.token) for each in seen] == [(2, b""), (3, b""), (4, b"")]
    assert [each.until_ns for each in seen] == [until_ns, 0, 0]
    with pytest.raises(UsageError):
        broker.peek("q", count=0)


# Sessions


async def test_sessions_from_accept_to_release(broker: Broker) -> None:
    await broker.create("queue", "q", {"requires_session": True})
    for session_id in ("b", "a", "b"):
        await sent(broker, "q", session_id, session_id=session_id)
    assert await broker.sessions("q") == ["a", "b"]
    assert await broker.sessions("q", skip=1, top=1) == ["b"]
    lock = await broker.accept_session("q", "b")
    with pytest.raises(SessionLocked):
        await broker.accept_session("q", "b")
    rebuilt = SessionLock("q", "b", lock.token, 0)
    assert await broker.renew_session(rebuilt) >= lock.until_ns
    claimed = await broker.receive("q", 5, session=rebuilt)
    assert [broker.decode(each).body for each in claimed] == ["b", "b"]
    assert [each.sequence for each in await broker.peek("q", 0, 10, "b")] == [1, 3]
    before_ns = broker.now_ns() - 1
    await broker.set_session_state(rebuilt, b"state")
    assert await broker.session_state(rebuilt) == b"state"
    assert await broker.sessions("q", updated_after_ns=before_ns) == ["b"]
    assert await broker.sessions("q", updated_after_ns=broker.now_ns() + 1) == []
    await broker.release_session(rebuilt)
    with pytest.raises(SessionLockLost):
        await broker.renew_session(rebuilt)
    assert {(await broker.accept_session("q")).session_id for _ in range(2)} == {"a", "b"}
    with pytest.raises(SessionNotFound):
        await broker.accept_session("q")


async def test_a_session_is_waited_for(broker: Broker) -> None:
    await broker.create("queue", "q", {"requires_session": True})
    accepting = asyncio.ensure_future(broker.accept_session("q", timeout_s=30))
    await asyncio.sleep(0)
    await sent(broker, "q", session_id="s")
    assert (await accepting).session_id == "s"


# Entities


async def test_create_fails_for_a_name_that_exists_even_with_the_same_settings(broker: Broker) -> None:
    await broker.create("queue", "q", {"max_count": 5})
    for kind in ("queue", "topic"):
        with pytest.raises(EntityExists):
            await broker.create(kind, "Q", {"max_count": 5})
    for name in ("", "$x", "servicebus/x", "a//b"):
        with pytest.raises(NameInvalid):
            await broker.create("queue", name, {})
    with pytest.raises(UsageError):
        await broker.create("namespace", "x", {})
    await broker.update("q", {"max_count": 6})
    assert (await broker.entity("Q")).settings["max_count"] == 6
    await broker.delete("q")
    with pytest.raises(EntityNotFound):
        await broker.entity("q")
    with pytest.raises(EntityNotFound):
        await broker.update("q", {"max_count": 6})


async def test_entities_come_by_kind_and_page(broker: Broker) -> None:
    for name in ("c", "A", "b"):
        await broker.create("queue", name, {})
    await broker.create("topic", "T", {})
    for name in ("two", "one"):
        await broker.create("subscription", f"t/Subscriptions/{name}", {})
    assert [info.name for info in await broker.entities("queue")] == ["A", "b", "c"]
    assert [info.name for info in await broker.entities("queue", skip=1, top=1)] == ["b"]
    paths = [info.name for info in await broker.entities("subscription", "t")]
    assert paths == ["T/Subscriptions/one", "T/Subscriptions/two"]
    await broker.delete("A")
    assert [info.name for info in await broker.entities("queue")] == ["b", "c"]
    with pytest.raises(EntityNotFound):
        await broker.entities("subscription", "nowhere")
    with pytest.raises(EntityNotFound):
        await broker.create("subscription", "nowhere/Subscriptions/s", {})
    with pytest.raises(NameInvalid):
        await broker.create("subscription", "s", {})


async def test_rules_of_a_subscription(broker: Broker) -> None:
    await broker.create("topic", "t", {})
    path = "t/Subscriptions/s"
    await broker.create("subscription", path, {})
    await broker.create_rule(path, rule_of("big", "n > 5", None))
    assert [rule.name for rule in await broker.rules(path)] == ["$Default", "big"]
    with pytest.raises(EntityExists):
        await broker.create_rule(path, rule_of("BIG", "n > 5", None))
    await broker.update_rule(path, rule_of("big", "n > 7", None))
    assert "7" in str((await broker.rule(path, "Big")).condition)
    await broker.delete_rule(path, "$Default")
    assert [rule.name for rule in await broker.rules(path, skip=0, top=5)] == ["big"]
    with pytest.raises(EntityNotFound):
        await broker.rule(path, "none")
    with pytest.raises(EntityNotFound):
        await broker.rules("t")


def rule(name: str) -> AuthorizationRule:
    return AuthorizationRule.generated(name, [Right.SEND], name.encode().ljust(64, b"x"))


@pytest.mark.immediate
async def test_namespace_rules_are_kept_and_shown_nowhere_else(broker: Broker, bus: MessageBus) -> None:
    assert broker.namespace_rules() == ()
    await broker.set_namespace_rules([rule("one")])
    await broker.set_namespace_rules([rule("one"), rule("two")])
    assert [each.name for each in broker.namespace_rules()] == ["one", "two"]
    assert broker.namespace_rules() is broker.namespace_rules()
    assert await bus.entities() == []
    for kind in ("queue", "topic", "subscription"):
        assert await broker.entities(kind) == []
    for call in (
        lambda: broker.entity("$namespace").result(),
        lambda: broker.delete("$namespace"),
        lambda: broker.update("$namespace", {"user_metadata": "x"}),
        lambda: broker.find("$namespace"),
        lambda: broker.peek("$namespace"),
        lambda: bus.send("$namespace", 1),
    ):
        with pytest.raises(EntityNotFound):
            call()
    assert broker.access_rules("$namespace") == ()


async def test_access_rules_follow_the_settings(broker: Broker) -> None:
    await broker.create("queue", "Q", {"authorization_rules": [rule("one")]})
    first = broker.access_rules("q")
    assert [each.name for each in first] == ["one"]
    assert broker.access_rules("q") is first
    await broker.update("q", {"authorization_rules": [rule("two")]})
    assert [each.name for each in broker.access_rules("q")] == ["two"]
    assert broker.access_rules("nowhere") == ()


# What else happens


async def test_a_topic_is_heard_by_pattern_and_lossy_subscribers(stored: MessageBus) -> None:
    bus, broker = stored, Broker(stored)
    heard: asyncio.Queue[tuple[str, object]] = asyncio.Queue()

    async def by_pattern(message: object) -> None:
        await heard.put(("pattern", message))

    async def lossy(message: object) -> None:
        await heard.put(("lossy", message))

    await broker.create("topic", "Orders.eu", {"dedup_window": 60})
    bus.subscribe(Pattern.wildcard("Orders.*"), by_pattern)
    bus.subscribe("Orders.eu", lossy, overflow="drop_oldest")
    await sent(broker, "orders.eu", 1, message_id="m")
    result = await broker.send("orders.eu", broker.message("orders.eu", 1, {"message_id": "m"}))
    assert result.duplicate
    await sent(broker, "orders.eu", 2)
    async with asyncio.timeout(30):
        got = [await heard.get() for _ in range(4)]
    assert sorted(kind for kind, _ in got) == ["lossy", "lossy", "pattern", "pattern"]
    assert heard.empty()


async def test_a_settlement_wakes_a_blocked_publisher(stored: MessageBus) -> None:
    bus, broker = stored, Broker(stored)
    bus.create_channel("orders", max_queue_size=1, drop_policy="block", block_timeout=30)
    await broker.create("subscription", "orders/Subscriptions/s", {})
    await sent(broker, "orders", 1)
    with pytest.raises(QueueFull):
        await sent(broker, "orders", 2)
    publishing = asyncio.ensure_future(bus.publish("orders", 2))
    await asyncio.sleep(0)
    [claimed] = await broker.receive("orders/Subscriptions/s")
    assert not publishing.done()
    await broker.settle(COMPLETE, claimed.token)
    async with asyncio.timeout(30):
        await publishing


async def test_rates_of_an_entity() -> None:
    with VirtualClock() as clock:
        async with MessageBus(clock=clock) as bus:
            broker = Broker(bus)
            await broker.create("queue", "q", {"max_sends_per_second": 2, "max_receives_per_second": 1})
            for number in range(4):
                await sent(broker, "q", number)
            with pytest.raises(RateLimited) as caught:
                await sent(broker, "q", 4)
            assert caught.value.retry_after_s == 0.5
            await clock.advance_async(0.5)
            await sent(broker, "q", 4)
            assert len(await broker.receive("q", 10)) == 2
            with pytest.raises(RateLimited):
                await broker.receive("q")
            await clock.advance_async(10)
            assert len(await broker.receive("q", 10)) == 2
            await clock.advance_async(10)
            assert len(await broker.receive("q", 10)) == 1
            assert len(await broker.receive("q", 10)) == 0  # A token that brought no message was given back.
            await sent(broker, "q", 5)
            assert len(await broker.receive("q", 10)) == 1


async def test_a_server_never_commits_on_its_loop(broker: Broker, bus: MessageBus) -> None:
    store = bus._runtime.queues().store
    assert store.commit_placement.on_loops is False
    await broker.create("queue", "q", {})
    pending = broker.send("q", broker.message("q", 1, {}))
    called: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    pending.then(asyncio.get_running_loop(), lambda done: called.set_result(done.result().sequence))
    assert not called.done()
    assert await called == 1
