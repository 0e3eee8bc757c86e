"""The contract of routing: fan-out of topics, forwarding, and targets for dead-lettered messages."""

from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import FalseFilter, TrueFilter
from unibus.core.flow.deadletter import (
    MAX_TRANSFER_HOP_COUNT_EXCEEDED,
    REASON_HEADER,
    SESSION_ID_IS_NULL,
    SOURCE_HEADER,
    sub_queue,
)
from unibus.core.lifecycle.commands import DEAD_LETTER, Cancel, Declare
from unibus.core.lifecycle.state.entity import SUBSCRIPTION, subscription_path
from unibus.core.lifecycle.state.rules import Rule, text_of
from unibus.limits import FORWARD_HOPS_MAX
from unibus.testing.contracts.rig import ANSWER_S, SECOND, Contract, Rig, bodies, headers


class TopicContract(Contract):
    """Every subscription gets an independent copy."""

    def test_each_subscription_has_a_copy_of_its_own(self, rig: Rig) -> None:
        rig.topic("t")
        paths = [rig.subscription("t", name) for name in ("one", "two")]
        rig.send("t", "a")
        rig.complete(rig.one(paths[0]))
        assert rig.peek(paths[0]) == []
        assert bodies(rig.peek(paths[1])) == ["a"]

    def test_without_subscriptions_nothing_is_kept_but_the_sequence_counts(self, rig: Rig) -> None:
        rig.topic("t")
        assert rig.send("t", "a").sequence == 1
        path = rig.subscription("t", "late")
        assert rig.send("t", "b").sequence == 2
        assert rig.drain(path) == ["b"]
        assert rig.peek("t") == []

    def test_copies_keep_priority_and_id(self, rig: Rig) -> None:
        rig.topic("t")
        path = rig.subscription("t", "s")
        rig.send("t", "slow", 200, message_id="m1")
        rig.send("t", "fast", 1, message_id="m2")
        claimed = rig.claim(path, 2)
        assert [(each.who.message_id, each.priority) for each in claimed] == [("m2", 1), ("m1", 200)]

    def test_the_shortest_ttl_of_message_topic_and_subscription_counts(self, rig: Rig) -> None:
        rig.topic("t", default_ttl=20)
        paths = [rig.subscription("t", "short", default_ttl=10), rig.subscription("t", "long", default_ttl=1000)]
        rig.send("t", "brief", ttl_ns=5 * SECOND)
        rig.send("t", "plain")
        left = []
        for _ in range(4):
            rig.advance(5)
            left.append([bodies(rig.peek(path)) for path in paths])
        assert left == [[["plain"], ["plain"]], [[], ["plain"]], [[], ["plain"]], [[], []]]

    def test_a_scheduled_publication_is_copied_when_its_time_comes(self, rig: Rig) -> None:
        rig.topic("t")
        early = rig.subscription("t", "early")
        rig.send("t", "a", visible_ns=rig.now_ns() + 10 * SECOND, ttl_ns=5 * SECOND)
        late = rig.subscription("t", "late")
        assert rig.info("t").scheduled == 1
        rig.advance(10)
        assert (bodies(rig.peek(early)), bodies(rig.peek(late)), rig.peek("t")) == (["a"], ["a"], [])
        rig.advance(5)
        assert (rig.peek(early), rig.peek(late)) == ([], [])

    def test_a_scheduled_publication_can_be_cancelled(self, rig: Rig) -> None:
        rig.topic("t")
        path = rig.subscription("t", "s")
        rig.run(Cancel("t", rig.send("t", "a", visible_ns=rig.now_ns() + 10 * SECOND).sequence))
        rig.advance(10)
        assert rig.peek(path) == []

    def test_a_subscription_by_sessions_buries_what_has_none(self, rig: Rig) -> None:
        rig.topic("t")
        path = rig.subscription("t", "s", requires_session=True)
        rig.send("t", "a")
        rig.send("t", "b", session_id="c1")
        assert [message.headers[REASON_HEADER] for message in rig.dead(path)] == [SESSION_ID_IS_NULL]
        assert bodies(rig.claim_in(rig.accept(path))) == ["b"]

    def test_a_subscription_has_dead_letters_of_its_own(self, rig: Rig) -> None:
        rig.topic("t")
        path, other = rig.subscription("t", "s"), rig.subscription("t", "other")
        rig.send("t", "a")
        rig.settle(DEAD_LETTER, rig.one(path), reason="Broken")
        assert ([message.body for message in rig.dead(path)], rig.dead(other)) == (["a"], [])

    def test_a_subscription_may_begin_in_the_past(self, rig: Rig) -> None:
        rig.topic("t")
        rig.fill("t", "ab")
        path = subscription_path("t", "s")
        assert rig.store.subscribe_from(Declare(path, SUBSCRIPTION, {}), 0, 0).wait(ANSWER_S) == 2
        rig.send("t", "new")
        assert rig.drain(path) == ["a", "b", "new"]
        # A subscription that exists already gets none.
        assert rig.store.subscribe_from(Declare(path, SUBSCRIPTION, {}), 0, 0).wait(ANSWER_S) == 0
        assert rig.drain(path) == []

    def test_a_subscription_from_an_instant_or_a_sequence_on_skips_what_was_before(self, rig: Rig) -> None:
        rig.topic("t")
        rig.fill("t", "ab")
        rig.advance(10)
        since_ns = rig.now_ns()
        rig.fill("t", "cd")
        path = subscription_path("t", "s")
        assert rig.store.subscribe_from(Declare(path, SUBSCRIPTION, {}), 0, since_ns).wait(ANSWER_S) == 2
        assert rig.drain(path) == ["c", "d"]
        other = subscription_path("t", "other")
        assert rig.store.subscribe_from(Declare(other, SUBSCRIPTION, {}), 1, 0).wait(ANSWER_S) == 3
        assert rig.drain(other) == ["b", "c", "d"]


