"""The contract of batches (atomic), quotas, entities (created and deleted), history, and wake-ups of receivers."""

from collections.abc import Callable

import pytest

from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.commands import (
    COMPLETE,
    DEAD_LETTER,
    LEAVE_SESSION,
    SET_SESSION_STATE,
    Cancel,
    Command,
    Declare,
    Drop,
    Renew,
    SendResult,
    SessionCommand,
)
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION
from unibus.errors import (
    BusClosed,
    BusError,
    EntityExists,
    EntityNotFound,
    LockLost,
    MessageNotFound,
    QuotaExceeded,
    UsageError,
)
from unibus.limits import BATCH_COMMANDS_MAX
from unibus.testing.contracts.rig import SECOND, Contract, Rig, sending, settling


class BatchContract(Contract):
    """A batch is applied as a whole, or not at all."""

    def test_a_batch_is_carried_out_in_its_order(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("r")
        rig.send("q", "a")
        claimed = rig.one("q")
        results = rig.run(settling(COMPLETE, claimed), sending("r", "b"), sending("q", "c"), sending("r", "d"))
        assert results[0] is None
        sent = [(each.entity, each.sequence) for each in results if isinstance(each, SendResult)]
        assert sent == [("r", 1), ("q", 2), ("r", 2)]
        assert (rig.drain("q"), rig.drain("r")) == (["c"], ["b", "d"])

    def test_one_bad_command_and_nothing_has_happened(self, rig: Rig) -> None:
        rig.queue("q", max_count=3)
        rig.queue("s", requires_session=True)
        rig.send("s", "x", session_id="a")
        lock = rig.accept("s", "a")
        rig.send("q", "a")
        claimed = rig.one("q")
        good: list[Command] = [sending("q", "b", dedup_key="k"), settling(COMPLETE, claimed)]
        bad: list[tuple[Command, type[BusError]]] = [
            (sending("nowhere"), EntityNotFound),
            (sending("s"), BusError),
            (settling(COMPLETE, claimed, token=b"?"), LockLost),
            (settling(COMPLETE, claimed), UsageError),
            (Renew("q", 1, b"?"), LockLost),
            (Cancel("q", 1), MessageNotFound),
            (SessionCommand(LEAVE_SESSION, "s", "a", b"?"), LockLost),
            (Declare("other", QUEUE, {}), UsageError),
            (Drop("q"), UsageError),
        ]
        before = rig.picture()
        for command, error in bad:
            with pytest.raises(error):
                rig.run(*good, command)
            assert rig.picture() == before
        with pytest.raises(QuotaExceeded):
            rig.run(*[sending("q", number) for number in range(3)])
        assert rig.picture() == before
        rig.run(*good)
        rig.session(LEAVE_SESSION, lock)

    def test_a_command_that_an_earlier_one_of_its_batch_undid_refuses_the_batch(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("s", requires_session=True)
        rig.send("q", "a")
        claimed = rig.one("q")
        rig.send("s", "x", session_id="a")
        lock = rig.accept("s", "a")
        [inside] = rig.claim_in(lock)
        leave = SessionCommand(LEAVE_SESSION, "s", "a", lock.token)
        state = SessionCommand(SET_SESSION_STATE, "s", "a", lock.token)
        batches: list[list[Command]] = [
            [settling(COMPLETE, claimed), Renew("q", claimed.sequence, claimed.token)],
            [leave, settling(COMPLETE, inside)],
            [leave, Renew("s", inside.sequence, inside.token)],
            [leave, state],
            [leave, leave],
        ]
        before = rig.picture()
        for batch in batches:
            with pytest.raises(BusError):
                rig.run(*batch)
            assert rig.picture() == before
        rig.run(settling(COMPLETE, inside), state, leave, settling(COMPLETE, claimed))

    def test_a_batch_has_a_bound(self, rig: Rig) -> None:
        rig.queue("q")
        with pytest.raises(UsageError):
            rig.run(*[sending("q")] * (BATCH_COMMANDS_MAX + 1))
        assert rig.peek("q") == []

    def test_a_send_may_make_its_queue(self, rig: Rig) -> None:
        assert rig.send("new", "a", creates=QUEUE).sequence == 1
        assert rig.drain("new") == ["a"]

    def test_a_refused_batch_makes_no_queue(self, rig: Rig) -> None:
        with pytest.raises(EntityNotFound):
            rig.run(sending("new", "a", creates=QUEUE), sending("nowhere", "b"))
        with pytest.raises(EntityNotFound):
            rig.peek("new")


class QuotaContract(Contract):
    def test_a_queue_holds_as_many_messages_as_it_may(self, rig: Rig) -> None:
        rig.queue("q", max_count=2)
        rig.fill("q", "ab")
        rig.one("q")  # A locked message counts as well.
        with pytest.raises(QuotaExceeded):
            rig.send("q", "c")
        rig.complete(rig.one("q"))
        rig.send("q", "c")

    def test_a_queue_holds_as_many_bytes_as_it_may(self, rig: Rig) -> None:
        rig.queue("q", max_size_mb=1)
        big = b"x" * 600_000
        rig.send("q", big)
        with pytest.raises(QuotaExceeded):
            rig.send("q", big)
        assert rig.info("q").size_bytes >= 600_000
        rig.drain("q")
        assert rig.info("q").size_bytes == 0
        rig.send("q", big)
        assert rig.drain("q") == [big]

    def test_what_was_accepted_is_never_lost_to_a_quota(self, rig: Rig) -> None:
        rig.queue("q", max_count=1)
        rig.topic("t")
        path = rig.subscription("t", "s", forward_to="q")
        rig.fill("t", "abc")
        assert (rig.drain("q"), [message.body for message in rig.dead(path)]) == (["a"], ["b", "c"])


class EntityContract(Contract):
    """One name space without regard to case; a sequence is never used twice under one name."""

    def test_a_sequence_survives_the_entity(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", "abc")
        rig.settle(DEAD_LETTER, rig.one("q"))
        rig.drop("q")
        rig.queue("Q")
        assert rig.send("q", "d").sequence == 4
        assert rig.drain("q") == ["d"]
        assert rig.peek(sub_queue("Q")) == []

    def test_names_are_found_in_any_case_and_keep_their_own(self, rig: Rig) -> None:
        rig.queue("Orders")
        assert rig.send("ORDERS", "a").entity == "Orders"
        assert [each.entity for each in rig.peek("orders")] == ["Orders"]
        with pytest.raises(EntityExists):
            rig.queue("orders")
        rig.drop("oRDERS")
        assert rig.store.entities().wait() == []

    def test_the_same_again_is_no_change_and_anything_else_an_error(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10.0)
        rig.queue("q", lock_duration=10.0)
        with pytest.raises(EntityExists):
            rig.queue("q", lock_duration=20.0)
        with pytest.raises(EntityExists):
            rig.topic("q")
        assert rig.info("q").settings["lock_duration"] == 10.0

    def test_an_update_changes_what_it_names(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10.0, max_count=5)
        rig.update("q", max_count=7)
        settings = rig.info("q").settings
        assert (settings["lock_duration"], settings["max_count"]) == (10.0, 7)
        with pytest.raises(UsageError):
            rig.update("q", requires_session=True)
        with pytest.raises(EntityNotFound):
            rig.update("nowhere", max_count=1)

    def test_what_does_not_exist_cannot_be_used(self, rig: Rig) -> None:
        calls: list[Callable[[], object]] = [
            lambda: rig.send("nowhere"),
            lambda: rig.claim("nowhere"),
            lambda: rig.claim(sub_queue("nowhere")),
            lambda: rig.peek("nowhere"),
            lambda: rig.drop("nowhere"),
            lambda: rig.accept("nowhere"),
            lambda: rig.run(Cancel("nowhere", 1)),
            lambda: rig.store.watch("nowhere", lambda: None),
            lambda: rig.run(Declare("t/Subscriptions/s", SUBSCRIPTION, {})),
        ]
        for call in calls:
            with pytest.raises(EntityNotFound):
                call()

    def test_subscriptions_and_dead_letter_queues_take_no_sends_and_topics_no_receives(self, rig: Rig) -> None:
        rig.queue("q")
        rig.topic("t")
        path = rig.subscription("t", "s")
        rig.claim(sub_queue("q"))
        for name in (path, sub_queue("q")):
            with pytest.raises(UsageError):
                rig.send(name)
        with pytest.raises(UsageError):
            rig.claim("t")

    def test_a_topic_goes_with_its_subscriptions_and_dead_letters(self, rig: Rig) -> None:
        rig.topic("t")
        path = rig.subscription("t", "s")
        rig.fill("t", "ab")
        rig.settle(DEAD_LETTER, rig.one(path))
        rig.drop("t")
        assert rig.store.entities().wait() == []
        rig.topic("t")
        rig.send("t", "c")
        rig.subscription("t", "s")
        assert rig.peek(path) == []

    def test_a_dropped_subscription_gets_no_copies(self, rig: Rig) -> None:
        rig.topic("t")
        path, other = rig.subscription("t", "s"), rig.subscription("t", "other")
        rig.drop(path)
        rig.send("t", "a")
        assert rig.drain(other) == ["a"]
        with pytest.raises(EntityNotFound):
            rig.claim(path)

    def test_a_name_that_changed_hands_often_still_works(self, rig: Rig) -> None:
        for number in range(6):
            rig.queue("q")
            assert rig.send("q", number).sequence == number + 1
            if number < 5:
                rig.drop("q")
        assert rig.drain("q") == [5]

    def test_the_counts_add_up(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", range(8))
        rig.send("q", "later", visible_ns=rig.now_ns() + 60 * SECOND)
        first, second, third, fourth, *_ = rig.claim("q", 5)
        rig.complete(first)
        rig.abandon(second)
        rig.defer(third)
        rig.settle(DEAD_LETTER, fourth)
        info = rig.info("q")
        assert (info.active, info.locked, info.scheduled, info.deferred, info.dead) == (4, 1, 1, 1, 1)
        held = rig.peek("q")
        assert info.active + info.locked + info.scheduled + info.deferred == len(held)
        assert info.size_bytes == sum(each.who.size for each in held)
        # 9 were sent: the stored ones, one that is completed and one that is dead-lettered.
        assert len(held) + info.dead + 1 == info.last_sequence == 9


class HistoryContract(Contract):
    """Every change once, in order, and no event up to safe_seq appears later."""

    def test_every_change_is_an_event_once_and_in_order(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", "ab")
        first, second = rig.claim("q", 2)
        rig.abandon(first)
        rig.settle(DEAD_LETTER, second, reason="Broken")
        rig.complete(rig.one("q"))
        rig.drop("q")
        found = rig.events()
        assert [event.seq for event in found] == sorted({event.seq for event in found})
        of_queue = [(event.kind, event.sequence) for event in found if event.channel == "q" and event.message_id]
        assert of_queue == [
            ("sent", 1),
            ("sent", 2),
            ("delivered", 1),
            ("delivered", 2),
            ("returned", 1),
            ("dead_lettered", 2),
            ("delivered", 1),
            ("completed", 1),
        ]
        assert next(event.kind for event in found if event.channel == "q") == "declared"
        assert [event.kind for event in found if event.channel == sub_queue("q")] == ["declared", "copied", "dropped"]
        assert [event.reason for event in found if event.kind == "dead_lettered"] == ["Broken"]

    def test_a_terminal_event_tells_the_whole_way(self, rig: Rig) -> None:
        rig.queue("q")
        sent_us = rig.now_ns() // 1_000
        rig.send("q", "a", message_id="m1")
        rig.advance(2)
        rig.abandon(rig.one("q"))
        rig.advance(3)
        rig.complete(rig.one("q"))
        event = rig.events()[-1]
        assert (event.kind, event.message_id, event.delivery_count) == ("completed", "m1", 2)
        assert (event.enqueued_us, event.first_delivered_us) == (sent_us, sent_us + 2_000_000)
        assert event.ts == sent_us + 5_000_000

    def test_a_reader_that_goes_on_where_it_stopped_misses_nothing(self, rig: Rig) -> None:
        rig.queue("q")
        parts = []
        seq = 0
        for number in range(10):
            rig.send("q", number)
            part = rig.all_events(seq)
            seq = part[-1].seq
            parts += part
            rows, safe = rig.store.history.events_after(seq, 10)
            assert (rows, safe >= seq) == ([], True)
        assert parts == rig.all_events()

    def test_a_cursor_is_kept_by_name(self, rig: Rig) -> None:
        assert rig.store.history.cursor("reader") == 0
        rig.store.history.move_cursor("reader", 5)
        rig.store.history.move_cursor("other", 7)
        rig.store.history.move_cursor("reader", 6)
        assert (rig.store.history.cursor("reader"), rig.store.history.cursor("other")) == (6, 7)

    def test_who_watches_history_is_called_once_when_it_has_grown(self, rig: Rig) -> None:
        calls: list[str] = []
        rig.queue("q")
        rig.store.history.watch(lambda: calls.append("a"))
        stop = rig.store.history.watch(lambda: calls.append("stopped"))
        stop()
        stop()
        rig.send("q", "a")
        assert calls == ["a"]
        rig.send("q", "b")
        assert calls == ["a"]  # Watching again is up to the caller.
        rig.store.history.watch(lambda: calls.append("c"))
        rig.send("q", "c")
        assert calls == ["a", "c"]

    def test_what_time_does_is_history_too(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10)
        rig.send("q", "a", ttl_ns=15 * SECOND)
        rig.one("q")
        rig.advance(20)
        rig.send("q", "b")
        kinds = [event.kind for event in rig.events() if event.sequence == 1 and event.message_id]
        assert kinds == ["sent", "delivered", "returned", "expired"]


class WatchContract(Contract):
    """A watcher is called once when there may be a message. A call may be spurious, but none may be missing."""

    def watched(self, rig: Rig, entity: str) -> list[int]:
        calls: list[int] = []
        rig.store.watch(entity, lambda: calls.append(1))
        return calls

    def test_a_message_wakes_who_waits(self, rig: Rig) -> None:
        rig.queue("q")
        calls = self.watched(rig, "q")
        rig.send("q", "a")
        assert calls == [1]
        rig.send("q", "b")
        assert calls == [1]

    def test_what_comes_back_and_what_becomes_visible_wakes_too(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10)
        rig.send("q", "a")
        claimed = rig.one("q")
        calls = self.watched(rig, "q")
        rig.abandon(claimed)
        assert calls == [1]
        rig.one("q")
        calls = self.watched(rig, "q")
        rig.advance(10)
        assert calls == [1]
        rig.drain("q")
        rig.send("q", "b", visible_ns=rig.now_ns() + 5 * SECOND)
        calls = self.watched(rig, "q")
        rig.advance(5)
        assert calls == [1]

    def test_a_subscription_and_a_dead_letter_queue_can_be_watched(self, rig: Rig) -> None:
        rig.topic("t")
        path = rig.subscription("t", "s")
        calls, dead_calls = self.watched(rig, path), self.watched(rig, sub_queue(path))
        rig.send("t", "a")
        rig.settle(DEAD_LETTER, rig.one(path))
        assert (calls, dead_calls) == ([1], [1])

    def test_who_stops_watching_is_not_called_and_passes_his_call_on(self, rig: Rig) -> None:
        rig.queue("q")
        calls: list[str] = []
        stop_first = rig.store.watch("q", lambda: calls.append("first"))
        rig.store.watch("q", lambda: calls.append("second"))
        stop_third = rig.store.watch("q", lambda: calls.append("third"))
        stop_third()
        rig.send("q", "a")
        stop_first()  # Whether it was called or not: one of the watchers must get the message.
        assert calls in (["first", "second"], ["second"])

    def test_a_watch_that_is_over_does_not_stop_the_next_one_of_the_same_caller(self, rig: Rig) -> None:
        rig.queue("q")
        calls: list[str] = []

        class Caller:
            def woken(self) -> None:
                calls.append("woken")

        caller = Caller()
        stop_first = rig.store.watch("q", caller.woken)
        rig.send("q", "a")
        rig.drain("q")
        rig.store.watch("q", caller.woken)
        stop_first()
        rig.send("q", "b")
        assert calls == ["woken", "woken"]

    def test_a_session_that_becomes_free_wakes(self, rig: Rig) -> None:
        rig.queue("q", requires_session=True)
        calls = self.watched(rig, "q")
        rig.send("q", "a", session_id="c1")
        assert calls == [1]
        lock = rig.accept("q")
        calls = self.watched(rig, "q")
        rig.session(LEAVE_SESSION, lock)
        assert calls == [1]

    def test_the_end_of_the_entity_and_of_the_store_wakes(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("r")
        calls, others = self.watched(rig, "q"), self.watched(rig, "r")
        rig.drop("q")
        assert calls == [1]
        rig.store.close()
        assert others == [1]

    def test_a_closed_store_says_so(self, rig: Rig) -> None:
        rig.queue("q")
        assert rig.store.health().ok
        rig.store.close()
        rig.store.close()
        assert not rig.store.health().ok
        for call in (lambda: rig.send("q"), lambda: rig.claim("q"), lambda: rig.peek("q")):
            with pytest.raises(BusClosed):
                call()
