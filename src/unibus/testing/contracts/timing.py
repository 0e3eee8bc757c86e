"""The contract of time: messages that expire, scheduled messages, and duplicates within a window."""

import pytest

from unibus.core.flow.deadletter import REASON_HEADER, TTL_EXPIRED
from unibus.core.lifecycle.commands import Cancel, SendResult
from unibus.errors import DuplicateMessage, LockLost, MessageNotFound
from unibus.testing.contracts.rig import SECOND, Contract, Rig, bodies, sending


class ExpiryContract(Contract):
    """The shorter time-to-live of message and entity. A locked message can be completed; a deferred one stays."""

    def test_a_message_expires_at_its_instant(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a", ttl_ns=5 * SECOND)
        rig.advance(4.999)
        assert rig.info("q").active == 1
        rig.advance(0.001)
        assert rig.claim("q") == []
        assert rig.peek("q") == []

    def test_the_entity_has_a_ttl_too_and_the_shorter_counts(self, rig: Rig) -> None:
        rig.queue("q", default_ttl=10)
        rig.send("q", "entity's")
        rig.send("q", "own", ttl_ns=5 * SECOND)
        rig.send("q", "too long", ttl_ns=50 * SECOND)
        rig.advance(5)
        assert bodies(rig.peek("q")) == ["entity's", "too long"]
        rig.advance(5)
        assert rig.peek("q") == []

    def test_without_any_ttl_a_message_stays(self, rig: Rig) -> None:
        rig.queue("q", default_ttl=None)
        rig.send("q", "a")
        rig.advance(15 * 24 * 3600)  # The default would be fourteen days.
        assert rig.drain("q") == ["a"]

    def test_an_expired_message_is_a_dead_letter_where_the_entity_says_so(self, rig: Rig) -> None:
        rig.queue("q", dead_letter_on_expiration=True)
        rig.send("q", "a", ttl_ns=5 * SECOND)
        rig.advance(5)
        [message] = rig.dead("q")
        assert (message.body, message.headers[REASON_HEADER]) == ("a", TTL_EXPIRED)

    def test_a_locked_message_can_be_finished_after_its_time(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=60)
        rig.send("q", "a", ttl_ns=5 * SECOND)
        claimed = rig.one("q")
        rig.advance(30)
        rig.complete(claimed)
        assert rig.peek("q") == []

    def test_a_locked_message_that_comes_back_after_its_time_is_gone(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=60, dead_letter_on_expiration=True)
        rig.fill("q", "ab", ttl_ns=5 * SECOND)
        rig.abandon(rig.one("q"), delay_ns=20 * SECOND)
        claimed = rig.one("q")
        rig.advance(30)
        assert bodies(rig.peek("q")) == ["b"]
        rig.abandon(claimed)
        assert rig.claim("q") == []
        assert [message.headers[REASON_HEADER] for message in rig.dead("q")] == [TTL_EXPIRED] * 2

    def test_a_lock_that_ends_after_the_messages_time_does_not_bring_it_back(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10)
        rig.send("q", "a", ttl_ns=5 * SECOND)
        claimed = rig.one("q")
        rig.advance(10)
        assert rig.claim("q") == []
        with pytest.raises(LockLost):
            rig.complete(claimed)

    def test_a_deferred_message_does_not_expire(self, rig: Rig) -> None:
        rig.queue("q", default_ttl=5)
        rig.send("q", "a")
        rig.defer(rig.one("q"))
        rig.advance(3600)
        assert bodies(rig.deferred("q", 1)) == ["a"]


class ScheduleContract(Contract):
    """Not before its time, and then at the end of the queue, as if it were sent at that time."""

    def test_it_is_not_early_and_takes_a_new_sequence_at_the_end(self, rig: Rig) -> None:
        rig.queue("q")
        result = rig.send("q", "later", visible_ns=rig.now_ns() + 10 * SECOND)
        rig.send("q", "now")
        assert (result.sequence, rig.info("q").scheduled) == (1, 1)
        rig.advance(9.999)
        assert bodies(rig.claim("q", 9, lock=False)) == ["now"]
        rig.send("q", "meanwhile")
        rig.advance(0.001)
        claimed = rig.claim("q", 9)
        assert [(each.sequence, *bodies([each])) for each in claimed] == [(3, "meanwhile"), (4, "later")]

    def test_those_of_one_instant_come_in_the_order_of_their_sending(self, rig: Rig) -> None:
        rig.queue("q")
        at_ns = rig.now_ns() + 10 * SECOND
        rig.fill("q", "abc", visible_ns=at_ns)
        rig.send("q", "first", visible_ns=at_ns - SECOND)
        rig.advance(20)
        assert rig.drain("q") == ["first", "a", "b", "c"]

    def test_an_instant_of_the_past_means_now(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a", visible_ns=rig.now_ns() - SECOND)
        assert rig.drain("q") == ["a"]

    def test_the_ttl_begins_when_it_becomes_visible(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a", visible_ns=rig.now_ns() + 100 * SECOND, ttl_ns=5 * SECOND)
        rig.advance(104.999)
        assert rig.info("q").active == 1
        rig.advance(0.001)
        assert rig.peek("q") == []

    def test_it_can_be_cancelled_until_then(self, rig: Rig) -> None:
        rig.queue("q")
        first, second = rig.fill("q", "ab", visible_ns=rig.now_ns() + 10 * SECOND)
        rig.run(Cancel("q", first))
        with pytest.raises(MessageNotFound):
            rig.run(Cancel("q", first))
        rig.advance(10)
        with pytest.raises(MessageNotFound):
            rig.run(Cancel("q", second))
        assert rig.drain("q") == ["b"]

    def test_only_scheduled_messages_can_be_cancelled(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", "abc")
        rig.abandon(rig.one("q"), delay_ns=10 * SECOND)
        rig.one("q")
        before = rig.picture()
        for sequence in (1, 2, 3, 4):
            with pytest.raises(MessageNotFound):
                rig.run(Cancel("q", sequence))
        assert rig.picture() == before


class DedupContract(Contract):
    """A key is known for the window of the entity. A duplicate is reported, and not stored."""

    def test_a_dedup_key_is_heeded_without_any_setting(self, rig: Rig) -> None:
        rig.queue("q")
        first = rig.send("q", "a", dedup_key="k")
        second = rig.send("q", "b", dedup_key="k")
        assert (first.duplicate, first.sequence) == (False, 1)
        assert second.duplicate
        assert not rig.send("q", "c", dedup_key="other").duplicate
        assert rig.drain("q") == ["a", "c"]

    def test_a_key_is_known_although_its_message_is_gone(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a", dedup_key="k")
        rig.drain("q")
        assert rig.send("q", "b", dedup_key="k").duplicate

    def test_an_id_is_heeded_where_the_entity_has_a_window(self, rig: Rig) -> None:
        rig.queue("plain")
        rig.queue("q", dedup_window=60)
        for name, stored in (("plain", ["a", "b"]), ("q", ["a"])):
            rig.send(name, "a", message_id="m1")
            rig.send(name, "b", message_id="m1")
            assert rig.drain(name) == stored

    def test_after_its_window_a_key_is_new_again(self, rig: Rig) -> None:
        rig.queue("q", dedup_window=60)
        rig.send("q", "a", message_id="m1")
        rig.advance(59.999)
        assert rig.send("q", "b", message_id="m1").duplicate  # This one does not prolong the window.
        rig.advance(0.001)
        assert not rig.send("q", "c", message_id="m1").duplicate
        assert rig.drain("q") == ["a", "c"]

    def test_a_key_without_a_window_of_its_own_is_known_for_ten_minutes(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a", dedup_key="k")
        rig.advance(599)
        assert rig.send("q", "b", dedup_key="k").duplicate
        rig.advance(1)
        assert not rig.send("q", "c", dedup_key="k").duplicate

    def test_duplicates_within_one_batch_are_found(self, rig: Rig) -> None:
        rig.queue("q")
        results = rig.run(sending("q", "a", dedup_key="k"), sending("q", "b", dedup_key="k"))
        assert [result.duplicate for result in results if isinstance(result, SendResult)] == [False, True]
        assert rig.drain("q") == ["a"]

    def test_a_batch_that_was_refused_leaves_no_mark(self, rig: Rig) -> None:
        rig.queue("q")
        with pytest.raises(MessageNotFound):
            rig.run(sending("q", "a", dedup_key="k"), Cancel("q", 99))
        assert not rig.send("q", "b", dedup_key="k").duplicate

    def test_scheduled_messages_are_deduplicated_when_they_are_sent(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a", dedup_key="k", visible_ns=rig.now_ns() + 10 * SECOND)
        assert rig.send("q", "b", dedup_key="k").duplicate
        rig.advance(10)
        assert rig.drain("q") == ["a"]

    def test_entities_do_not_know_each_others_keys(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("r")
        rig.send("q", "a", dedup_key="k")
        assert not rig.send("r", "a", dedup_key="k").duplicate

    def test_a_topic_deduplicates_before_it_copies(self, rig: Rig) -> None:
        rig.topic("t")
        path = rig.subscription("t", "s")
        rig.send("t", "a", dedup_key="k")
        assert rig.send("t", "b", dedup_key="k").duplicate
        assert rig.drain(path) == ["a"]

    def test_a_key_is_marked_also_where_the_message_cannot_be_forwarded(self, rig: Rig) -> None:
        rig.queue("q", forward_to="nowhere")
        rig.send("q", "a", dedup_key="k")
        assert rig.send("q", "b", dedup_key="k").duplicate
        assert len(rig.dead("q")) == 1

    def test_a_duplicate_is_an_error_for_those_who_ask(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a", dedup_key="k", raises=True)
        with pytest.raises(DuplicateMessage):
            rig.send("q", "b", dedup_key="k", raises=True)
        assert rig.drain("q") == ["a"]
