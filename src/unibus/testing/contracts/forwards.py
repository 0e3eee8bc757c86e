"""The contract of forwards: they obey the quota, the status and the duplicate detection of their target.

rejected (full, disabled, too large)    dead-lettered by the entity that forwards, with the reason
known to duplicate detection            dropped, as a send to the target would be
a dead-lettered message                 in neither case: it stays in its own dead-letter queue
"""

import pytest

from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import SqlFilter, TrueFilter
from unibus.core.flow.deadletter import (
    DESCRIPTION_HEADER,
    ENTITY_DISABLED,
    MESSAGE_SIZE_EXCEEDED,
    QUOTA_EXCEEDED,
    REASON_HEADER,
    SOURCE_HEADER,
    sub_queue,
)
from unibus.core.lifecycle.commands import DEAD_LETTER, Move
from unibus.core.lifecycle.state.entity import subscription_path
from unibus.core.lifecycle.state.rules import Rule, text_of
from unibus.errors import DuplicateMessage, QuotaExceeded, UsageError
from unibus.testing.contracts.rig import SECOND, Contract, Rig, bodies, headers, sending, settling

LARGE = "x" * 3_000


def reasons(rig: Rig, queue: str) -> list[tuple[object, object]]:
    """Each dead-lettered message of the queue with its reason."""
    return [(message.body, message.headers[REASON_HEADER]) for message in rig.dead(queue)]


