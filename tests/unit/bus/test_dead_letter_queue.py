"""Single dead-lettered messages: found by a filter, and moved in one change of the store, without their record."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.unit.bus.dead_letter_rig import DeadLetterOperations, dead_letter, dead_letter_next, dead_letter_queue_of
from tests.unit.bus.probes import SECOND, Collector, Flaky, HandClock
from tests.unit.bus.rigs import Rig
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.compat.backends import InMemoryQueueBackend
from unibus.bus.dead_letters.filters import DeadLetterFilter
from unibus.errors import UsageError

RECOVERIES = "DeadLetterRecoveryAttempts"


@pytest.fixture
def dlq(rig: Rig) -> DeadLetterOperations:
    return DeadLetterOperations(rig)


# Reading


def test_a_dead_message_has_its_original_and_the_failure(rig: Rig, dlq: DeadLetterOperations) -> None:
    before = datetime.now(UTC)
    sent = rig.send("orders", {"n": 1}, headers={"k": "v"}, session_id="s")
    message = rig.one("orders")
    rig.do(lambda: message.dead_letter("Broken", "bent at the corner", {"extra": 7}))
    (dead_message,) = dlq.list_messages()
    assert (dead_message.id, dead_message.entity, dead_message.sequence) == (sent.id, dead_letter_queue_of("orders"), 1)
    assert (dead_message.source, dead_message.failure_reason, dead_message.description) == (
        "orders",
        "Broken",
        "bent at the corner",
    )
    assert (dead_message.attempts, dead_message.recovery_attempts, dead_message.state) == (1, 0, "active")
    assert dead_message.retry_count == 0
    assert (dead_message.session_id, dead_message.last_error) == ("s", "bent at the corner")
    assert before <= dead_message.failure_timestamp <= datetime.now(UTC)
    original = dead_message.original
    assert (original.id, original.body, original.sequence) == (sent.id, {"n": 1}, 1)
    assert dict(original.headers) == {"k": "v", "extra": 7}
    assert rig.counts("orders") == (0, 0, 0, 0, 1)


def test_the_error_of_a_block_that_raised_is_the_last_error(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_queue("orders", max_delivery_count=1)
    rig.send("orders", 1)
    message = rig.one("orders")
    rig.do(lambda: message.abandon(properties={"LastError": "OSError: no route"}))
    (dead_message,) = dlq.list_messages(error="oserror")
    assert (dead_message.failure_reason, dead_message.last_error) == ("MaxDeliveryCountExceeded", "OSError: no route")


def test_there_is_nothing_to_find(rig: Rig, dlq: DeadLetterOperations) -> None:
    assert dlq.list_messages() == []
    assert dlq.groups() == []
    rig.create_queue("q")
    assert dlq.list_messages(queue="q") == []
    assert dlq.list_messages(queue="unknown") == []


def test_the_first_to_die_comes_first_whatever_its_queue(timed_rig: Rig, hand_clock: HandClock) -> None:
    dlq, ids = DeadLetterOperations(timed_rig), []
    for number, entity in enumerate(["b", "a", "b", "c", "a"]):
        ids.append(dead_letter(timed_rig, entity, number))
        hand_clock.advance(1)
    assert dlq.ids() == ids
    assert dlq.ids(limit=2) == ids[:2]


def test_pages_follow_each_other_also_when_a_dead_message_is_gone(rig: Rig, dlq: DeadLetterOperations) -> None:
    ids = [dead_letter(rig, "ab"[number % 2], number) for number in range(7)]
    first = dlq.list_messages(limit=3)
    assert [dead_message.id for dead_message in first] == ids[:3]
    assert dlq.discard_message(first[-1]).success
    assert dlq.ids(limit=3, after=first[-1]) == ids[3:6]
    assert dlq.query_dlq({"limit": 9, "after": dlq.list_messages(limit=5)[-1]}) == dlq.list_messages()[5:]


def test_the_reason_of_a_discard_is_what_stores_have_always_kept(rig: Rig, dlq: DeadLetterOperations) -> None:
    # Queries over history compare it, and old stores are full of it.
    dead_letter(rig, "q", 1)
    assert dlq.discard_message(dlq.list_messages()[0]).success
    assert [each.reason for each in rig.events_after()[0] if each.kind == "purged"][
        -1
    ] == "discarded from the dead letters"


def of_each_kind(rig: Rig, clock: HandClock) -> dict[str, str]:
    """Messages that differ in every property that a filter has."""
    found = {"old": dead_letter(rig, "orders", {"n": 1}, "Broken", "bent")}
    clock.advance(100)
    found["retried"] = dead_letter(rig, "orders", {"n": 2}, "network: max_retries_exceeded", "no ROUTE to host")
    DeadLetterOperations(rig).retry_message(found["retried"])
    dead_letter_next(rig, "orders", "network: max_retries_exceeded", "no ROUTE to host")
    clock.advance(100)
    rig.create_queue("billing.eu", max_delivery_count=3)
    found["tried"] = rig.send("billing.eu", {"n": 3}).id
    for _ in range(3):
        message = rig.one("billing.eu")
        rig.do(lambda message=message: message.abandon(properties={"LastError": "ValueError: odd"}))
    clock.advance(100)
    return found


CHOSEN: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"old", "retried", "tried"}),
    ({"queue": "orders"}, {"old", "retried"}),
    ({"queue": "ORDERS"}, {"old", "retried"}),
    ({"queue": "billing.*"}, {"tried"}),
    ({"entity": "orders/$DeadLetterQueue"}, {"old", "retried"}),
    ({"queue": "order"}, set()),
    ({"source": "*.eu"}, {"tried"}),
    ({"reason": "NETWORK"}, {"retried"}),
    ({"error": "valueerror"}, {"tried"}),
    ({"signature": "odd"}, {"tried"}),
    ({"description": "route"}, {"retried"}),
    ({"older_than": 250}, {"old"}),
    ({"older_than": timedelta(seconds=150)}, {"old", "retried"}),
    ({"newer_than": 150}, {"tried"}),
    ({"older_than": 150, "newer_than": 250}, {"retried"}),
    ({"attempts_from": 3}, {"tried"}),
    ({"attempts_below": 3}, {"old", "retried"}),
    ({"recoveries_from": 1}, {"retried"}),
    ({"recoveries_below": 1}, {"old", "tried"}),
    ({"where": lambda message: message.body["n"] > 1}, {"retried", "tried"}),
    ({"where": lambda message: message.body["n"] > 1, "queue": "orders"}, {"retried"}),
    ({"predicate": lambda message: message.headers.get(RECOVERIES) == 1}, {"retried"}),
]


def test_filters_choose_by_everything_that_is_known(timed_rig: Rig, hand_clock: HandClock) -> None:
    found = of_each_kind(timed_rig, hand_clock)
    dlq = DeadLetterOperations(timed_rig)
    for criteria, wanted in CHOSEN:
        assert set(dlq.ids(criteria)) == {found[name] for name in wanted}, criteria
        assert dlq.query_dlq(criteria) == dlq.list_messages(**criteria)
    assert dlq.ids(id=found["old"]) == [found["old"]]
    assert dlq.ids(DeadLetterFilter(ids=(found["old"], found["tried"], "x"))) == [found["old"], found["tried"]]


@pytest.mark.parametrize(
    "criteria",
    [
        {"resaon": "x"},
        {"queue": 1},
        {"older_than": "2h"},
        {"older_than": -1},
        {"attempts_below": -1},
        {"attempts_from": True},
        {"ids": 7},
        {"ids": ()},
        {"where": "body"},
        {"limit": 0},
        {"after": "x"},
    ],
    ids=str,
)
def test_a_filter_that_cannot_be_is_refused(criteria: dict[str, Any]) -> None:
    with SyncMessageBus() as bus:
        manager = bus.dead_letter_queue()
        with pytest.raises(UsageError):
            manager.query_dlq(criteria)
        with pytest.raises(UsageError):
            manager.list_messages(DeadLetterFilter(), queue="q")


def test_an_unknown_criterion_is_named_with_the_one_that_was_meant() -> None:
    with SyncMessageBus() as bus, pytest.raises(UsageError, match="did you mean 'reason'"):
        bus.dead_letter_queue().list_messages(resaon="x")


def test_dead_messages_are_counted_by_place_and_reason(timed_rig: Rig, hand_clock: HandClock) -> None:
    dlq = DeadLetterOperations(timed_rig)
    dead_letter(timed_rig, "b", 1, "One")
    hand_clock.advance(5)
    for body in range(3):
        dead_letter(timed_rig, "a", body, "Two")
    dead_letter(timed_rig, "a", 9, "One")
    found_groups = [(group.entity, group.reason, group.count) for group in dlq.groups()]
    assert found_groups == [
        (dead_letter_queue_of("a"), "Two", 3),
        (dead_letter_queue_of("a"), "One", 1),
        (dead_letter_queue_of("b"), "One", 1),
    ]
    assert [group.oldest_ns for group in dlq.groups(queue="b")] == [hand_clock.wall - 5 * SECOND]


def test_a_dead_message_by_its_id(rig: Rig, dlq: DeadLetterOperations) -> None:
    message_id = dead_letter(rig, "q", "x")
    dead_message = dlq.peek(message_id)
    assert (dead_message.id, dead_message.original.body) == (message_id, "x")
    assert dlq.peek(dead_message) == dead_message
    assert dlq.peek("unknown") is None
    assert dlq.peek(message_id, queue="other") is None


def test_what_was_forwarded_is_found_in_the_target(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_queue("failures")
    rig.create_queue("orders", forward_dead_letters_to="failures")
    rig.send("failures", "not dead")
    message_id = dead_letter(rig, "orders", "x")
    (dead_message,) = dlq.list_messages()
    assert (dead_message.id, dead_message.entity, dead_message.source) == (message_id, "failures", "orders")
    assert dlq.ids(queue="failures") == [message_id]
    assert dlq.ids(source="orders") == [message_id]
    assert dlq.retry_message(dead_message).success
    assert rig.counts("failures")[0] == 1
    assert rig.one("orders").id == message_id


def test_what_was_forwarded_to_a_topic_is_found_in_its_subscriptions(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_topic("failures")
    rig.create_subscription("failures", "log")
    rig.create_queue("orders", forward_dead_letters_to="failures")
    message_id = dead_letter(rig, "orders", "x")
    assert [(each.id, each.entity) for each in dlq.list_messages()] == [(message_id, "failures/Subscriptions/log")]


# Retry


def test_a_retry_goes_back_to_its_queue_without_the_record(rig: Rig, dlq: DeadLetterOperations) -> None:
    message_id = dead_letter(rig, "orders", {"n": 1}, headers={"k": "v"}, priority=7)
    result = dlq.retry_message(message_id)
    assert (result.success, bool(result), result.id, result.entity, result.sequence) == (
        True,
        True,
        message_id,
        "orders",
        2,
    )
    assert rig.counts("orders") == (1, 0, 0, 0, 0)
    message = rig.one("orders")
    assert (message.id, message.body, message.delivery_count, message.priority) == (message_id, {"n": 1}, 1, 7)
    assert dict(message.headers) == {"k": "v", RECOVERIES: 1}


def test_a_dead_message_may_be_given_as_it_was_listed(rig: Rig, dlq: DeadLetterOperations) -> None:
    dead_letter(rig, "orders", 1)
    assert dlq.retry_message(dlq.list_messages()[0]).success
    assert dlq.list_messages() == []


def test_a_retry_in_a_subscription_does_not_reach_the_others(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_topic("t")
    rig.create_subscription("t", "a")
    rig.create_subscription("t", "b")
    rig.send("t", "x")
    dead_letter_next(rig, "t/Subscriptions/a")
    assert dlq.retry_message(dlq.list_messages()[0]).entity == "t/Subscriptions/a"
    assert rig.counts("t/Subscriptions/a")[0] == 1
    assert rig.counts("t/Subscriptions/b")[0] == 1


def test_what_settlements_wrote_is_kept_with_its_types(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.send("q", 1)
    message = rig.one("q")
    written = {"u": UUID(int=5), "d": timedelta(seconds=3), "b": b"\x00", "f": 1.5}
    rig.do(lambda: message.dead_letter("Broken", "", written))
    (dead_message,) = dlq.list_messages()
    assert dict(dead_message.original.headers) == written
    assert dlq.retry_message(dead_message).success
    assert dict(rig.one("q").headers) == {**written, RECOVERIES: 1}


def test_recoveries_are_counted_over_failures_and_bounded(rig: Rig, dlq: DeadLetterOperations) -> None:
    message_id = dead_letter(rig, "q", 1)
    for times in (1, 2, 3):
        assert dlq.retry_message(message_id).success
        assert dead_letter_next(rig, "q").headers[RECOVERIES] == times
    refused = dlq.retry_message(message_id)
    assert (refused.success, "3 times" in refused.message) == (False, True)
    assert rig.counts("q") == (0, 0, 0, 0, 1)
    assert dlq.list_messages()[0].recovery_attempts == 3
    assert DeadLetterOperations(rig, max_recoveries=4).retry_message(message_id).success
    dead_letter_next(rig, "q")
    assert not DeadLetterOperations(rig, max_recoveries=0).retry_message(message_id)
    assert dlq.retry_message(message_id, force=True).success


def test_a_retry_to_where_nothing_is_any_more_is_refused(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_queue("failures")
    rig.create_queue("orders", forward_dead_letters_to="failures")
    message_id = dead_letter(rig, "orders", 1)
    rig.delete_entity("orders")
    (dead_message,) = dlq.list_messages(queue="failures")
    refused = dlq.retry_message(dead_message)
    assert (refused.success, "'orders'" in refused.message, refused.id) == (False, True, message_id)
    assert rig.counts("failures")[0] == 1


def test_an_id_that_several_have_needs_a_queue(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_topic("t")
    rig.create_subscription("t", "a")
    rig.create_subscription("t", "b")
    message_id = rig.send("t", "x").id
    for name in "ab":
        dead_letter_next(rig, f"t/Subscriptions/{name}")
    refused = dlq.retry_message(message_id)
    assert (refused.success, "2 dead-lettered messages" in refused.message) == (False, True)
    assert dlq.peek(message_id) is None
    assert dlq.retry_message(message_id, queue="t/Subscriptions/a").success
    assert dlq.retry_message(message_id).entity == "t/Subscriptions/b"


def test_a_message_that_does_not_exist_is_a_refusal(rig: Rig, dlq: DeadLetterOperations) -> None:
    message_id = dead_letter(rig, "q", 1)
    (dead_message,) = dlq.list_messages()
    assert dlq.discard_message(dead_message).success
    for refused in (
        dlq.retry_message(dead_message),
        dlq.discard_message(message_id),
        dlq.edit_and_resend(dead_message, body=2),
    ):
        assert (refused.success, refused.message, refused.id) == (
            False,
            f"there is no dead-lettered message {message_id}",
            message_id,
        )


def test_a_locked_dead_message_is_not_moved(rig: Rig, dlq: DeadLetterOperations) -> None:
    message_id = dead_letter(rig, "q", 1)
    held = rig.one(dead_letter_queue_of("q"))
    assert dlq.list_messages()[0].state == "locked"
    refused = dlq.retry_message(message_id)
    assert (refused.success, "locked" in refused.message) == (False, True)
    rig.do(held.complete)
    assert dlq.list_messages() == []


def test_a_dead_message_that_was_deferred_can_be_moved(rig: Rig, dlq: DeadLetterOperations) -> None:
    message_id = dead_letter(rig, "q", 1)
    rig.do(rig.one(dead_letter_queue_of("q")).defer)
    assert dlq.list_messages()[0].state == "deferred"
    assert dlq.retry_message(message_id).success
    assert rig.one("q").id == message_id


def test_something_else_is_no_dead_message(rig: Rig, dlq: DeadLetterOperations) -> None:
    with pytest.raises(UsageError):
        dlq.retry_message(7)


# Redirect, discard, edit


def test_a_redirect_goes_elsewhere(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_queue("review")
    message_id = dead_letter(rig, "q", 1)
    result = dlq.redirect_message(message_id, "review")
    assert (result.success, result.entity) == (True, "review")
    message = rig.one("review")
    assert (message.id, dict(message.headers)) == (message_id, {RECOVERIES: 1})


def test_a_redirect_can_keep_the_record(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_queue("review")
    assert dlq.redirect_message(dead_letter(rig, "q", 1, "Odd"), "review", keep_record=True).success
    headers = rig.one("review").headers
    assert (headers["DeadLetterReason"], headers["DeadLetterSource"], headers[RECOVERIES]) == ("Odd", "q", 1)


def test_a_redirect_to_a_topic_reaches_its_subscriptions(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_topic("t")
    for name in "ab":
        rig.create_subscription("t", name)
    message_id = dead_letter(rig, "q", 1)
    assert dlq.redirect_message(message_id, "t").success
    assert {rig.one(f"t/Subscriptions/{name}").id for name in "ab"} == {message_id}


def test_no_message_is_redirected_into_nothing(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_topic("deaf")
    message_id = dead_letter(rig, "q", 1)
    for target in ("deaf", "unknown", dead_letter_queue_of("q")):
        assert not dlq.redirect_message(message_id, target)
    assert dlq.ids() == [message_id]


def test_a_queue_of_sessions_takes_only_what_has_one(rig: Rig, dlq: DeadLetterOperations) -> None:
    rig.create_queue("s", requires_session=True)
    without = dead_letter(rig, "q", 1)
    refused = dlq.redirect_message(without, "s")
    assert (refused.success, "requires a session_id" in refused.message) == (False, True)
    assert dlq.redirect_message(dead_letter(rig, "q", 2, session_id="c1"), "s").success
    assert dlq.ids() == [without]


def test_a_dead_message_that_is_discarded_is_gone(rig: Rig, dlq: DeadLetterOperations) -> None:
    message_id = dead_letter(rig, "q", 1)
    assert dlq.discard_message(message_id).success
    assert rig.counts("q") == (0, 0, 0, 0, 0)


def test_a_message_is_edited_and_resent(rig: Rig, dlq: DeadLetterOperations) -> None:
    message_id = dead_letter(rig, "q", {"n": "one"}, headers={"k": "v", "old": 1}, correlation_id="c", priority=3)
    assert dlq.edit_and_resend(message_id, body={"n": 1}, headers={"k": "w"}).success
    message = rig.one("q")
    assert (message.id, message.body, message.correlation_id, message.priority) == (message_id, {"n": 1}, "c", 3)
    assert dict(message.headers) == {"k": "w", "old": 1, RECOVERIES: 1}
    rig.do(lambda: message.dead_letter("Again"))
    rig.create_queue("other")
    assert dlq.edit_and_resend(message_id, headers={"k": "x"}, target="other").entity == "other"
    message = rig.one("other")
    assert (message.body, message.headers["k"], message.headers[RECOVERIES]) == ({"n": 1}, "x", 2)
    assert "DeadLetterReason" not in message.headers


def test_a_body_can_become_none(rig: Rig, dlq: DeadLetterOperations) -> None:
    assert dlq.edit_and_resend(dead_letter(rig, "q", 1), body=None).success
    assert rig.one("q").body is None


def test_an_edit_that_cannot_go_changes_nothing(rig: Rig, dlq: DeadLetterOperations) -> None:
    message_id = dead_letter(rig, "q", 1)
    assert not dlq.edit_and_resend(message_id, body=2, target="unknown")
    (dead_message,) = dlq.list_messages()
    assert (dead_message.original.body, dead_message.recovery_attempts) == (1, 0)


# Around it


def test_a_move_survives_the_end_of_the_bus(file_rig: Rig) -> None:
    first, second = dead_letter(file_rig, "q", 1), dead_letter(file_rig, "q", 2)
    assert DeadLetterOperations(file_rig).retry_message(first).success
    file_rig.reopen()
    dlq = DeadLetterOperations(file_rig)
    assert dlq.ids() == [second]
    assert dlq.list_messages()[0].original.body == 2
    assert file_rig.one("q").id == first


def test_a_move_is_in_history(rig: Rig, dlq: DeadLetterOperations) -> None:
    message_id = dead_letter(rig, "q", 1)
    dlq.retry_message(message_id)
    dead_letter_next(rig, "q")
    dlq.discard_message(message_id)
    events, _ = rig.events_after()
    kinds = [event.kind for event in events if event.message_id == message_id]
    assert kinds[-1] == "purged"
    assert "moved" in kinds


def test_dead_messages_are_not_moved_inside_of_a_transaction(tmp_path: Any) -> None:
    with SyncMessageBus(persistence_path=tmp_path / "bus.db") as bus:
        bus.send("q", 1)
        bus.receive_batch("q", 1, 0)[0].dead_letter("Broken")
        manager = bus.dead_letter_queue()
        with bus.transaction():
            (dead_message,) = manager.list_messages()
            for verb in (manager.retry_message, manager.discard_message, manager.edit_and_resend):
                with pytest.raises(UsageError, match="transaction"):
                    verb(dead_message)
            with pytest.raises(UsageError, match="transaction"):
                manager.retry_all()
        assert manager.retry_message(dead_message).success


def test_a_persistent_channel_gets_it_back_in_the_group_where_it_died(tmp_path: Any) -> None:
    with SyncMessageBus(tmp_path / "bus.db") as bus:
        flaky, other = Flaky(1), Collector()
        bus.subscribe("orders", flaky, 0, group="flaky")
        bus.subscribe("orders", other, 0, group="other")
        bus.publish("orders", 1)
        assert bus.drain(10)
        manager = bus.dead_letter_queue()
        (dead_message,) = manager.list_messages()
        assert (dead_message.error_type, dead_message.attempts) == ("ValueError", 1)
        assert manager.retry_message(dead_message).success
        assert bus.drain(10)
        assert len(flaky.seen) == 2
        assert other.wait(1) == [1]
        assert manager.list_messages() == []


async def test_the_queue_may_be_awaited_and_need_not() -> None:
    async with MessageBus() as bus:
        plain, awaited = bus.dead_letter_queue(), await bus.dead_letter_queue()
        assert await plain.list_messages() == await awaited.list_messages() == []


def test_the_number_of_recoveries_is_checked() -> None:
    with SyncMessageBus() as bus:
        for wrong in (-1, True, "3"):
            with pytest.raises(UsageError):
                bus.dead_letter_queue(wrong)


async def test_a_bus_on_a_backend_has_none() -> None:
    async with MessageBus(InMemoryQueueBackend()) as bus:
        with pytest.raises(UsageError, match="backend"):
            bus.dead_letter_queue()
