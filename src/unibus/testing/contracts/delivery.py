"""The contract of a queue: order, locks, fencing tokens, delivery counts, and deferred messages."""

import pytest

from unibus.core.flow.deadletter import (
    DESCRIPTION_HEADER,
    MAX_DELIVERY_COUNT_EXCEEDED,
    REASON_HEADER,
    SOURCE_HEADER,
    sub_queue,
)
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RELEASE, Renew
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED, LOCKED, SCHEDULED
from unibus.errors import LockLost, MessageNotFound
from unibus.stores.seam.store import ClaimRequest
from unibus.testing.contracts.rig import ANSWER_S, SECOND, Contract, Rig, bodies, every_settlement, headers, settling


class OrderContract(Contract):
    """By (priority, sequence), or by sequence; a message that is redelivered keeps its place."""

    def test_the_most_urgent_comes_first_and_then_the_oldest(self, rig: Rig) -> None:
        rig.queue("q")
        for body, priority in (("a", 50), ("b", 10), ("c", 50), ("d", 200), ("e", 10)):
            rig.send("q", body, priority)
        assert bodies(rig.claim("q", 3)) == ["b", "e", "a"]
        assert rig.drain("q") == ["c", "d"]

    def test_a_queue_by_sequence_ignores_priorities(self, rig: Rig) -> None:
        rig.queue("q", ordering="sequence")
        for body, priority in (("a", 50), ("b", 0), ("c", 255)):
            rig.send("q", body, priority)
        assert rig.drain("q") == ["a", "b", "c"]

    def test_the_ordering_can_be_changed_while_messages_wait(self, rig: Rig) -> None:
        rig.queue("q")
        for body, priority in (("a", 50), ("b", 0), ("c", 50)):
            rig.send("q", body, priority)
        rig.update("q", ordering="sequence")
        rig.send("q", "d", 0)
        assert rig.drain("q") == ["a", "b", "c", "d"]

    def test_sequences_count_up_by_one_in_each_entity(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("r")
        assert rig.fill("q", "abc") == [1, 2, 3]
        assert rig.fill("r", "a") == [1]

    def test_an_abandoned_message_keeps_its_place(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", "abcd")
        first, second, third = rig.claim("q", 3)
        for claimed in (third, first, second):
            rig.abandon(claimed)
        assert rig.drain("q") == ["a", "b", "c", "d"]

    def test_what_precedes_a_message_is_counted(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", "abc")
        first, second = rig.claim("q", 2)
        assert rig.store.catalog.count_before("q", 50, second.sequence, 9) == 0
        for _ in range(3):
            rig.send("q", "urgent", 0)
        assert rig.store.catalog.count_before("q", 50, second.sequence, 9) == 3
        assert rig.store.catalog.count_before("q", 50, second.sequence, 2) == 2
        assert rig.store.catalog.count_before("q", 0, 0, 9) == 0
        rig.claim("q", 3)
        rig.abandon(first)
        assert rig.store.catalog.count_before("q", 50, second.sequence, 9) == 1
        assert rig.store.catalog.count_before("q", 50, first.sequence, 9) == 0

    def test_by_sequence_a_more_urgent_message_does_not_precede(self, rig: Rig) -> None:
        rig.queue("q", ordering="sequence")
        rig.fill("q", "a")
        first = rig.one("q")
        rig.send("q", "urgent", 0)
        assert rig.store.catalog.count_before("q", 50, first.sequence, 9) == 0
        assert rig.store.catalog.count_before("q", 0, first.sequence + 2, 9) == 1

    def test_nothing_precedes_where_nothing_can_be_claimed(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "urgent", 0)
        assert rig.store.catalog.count_before("q", 50, 1, 9) == 1
        rig.update("q", status="receive_disabled")
        assert rig.store.catalog.count_before("q", 50, 1, 9) == 0
        assert rig.store.catalog.count_before("none", 50, 1, 9) == 0

    def test_a_message_that_was_abandoned_with_a_delay_comes_back_to_its_place(self, rig: Rig) -> None:
        rig.queue("q")
        [sequence, _, _] = rig.fill("q", "abc")
        rig.abandon(rig.one("q"), delay_ns=5 * SECOND)
        assert bodies(rig.claim("q", 3, lock=False)) == ["b", "c"]
        rig.send("q", "d")
        rig.advance(4.9)
        assert rig.info("q").scheduled == 1
        rig.advance(0.1)
        [back, late] = rig.claim("q", 9)
        assert (bodies([back, late]), back.sequence, back.delivery_count) == (["a", "d"], sequence, 2)

    def test_receive_and_delete_leaves_nothing_behind(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", "ab")
        [claimed] = rig.claim("q", lock=False)
        assert (claimed.until_ns, claimed.delivery_count) == (0, 1)
        assert [each.sequence for each in rig.peek("q")] == [2]
        with pytest.raises(LockLost):
            rig.complete(claimed)

    def test_a_claim_gives_at_most_what_is_asked_for_and_what_is_there(self, rig: Rig) -> None:
        rig.queue("q")
        assert rig.claim("q", 5) == []
        rig.fill("q", "abc")
        assert len(rig.claim("q", 2)) == 2
        assert len(rig.claim("q", 2)) == 1
        assert rig.claim("q", 2) == []

    def test_peek_shows_every_state_by_sequence_and_changes_nothing(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", "abc")
        rig.defer(rig.one("q"))
        rig.one("q")
        rig.send("q", "later", visible_ns=rig.now_ns() + 60 * SECOND)
        before = rig.events()
        states = [each.state for each in rig.peek("q")]
        assert states == [DEFERRED, LOCKED, ACTIVE, SCHEDULED]
        assert bodies(rig.peek("q")) == ["a", "b", "c", "later"]
        assert [each.sequence for each in rig.peek("q", 2, 2)] == [2, 3]
        assert [each.delivery_count for each in rig.peek("q")] == [1, 1, 0, 0]
        assert rig.events() == before


class LockContract(Contract):
    """A lock has a token and a deadline. Only the token of the current lock is valid, and only until the deadline."""

    def test_a_delivery_is_counted_when_it_is_made(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a")
        for count in (1, 2, 3):
            claimed = rig.one("q")
            assert claimed.delivery_count == count
            assert rig.peek("q")[0].delivery_count == count
            rig.abandon(claimed)

    def test_a_released_message_was_never_delivered(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a")
        rig.settle(RELEASE, rig.one("q"))
        assert rig.one("q").delivery_count == 1

    def test_after_the_last_delivery_allowed_it_is_a_dead_letter_that_says_why(self, rig: Rig) -> None:
        rig.queue("q", max_delivery_count=2)
        rig.send("q", "a")
        rig.abandon(rig.one("q"))
        rig.abandon(rig.one("q"))
        assert rig.claim("q") == []
        [message] = rig.dead("q")
        assert message.body == "a"
        assert message.headers[REASON_HEADER] == MAX_DELIVERY_COUNT_EXCEEDED
        assert "2" in str(message.headers[DESCRIPTION_HEADER])
        assert message.headers[SOURCE_HEADER] == "q"
        assert rig.info("q").dead == 1

    def test_a_lock_that_ends_at_the_last_delivery_makes_a_dead_letter_too(self, rig: Rig) -> None:
        rig.queue("q", max_delivery_count=1, lock_duration=10)
        rig.send("q", "a")
        rig.one("q")
        rig.advance(10)
        assert [message.headers[REASON_HEADER] for message in rig.dead("q")] == [MAX_DELIVERY_COUNT_EXCEEDED]

    def test_dead_lettering_by_hand_keeps_reason_description_and_headers(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a")
        claimed = rig.one("q")
        rig.settle(DEAD_LETTER, claimed, reason="Broken", description="cannot be read", overlay={"by": "hand"})
        [message] = rig.claim(sub_queue("q"))
        found = headers(message)
        assert (found[REASON_HEADER], found[DESCRIPTION_HEADER], found["by"]) == ("Broken", "cannot be read", "hand")
        assert (bodies([message]), message.delivery_count) == (["a"], 1)
        rig.complete(message)
        assert rig.info("q").dead == 0

    def test_a_dead_letter_never_leaves_its_queue_by_itself(self, rig: Rig) -> None:
        rig.queue("q", max_delivery_count=1, default_ttl=30)
        rig.send("q", "a")
        rig.abandon(rig.one("q"))
        for _ in range(12):
            rig.abandon(rig.one(sub_queue("q")))
        rig.advance(3600)
        assert rig.one(sub_queue("q")).delivery_count == 13

    def test_a_dead_letter_that_is_dead_lettered_again_stays_with_the_new_reason(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a")
        rig.settle(DEAD_LETTER, rig.one("q"), reason="first")
        rig.settle(DEAD_LETTER, rig.one(sub_queue("q")), reason="second")
        assert [message.headers[REASON_HEADER] for message in rig.dead("q")] == ["second"]

    def test_headers_of_a_settlement_stay_with_the_message(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a")
        rig.abandon(rig.one("q"), overlay={"tried": 1, "by": "x"})
        rig.abandon(rig.one("q"), overlay={"tried": 2})
        found = headers(rig.one("q"))
        assert (found["tried"], found["by"]) == (2, "x")

    def test_a_lock_ends_at_its_very_instant(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10)
        rig.fill("q", "ab")
        claimed = rig.one("q")
        assert claimed.until_ns == rig.now_ns() + 10 * SECOND
        rig.advance(9.999)
        assert rig.info("q").locked == 1
        rig.advance(0.001)
        [back] = rig.claim("q")
        assert (bodies([back]), back.delivery_count) == (["a"], 2)

    def test_a_renewed_lock_ends_one_duration_from_now(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10)
        rig.send("q", "a")
        claimed = rig.one("q")
        rig.advance(8)
        assert rig.run(Renew("q", claimed.sequence, claimed.token)) == [rig.now_ns() + 10 * SECOND]
        rig.advance(9)
        assert rig.claim("q") == []
        rig.advance(1)
        assert rig.one("q").delivery_count == 2

    def test_a_wrong_token_changes_nothing(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", "ab")
        claimed, other = rig.claim("q", 2)
        before = rig.picture()
        for token in (b"", b"x" * 16, other.token):
            for command in every_settlement(claimed, token):
                with pytest.raises(LockLost):
                    rig.run(command)
        assert rig.picture() == before
        rig.complete(claimed)

    def test_the_token_of_a_lock_that_ended_changes_nothing(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10)
        rig.send("q", "a")
        claimed = rig.one("q")
        rig.advance(10)
        before = rig.picture()
        for command in every_settlement(claimed, claimed.token):
            with pytest.raises(LockLost):
                rig.run(command)
        assert rig.picture() == before

    def test_the_token_of_an_earlier_delivery_changes_nothing(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a")
        old = rig.one("q")
        rig.abandon(old)
        new = rig.one("q")
        assert new.token != old.token
        before = rig.picture()
        for command in every_settlement(old, old.token):
            with pytest.raises(LockLost):
                rig.run(command)
        assert rig.picture() == before
        rig.complete(new)

    def test_what_is_settled_cannot_be_settled_again(self, rig: Rig) -> None:
        rig.queue("q")
        for verb in (COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE):
            rig.send("q", "a")
            claimed = rig.one("q")
            rig.settle(verb, claimed)
            before = rig.picture()
            for command in every_settlement(claimed, claimed.token):
                with pytest.raises(LockLost):
                    rig.run(command)
            assert rig.picture() == before
            rig.drain("q")


class DeferContract(Contract):
    """A deferred message is delivered only to a receive by its sequence."""

    def test_a_deferred_message_is_only_received_by_its_sequence(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", "ab")
        claimed = rig.one("q")
        rig.defer(claimed)
        assert rig.drain("q") == ["b"]
        [again] = rig.deferred("q", claimed.sequence)
        assert (bodies([again]), again.delivery_count) == (["a"], 2)
        rig.complete(again)
        assert rig.peek("q") == []

    def test_several_are_received_together_or_none(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", "abc")
        for claimed in rig.claim("q", 2):
            rig.defer(claimed)
        before = rig.picture()
        for sequences in ((1, 3), (1, 1), (99,)):
            with pytest.raises(MessageNotFound):
                rig.deferred("q", *sequences)
        assert rig.picture() == before
        assert bodies(rig.deferred("q", 2, 1)) == ["b", "a"]
        with pytest.raises(MessageNotFound):
            rig.deferred("q", 1)

    def test_a_deferred_message_that_is_abandoned_stays_deferred(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a")
        rig.defer(rig.one("q"))
        for fields in ({}, {"delay_ns": 5 * SECOND}):
            rig.abandon(rig.deferred("q", 1)[0], **fields)
            assert rig.claim("q") == []
            assert rig.info("q").deferred == 1

    def test_a_deferred_message_whose_lock_ends_stays_deferred(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10)
        rig.send("q", "a")
        rig.defer(rig.one("q"))
        rig.deferred("q", 1)
        rig.advance(10)
        assert rig.claim("q") == []
        assert rig.deferred("q", 1)[0].delivery_count == 3

    def test_deferred_deliveries_count_as_well(self, rig: Rig) -> None:
        rig.queue("q", max_delivery_count=2)
        rig.send("q", "a")
        rig.defer(rig.one("q"))
        rig.abandon(rig.deferred("q", 1)[0])
        assert [message.headers[REASON_HEADER] for message in rig.dead("q")] == [MAX_DELIVERY_COUNT_EXCEEDED]


class HandlerClaimContract(Contract):
    """Claims for handlers of this process, which may claim ahead."""

    def test_a_message_with_one_delivery_left_is_claimed_only_for_an_idle_handler(self, rig: Rig) -> None:
        rig.queue("q", max_delivery_count=2)
        rig.fill("q", "abc")
        rig.abandon(rig.one("q"))
        assert _claim_ahead(rig, 3, 0) == []
        assert rig.info("q").active == 3
        assert bodies(_claim_ahead(rig, 3, 1)) == ["a", "b", "c"]

    def test_a_claim_ahead_ends_before_a_message_with_one_delivery_left(self, rig: Rig) -> None:
        rig.queue("q", max_delivery_count=2)
        rig.fill("q", "abc")
        first, second = rig.claim("q", 2)
        rig.abandon(second)
        rig.settle(RELEASE, first)
        assert bodies(_claim_ahead(rig, 3, 0)) == ["a"]

    def test_where_no_delivery_is_spare_nothing_is_claimed_ahead(self, rig: Rig) -> None:
        rig.queue("q", max_delivery_count=1)
        rig.fill("q", "abc")
        assert bodies(_claim_ahead(rig, 3, 2)) == ["a", "b"]

    def test_a_dead_letter_queue_has_no_last_delivery(self, rig: Rig) -> None:
        rig.queue("q", max_delivery_count=1)
        rig.send("q", "a")
        rig.settle(DEAD_LETTER, rig.one("q"), reason="Broken")
        assert bodies(_claim_ahead(rig, 1, 0, sub_queue("q"))) == ["a"]


def _claim_ahead(rig: Rig, count: int, starts_max: int, entity: str = "q") -> list[Claimed]:
    request = ClaimRequest(entity, count, ends_with_process=True, starts_max=starts_max)
    return rig.store.claim(request).wait(ANSWER_S)


class ProcessedContract(Contract):
    """The processed key of a consumer is stored in the batch that settles its message."""

    def test_a_mark_is_there_with_the_settlement_and_not_without_it(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a")
        claimed = rig.one("q")
        bad = settling(COMPLETE, claimed, processed_key="k")
        with pytest.raises(LockLost):
            rig.run(bad, settling(COMPLETE, claimed, token=b"other"))
        assert not rig.was_processed("q", "k")
        rig.run(settling(COMPLETE, claimed, processed_key="k"))
        assert rig.was_processed("q", "k")
        assert not rig.was_processed("q", "other")