class ForwardLimitContract(Contract):
    """A forward is rejected for the same reasons as a direct send; the message is not lost."""

    def test_a_full_target_refuses(self, rig: Rig) -> None:
        rig.queue("full", max_count=2)
        rig.queue("q", forward_to="full")
        rig.fill("q", "abc")
        assert (bodies(rig.peek("full")), reasons(rig, "q")) == (["a", "b"], [("c", QUOTA_EXCEEDED)])
        [message] = rig.dead("q")
        assert message.headers[SOURCE_HEADER] == "q"
        assert "'full'" in str(message.headers[DESCRIPTION_HEADER])
        rig.complete(rig.one("full"))
        rig.send("q", "d")
        assert bodies(rig.peek("full")) == ["b", "d"]

    def test_the_size_of_the_target_counts(self, rig: Rig) -> None:
        rig.queue("full", max_size_mb=1)
        rig.queue("q", forward_to="full")
        for _ in range(3):
            rig.send("q", "x" * 600_000)
        assert (len(rig.peek("full")), [reason for _, reason in reasons(rig, "q")]) == (1, [QUOTA_EXCEEDED] * 2)

    @pytest.mark.parametrize("status", ["disabled", "send_disabled"])
    def test_a_disabled_target_refuses(self, rig: Rig, status: str) -> None:
        rig.queue("off", status=status)
        rig.queue("q", forward_to="off")
        rig.send("q", "a")
        assert (rig.peek("off"), reasons(rig, "q")) == ([], [("a", ENTITY_DISABLED)])

    def test_a_target_that_only_gives_nothing_out_takes(self, rig: Rig) -> None:
        rig.queue("off", status="receive_disabled")
        rig.queue("q", forward_to="off")
        rig.send("q", "a")
        assert (bodies(rig.peek("off")), rig.dead("q")) == (["a"], [])

    def test_a_message_that_is_too_large_for_the_target_is_refused(self, rig: Rig) -> None:
        rig.queue("small", max_message_size_kb=1)
        rig.queue("q", forward_to="small")
        rig.send("q", LARGE)
        rig.send("q", "a")
        assert (bodies(rig.peek("small")), reasons(rig, "q")) == (["a"], [(LARGE, MESSAGE_SIZE_EXCEEDED)])

    def test_the_last_entity_before_the_refusal_has_the_dead_letter(self, rig: Rig) -> None:
        rig.queue("full", max_count=1)
        rig.queue("middle", forward_to="full")
        rig.topic("t")
        path = rig.subscription("t", "s", forward_to="middle")
        rig.queue("q", forward_to="t")
        rig.fill("q", "ab")
        assert (bodies(rig.peek("full")), reasons(rig, "middle")) == (["a"], [("b", QUOTA_EXCEEDED)])
        assert (rig.dead("q"), rig.dead(path)) == ([], [])

    def test_a_full_target_of_a_subscription_does_not_reject_the_send(self, rig: Rig) -> None:
        rig.queue("full", max_count=1)
        rig.topic("t")
        plain, path = rig.subscription("t", "plain"), rig.subscription("t", "s", forward_to="full")
        rig.fill("t", "ab")
        assert (bodies(rig.peek(plain)), bodies(rig.peek("full"))) == (["a", "b"], ["a"])
        assert reasons(rig, path) == [("b", QUOTA_EXCEEDED)]

    def test_a_topic_refuses_as_a_whole(self, rig: Rig) -> None:
        """As it does for a send: one of its subscriptions is full."""
        rig.topic("t")
        paths = [rig.subscription("t", "wide"), rig.subscription("t", "full", max_count=1)]
        rig.queue("q", forward_to="t")
        rig.fill("q", "ab")
        assert ([bodies(rig.peek(path)) for path in paths], reasons(rig, "q")) == (
            [["a"], ["a"]],
            [("b", QUOTA_EXCEEDED)],
        )

    def test_only_the_subscriptions_whose_rules_match_need_a_free_place(self, rig: Rig) -> None:
        rig.topic("t")
        never = text_of([Rule("never", SqlFilter("1 = 2"))])
        wide = rig.subscription("t", "wide", rules=text_of([Rule("all", SqlFilter("1 = 1"))]))
        rig.subscription("t", "full", max_count=1, rules=never)
        rig.queue("q", forward_to="t")
        rig.fill("q", "abc")
        assert (bodies(rig.peek(wide)), rig.dead("q")) == (["a", "b", "c"], [])

    def test_a_copy_of_its_own_comes_before_one_that_is_forwarded_to_it(self, rig: Rig) -> None:
        rig.topic("t")
        path = rig.subscription("t", "first", forward_to=subscription_path("t", "last"))
        last = rig.subscription("t", "last", max_count=1)
        rig.send("t", "a")
        assert (bodies(rig.peek(last)), reasons(rig, path)) == (["a"], [("a", QUOTA_EXCEEDED)])

    def test_a_scheduled_message_is_refused_when_its_time_comes(self, rig: Rig) -> None:
        rig.queue("full", max_count=1)
        rig.queue("q", forward_to="full")
        rig.send("q", "later", visible_ns=rig.now_ns() + 10 * SECOND)
        rig.send("q", "now")
        rig.advance(10)
        assert (bodies(rig.peek("full")), reasons(rig, "q")) == (["now"], [("later", QUOTA_EXCEEDED)])
        assert rig.peek("q") == []

    def test_sends_of_a_batch_come_before_its_forwards(self, rig: Rig) -> None:
        """The direct sends of a batch keep their places, wherever they are in the batch."""
        rig.queue("full", max_count=2)
        rig.queue("q", forward_to="full")
        rig.run(sending("q", "a"), sending("q", "b"), sending("full", "direct"), sending("q", "c"))
        assert sorted(map(str, bodies(rig.peek("full")))) == ["a", "direct"]
        assert reasons(rig, "q") == [("b", QUOTA_EXCEEDED), ("c", QUOTA_EXCEEDED)]

    def test_a_dead_letter_queue_is_never_full(self, rig: Rig) -> None:
        rig.queue("end", max_count=1)
        rig.send("end", "a")
        rig.settle(DEAD_LETTER, rig.one("end"))
        rig.queue("q", forward_to=sub_queue("end"))
        rig.fill("q", "bcd")
        assert [message.body for message in rig.dead("end")] == ["a", "b", "c", "d"]