class ForwardContract(Contract):
    """At most four hops. A message that cannot be stored where it arrives is dead-lettered there, never lost."""

    def chain(self, rig: Rig, hops: int) -> None:
        rig.queue(f"q{hops}")
        for number in reversed(range(hops)):
            rig.queue(f"q{number}", forward_to=f"q{number + 1}")

    def test_a_chain_of_four_hops_is_followed(self, rig: Rig) -> None:
        self.chain(rig, 4)
        assert rig.send("q0", "a").entity == "q0"
        assert rig.drain("q4") == ["a"]
        assert [rig.peek(f"q{number}") for number in range(4)] == [[]] * 4

    def test_the_fifth_hop_makes_a_dead_letter(self, rig: Rig) -> None:
        self.chain(rig, 5)
        rig.send("q0", "a")
        [message] = rig.dead("q4")
        assert (message.body, message.headers[REASON_HEADER]) == ("a", MAX_TRANSFER_HOP_COUNT_EXCEEDED)
        assert rig.peek("q5") == []

    def test_a_cycle_ends_in_a_dead_letter(self, rig: Rig) -> None:
        rig.queue("a", forward_to="b")
        rig.queue("b", forward_to="a")
        rig.queue("self", forward_to="self")
        rig.send("a", 1)
        rig.send("self", 2)
        assert [message.body for message in rig.dead("a")] == [1]
        assert [message.body for message in rig.dead("self")] == [2]

    def test_a_missing_target_makes_a_dead_letter(self, rig: Rig) -> None:
        rig.queue("q", forward_to="nowhere")
        rig.send("q", "a")
        [message] = rig.dead("q")
        assert (message.body, message.headers[SOURCE_HEADER]) == ("a", "q")

    def test_a_subscription_may_forward(self, rig: Rig) -> None:
        rig.topic("t")
        rig.queue("q")
        path = rig.subscription("t", "s", forward_to="q")
        rig.send("t", "a")
        assert (rig.drain("q"), rig.peek(path)) == (["a"], [])

    def test_a_queue_may_forward_to_a_topic(self, rig: Rig) -> None:
        rig.topic("t")
        path = rig.subscription("t", "s")
        rig.queue("q", forward_to="t")
        rig.send("q", "a")
        assert rig.drain(path) == ["a"]

    def test_a_scheduled_message_is_forwarded_when_its_time_comes(self, rig: Rig) -> None:
        self.chain(rig, 1)
        rig.send("q0", "a", visible_ns=rig.now_ns() + 10 * SECOND)
        assert rig.peek("q1") == []
        rig.advance(10)
        assert (rig.drain("q1"), rig.peek("q0")) == (["a"], [])

    def test_the_shortest_ttl_on_the_way_counts(self, rig: Rig) -> None:
        rig.queue("q1", default_ttl=100)
        rig.queue("q0", forward_to="q1", default_ttl=5)
        rig.send("q0", "a")
        rig.advance(5)
        assert rig.peek("q1") == []

    def test_a_missing_session_id_makes_a_dead_letter_of_the_target(self, rig: Rig) -> None:
        rig.queue("by sessions", requires_session=True)
        rig.queue("q", forward_to="by sessions")
        rig.send("q", "a")
        assert [message.headers[REASON_HEADER] for message in rig.dead("by sessions")] == [SESSION_ID_IS_NULL]

    def test_dead_letters_may_go_elsewhere(self, rig: Rig) -> None:
        rig.queue("graves")
        rig.queue("q", forward_dead_letters_to="graves", max_delivery_count=1)
        rig.fill("q", "ab")
        rig.settle(DEAD_LETTER, rig.one("q"), reason="Broken")
        rig.abandon(rig.one("q"))
        claimed = rig.claim("graves", 2)
        assert bodies(claimed) == ["a", "b"]
        assert [headers(each)[SOURCE_HEADER] for each in claimed] == ["q", "q"]
        assert (headers(claimed[0])[REASON_HEADER], rig.info("q").dead) == ("Broken", 0)

    def test_dead_letters_whose_target_is_missing_stay(self, rig: Rig) -> None:
        rig.queue("q", forward_dead_letters_to="nowhere")
        rig.queue("own", forward_dead_letters_to="own")
        for name in ("q", "own"):
            rig.send(name, "a")
            rig.settle(DEAD_LETTER, rig.one(name))
            assert bodies(rig.claim(sub_queue(name))) == ["a"]
            assert rig.peek(name) == []

    def test_dead_letters_that_no_subscription_takes_stay(self, rig: Rig) -> None:
        """A topic without subscriptions, one whose rules match nothing, and both behind a forward."""
        rig.topic("unheard")
        rig.topic("t")
        never = text_of([Rule("never", FalseFilter())])
        rig.subscription("t", "s", rules=never)
        rig.queue("on", forward_to="t")
        rig.topic("chain")
        rig.subscription("chain", "s", forward_to="unheard")
        for target in ("unheard", "t", "on", "chain"):
            name = f"to {target}"
            rig.queue(name, forward_dead_letters_to=target, max_delivery_count=1, dead_letter_on_expiration=True)
            rig.fill(name, "ab")
            rig.send(name, "c", ttl_ns=SECOND)
            rig.settle(DEAD_LETTER, rig.one(name), reason="Broken")
            rig.abandon(rig.one(name))
            rig.advance(2)
            assert [message.body for message in rig.dead(name)] == ["a", "b", "c"]
            assert rig.dead(name)[0].headers[SOURCE_HEADER] == name
            assert rig.peek(name) == []

    def test_dead_letters_that_circulate_stop_at_the_hop_limit(self, rig: Rig) -> None:
        """Two queues that forward their dead-lettered messages to each other, with a time-to-live."""
        for name in ("ping", "pong"):
            rig.queue(name, default_ttl=1, dead_letter_on_expiration=True)
        rig.update("ping", forward_dead_letters_to="pong")
        rig.update("pong", forward_dead_letters_to="ping")
        rig.send("ping", "a")
        for _ in range(20):
            rig.advance(1)
        assert [message.body for message in rig.dead("ping") + rig.dead("pong")] == ["a"]
        assert (rig.peek("ping"), rig.peek("pong")) == ([], [])
        assert rig.info("ping").last_sequence + rig.info("pong").last_sequence == 1 + FORWARD_HOPS_MAX

    def test_hops_before_an_action_count(self, rig: Rig) -> None:
        """The copy of a rule action has the hop count of the original."""
        rig.topic("t")
        rig.queue("end", default_ttl=1, dead_letter_on_expiration=True, forward_dead_letters_to="graves")
        rig.queue("graves")
        stamped = text_of([Rule("stamp", TrueFilter(), SqlRuleAction("SET stamped = TRUE"))])
        rig.subscription("t", "s", rules=stamped, default_ttl=1, forward_dead_letters_to="graves", max_delivery_count=1)
        self.chain(rig, 3)
        rig.update("q3", forward_to="t")
        rig.send("q0", "a")
        path = subscription_path("t", "s")
        rig.abandon(rig.one(path))
        assert ([message.body for message in rig.dead(path)], rig.peek("graves")) == (["a"], [])