class ForwardedDeadLetterContract(Contract):
    """A dead-lettered message is forwarded to its target, or stays in its own dead-letter queue."""

    def dead_letter(self, rig: Rig, *names: str) -> None:
        for name in names:
            rig.send("q", name, 50, message_id=name)
            rig.settle(DEAD_LETTER, rig.one("q"), reason="Broken", description="half of it")

    def test_it_stays_where_the_target_refuses_it(self, rig: Rig) -> None:
        rig.queue("graves", max_count=1)
        rig.queue("q", forward_dead_letters_to="graves")
        self.dead_letter(rig, "a", "b")
        assert (bodies(rig.peek("graves")), reasons(rig, "q")) == (["a"], [("b", "Broken")])
        text = str(rig.dead("q")[0].headers[DESCRIPTION_HEADER])
        assert text.startswith("half of it; not forwarded: 'graves'")
        assert rig.peek("q") == []

    def test_a_disabled_target_and_one_for_small_messages_refuse(self, rig: Rig) -> None:
        rig.queue("graves", status="disabled")
        rig.queue("q", forward_dead_letters_to="graves")
        self.dead_letter(rig, "a")
        rig.update("graves", status="active", max_message_size_kb=1)
        self.dead_letter(rig, LARGE[:100])
        rig.send("q", LARGE)
        rig.settle(DEAD_LETTER, rig.one("q"))
        assert (bodies(rig.peek("graves")), [message.body for message in rig.dead("q")]) == (
            [LARGE[:100]],
            ["a", LARGE],
        )

    def test_behind_the_target_the_last_entity_has_it(self, rig: Rig) -> None:
        rig.queue("full", max_count=1)
        rig.queue("graves", forward_to="full")
        rig.queue("q", forward_dead_letters_to="graves")
        self.dead_letter(rig, "a", "b")
        assert (bodies(rig.peek("full")), reasons(rig, "graves"), rig.dead("q")) == (["a"], [("b", QUOTA_EXCEEDED)], [])

    def test_duplicate_detection_never_drops_it(self, rig: Rig) -> None:
        rig.queue("graves", dedup_window=60)
        rig.queue("q", forward_dead_letters_to="graves")
        self.dead_letter(rig, "a", "a")
        assert (bodies(rig.peek("graves")), reasons(rig, "q")) == (["a"], [("a", "Broken")])

    def test_nor_does_that_of_an_entity_behind_the_target(self, rig: Rig) -> None:
        rig.queue("end", dedup_window=60)
        rig.queue("graves", forward_to="end")
        rig.queue("q", forward_dead_letters_to="graves")
        self.dead_letter(rig, "a", "a")
        assert (bodies(rig.peek("end")), reasons(rig, "q")) == (["a"], [("a", "Broken")])

    def test_expired_messages_stay_too(self, rig: Rig) -> None:
        rig.queue("graves", max_count=1)
        rig.queue("q", forward_dead_letters_to="graves", dead_letter_on_expiration=True, default_ttl=1)
        rig.fill("q", "ab")
        rig.advance(2)
        assert sorted([*map(str, bodies(rig.peek("graves"))), *[str(each.body) for each in rig.dead("q")]]) == [
            "a",
            "b",
        ]
        assert len(rig.peek("graves")) == 1

    def test_an_action_on_the_way_keeps_the_source(self, rig: Rig) -> None:
        rig.queue("other")
        rig.send("other", "makes the dead-letter queue")
        rig.run(settling(DEAD_LETTER, rig.one("other")))
        rig.topic("t")
        stamp = text_of([Rule("all", TrueFilter(), SqlRuleAction("SET seen = TRUE"))])
        rig.subscription("t", "s", forward_to=sub_queue("other"), rules=stamp)
        rig.queue("q", forward_dead_letters_to="t")
        rig.send("q", "a")
        rig.run(settling(DEAD_LETTER, rig.one("q")))
        for claimed in rig.claim(sub_queue("other"), 2):
            rig.run(settling(DEAD_LETTER, claimed))
        assert [message.headers[SOURCE_HEADER] for message in rig.dead("other")] == ["other", "q"]


class ForwardedDuplicateContract(Contract):
    """Duplicate detection of a target includes the messages that were forwarded to it."""

    def test_what_was_forwarded_is_known(self, rig: Rig) -> None:
        rig.queue("end", dedup_window=60)
        rig.queue("q", forward_to="end")
        rig.send("q", "a", message_id="m")
        assert not rig.send("q", "b", message_id="m").duplicate  # It was accepted by q, which compares no ids.
        assert rig.send("end", "c", message_id="m").duplicate
        assert (bodies(rig.peek("end")), rig.dead("q")) == (["a"], [])
        rig.advance(61)
        rig.send("q", "d", message_id="m")
        assert bodies(rig.peek("end")) == ["a", "d"]

    def test_a_duplicate_behind_a_forward_is_not_unrouted(self, rig: Rig) -> None:
        rig.queue("end", dedup_window=60)
        rig.topic("t")
        rig.subscription("t", "a", forward_to="end")
        rig.subscription("t", "b", forward_to="end")
        rig.queue("q", forward_to="t")
        first, again, behind = (
            rig.send("t", "a", message_id="m"),
            rig.send("t", "b", message_id="m"),
            rig.send("q", "c"),
        )
        told = [(each.duplicate, each.is_forwarded_duplicate, each.is_routed) for each in (first, again, behind)]
        assert told == [(False, False, True), (False, True, True), (False, False, True)]
        rig.topic("deaf")
        assert not rig.send("deaf", "d", message_id="m").is_routed

    def test_what_was_sent_is_known_to_forwards(self, rig: Rig) -> None:
        rig.topic("t", dedup_window=60)
        path = rig.subscription("t", "s")
        rig.queue("q", forward_to="t")
        rig.send("t", "a", message_id="m")
        rig.send("q", "b", message_id="m")
        assert (bodies(rig.peek(path)), rig.dead("q")) == (["a"], [])
        kinds = [(event.channel, event.kind) for event in rig.events() if event.message_id == "m"]
        assert kinds[-2:] == [("q", "published"), ("t", "duplicate")]

    def test_a_dedup_key_is_heeded(self, rig: Rig) -> None:
        rig.queue("end")
        rig.queue("q", forward_to="end")
        rig.send("q", "a", dedup_key="k")
        assert rig.send("end", "b", dedup_key="k").duplicate
        assert bodies(rig.peek("end")) == ["a"]

    def test_a_scheduled_duplicate_is_dropped_when_its_time_comes(self, rig: Rig) -> None:
        rig.queue("end", dedup_window=60)
        rig.queue("q", forward_to="end")
        rig.send("q", "later", message_id="m", visible_ns=rig.now_ns() + 10 * SECOND)
        rig.send("end", "now", message_id="m")
        rig.advance(10)
        assert (bodies(rig.peek("end")), rig.peek("q"), rig.dead("q")) == (["now"], [], [])

    @pytest.mark.parametrize("action", [None, SqlRuleAction("SET seen = TRUE")])
    def test_an_action_does_not_change_what_a_scheduled_message_is_known_by(
        self, rig: Rig, action: SqlRuleAction | None
    ) -> None:
        """The dedup key of a message that was stored before counts if the target compares ids."""
        rig.queue("keys")
        rig.queue("ids", dedup_window=60)
        rig.topic("t")
        for name in ("keys", "ids"):
            rules = text_of([Rule("all", TrueFilter(), action)])
            rig.subscription("t", f"to-{name}", forward_to=name, rules=rules)
            rig.send(name, "now", dedup_key="k")
        rig.send("t", "later", dedup_key="k", visible_ns=rig.now_ns() + 10 * SECOND)
        rig.advance(10)
        assert (bodies(rig.peek("keys")), bodies(rig.peek("ids"))) == (["now", "later"], ["now"])

    def test_two_subscriptions_that_forward_to_one_queue_make_one_message(self, rig: Rig) -> None:
        rig.queue("end", dedup_window=60)
        rig.topic("t")
        for name in ("one", "two"):
            rig.subscription("t", name, forward_to="end")
        plain = rig.subscription("t", "plain")
        rig.send("t", "a")
        assert (bodies(rig.peek("end")), bodies(rig.peek(plain))) == (["a"], ["a"])

    def test_a_refused_message_is_not_known(self, rig: Rig) -> None:
        rig.queue("end", dedup_window=60, max_count=1)
        rig.queue("q", forward_to="end")
        rig.send("q", "a", message_id="m1")
        rig.send("q", "b", message_id="m2")
        rig.complete(rig.one("end"))
        rig.send("q", "c", message_id="m2")
        assert (bodies(rig.peek("end")), reasons(rig, "q")) == (["c"], [("b", QUOTA_EXCEEDED)])

    def test_a_duplicate_is_none_of_a_full_target(self, rig: Rig) -> None:
        rig.queue("end", dedup_window=60, max_count=1)
        rig.queue("q", forward_to="end")
        rig.send("q", "a", message_id="m")
        rig.send("q", "b", message_id="m")
        assert (bodies(rig.peek("end")), rig.dead("q")) == (["a"], [])

    def test_a_message_is_no_duplicate_of_itself(self, rig: Rig) -> None:
        """In a cycle it returns to an entity that knows it: the hop limit ends that, and nothing is lost."""
        rig.queue("a", forward_to="b", dedup_window=60)
        rig.queue("b", forward_to="a", dedup_window=60)
        rig.queue("self", forward_to="self", dedup_window=60)
        rig.send("a", 1)
        rig.send("self", 2)
        rig.send("self", 3, visible_ns=rig.now_ns() + SECOND)
        rig.advance(1)
        assert [message.body for message in rig.dead("a")] == [1]
        assert [message.body for message in rig.dead("self")] == [2, 3]

    def test_nor_where_the_circle_goes_through_a_topic(self, rig: Rig) -> None:
        rig.topic("t", dedup_window=60)
        rig.queue("back", forward_to="t")
        path = rig.subscription("t", "s", forward_to="back")
        rig.send("t", 1)
        rig.queue("other")
        rig.run(Move("other", rig.send("other", 2).sequence, "t"))
        assert [message.body for message in rig.dead(path)] == [1, 2]

    def test_a_move_that_would_be_dropped_is_refused(self, rig: Rig) -> None:
        rig.queue("end", dedup_window=60)
        rig.queue("q", forward_to="end")
        rig.queue("other")
        rig.send("end", "a", message_id="m")
        sequence = rig.send("other", "b", message_id="m").sequence
        with pytest.raises(UsageError):
            rig.run(Move("other", sequence, "q"))
        assert (bodies(rig.peek("other")), bodies(rig.peek("end"))) == (["b"], ["a"])


class DuplicateBeforeQuotaContract(Contract):
    """A duplicate stores nothing, so it needs no free place."""

    def test_a_duplicate_in_a_full_queue_is_a_duplicate(self, rig: Rig) -> None:
        rig.queue("q", dedup_window=60, max_count=1)
        rig.send("q", "a", message_id="m")
        assert rig.send("q", "b", message_id="m").duplicate
        with pytest.raises(DuplicateMessage):
            rig.send("q", "b", message_id="m", raises=True)
        with pytest.raises(QuotaExceeded):
            rig.send("q", "c", message_id="n")
        assert bodies(rig.peek("q")) == ["a"]

    def test_a_duplicate_for_a_full_subscription_is_a_duplicate(self, rig: Rig) -> None:
        rig.topic("t", dedup_window=60)
        path = rig.subscription("t", "s", max_count=1, rules=text_of([Rule("all", SqlFilter("1 = 1"))]))
        rig.send("t", "a", message_id="m")
        assert rig.send("t", "b", message_id="m").duplicate
        assert bodies(rig.peek(path)) == ["a"]

    def test_duplicates_of_a_batch_need_no_free_place(self, rig: Rig) -> None:
        rig.queue("q", dedup_window=60, max_count=1)
        results = rig.run(sending("q", "a", message_id="m"), sending("q", "b", message_id="m"))
        assert [getattr(result, "duplicate", None) for result in results] == [False, True]
        results = rig.run(sending("q", "c", message_id="m"), sending("q", "d", message_id="m"))
        assert [getattr(result, "duplicate", None) for result in results] == [True, True]
        assert bodies(rig.peek("q")) == ["a"]

    def test_a_duplicate_beside_a_settlement(self, rig: Rig) -> None:
        rig.queue("q", dedup_window=60, max_count=1)
        rig.queue("in")
        rig.send("q", "a", message_id="m")
        rig.send("in", "work")
        claimed = rig.one("in")
        rig.run(sending("q", "b", message_id="m"), settling(DEAD_LETTER, claimed))
        assert (bodies(rig.peek("q")), [message.body for message in rig.dead("in")]) == (["a"], ["work"])
        assert headers(rig.one(sub_queue("in")))[SOURCE_HEADER] == "in"
