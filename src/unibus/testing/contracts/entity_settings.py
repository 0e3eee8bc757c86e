"""The contract of settings of entities: status, largest message, deletion when idle, and the times of an entity."""

from collections.abc import Iterable
from datetime import timedelta

import pytest

from unibus.core.filters.filters import TrueFilter
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.commands import COMPLETE, DEAD_LETTER, DropRule, SetRule
from unibus.core.lifecycle.state.rules import DEFAULT_RULE, Rule
from unibus.errors import EntityDisabled, EntityNotFound, MessageTooLarge, UsageError
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import SECOND, Contract, OpenStore, Rig

IDLE_S = 600.0


class StatusContract(Contract):
    """`status` applies to sends and receives of clients. Deliveries and copies inside of the store continue."""

    def test_send_disabled_refuses_senders_only(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a")
        rig.update("q", status="send_disabled")
        before = rig.picture()
        with pytest.raises(EntityDisabled):
            rig.send("q", "b")
        assert rig.picture() == before
        assert rig.drain("q") == ["a"]
        rig.update("q", status="active")
        rig.send("q", "c")
        assert rig.drain("q") == ["c"]

    def test_receive_disabled_refuses_receivers_only(self, rig: Rig) -> None:
        rig.queue("q")
        rig.update("q", status="receive_disabled")
        rig.send("q", "a")
        with pytest.raises(EntityDisabled):
            rig.claim("q")
        assert len(rig.peek("q")) == 1
        rig.update("q", status="active")
        assert rig.drain("q") == ["a"]

    def test_disabled_refuses_both(self, rig: Rig) -> None:
        rig.queue("q", status="disabled")
        with pytest.raises(EntityDisabled):
            rig.send("q", "a")
        with pytest.raises(EntityDisabled):
            rig.claim("q")

    def test_work_that_is_in_hand_may_be_finished(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a")
        claimed = rig.one("q")
        rig.update("q", status="disabled")
        rig.settle(COMPLETE, claimed)
        assert rig.peek("q") == []

    def test_sessions_and_deferred_messages_are_refused_too(self, rig: Rig) -> None:
        rig.queue("s", requires_session=True)
        rig.queue("q")
        rig.fill("q", "a")
        rig.defer(rig.one("q"))
        rig.send("s", "a", session_id="c1")
        lock = rig.accept("s", "c1")
        for name in "qs":
            rig.update(name, status="receive_disabled")
        with pytest.raises(EntityDisabled):
            rig.deferred("q", 1)
        with pytest.raises(EntityDisabled):
            rig.claim_in(lock)
        with pytest.raises(EntityDisabled):
            rig.accept("s", "other")

    def test_a_disabled_topic_takes_nothing_and_its_subscriptions_go_on(self, rig: Rig) -> None:
        rig.topic("t")
        path = rig.subscription("t", "s")
        rig.send("t", "a")
        rig.update("t", status="disabled")
        with pytest.raises(EntityDisabled):
            rig.send("t", "b")
        assert rig.drain(path) == ["a"]

    def test_a_disabled_subscription_still_gets_its_copies(self, rig: Rig) -> None:
        """As in Azure: a message for an active topic is copied there, and stored."""
        rig.topic("t")
        path = rig.subscription("t", "s", status="disabled")
        rig.send("t", "a")
        with pytest.raises(EntityDisabled):
            rig.claim(path)
        rig.update(path, status="active")
        assert rig.drain(path) == ["a"]

    def test_dead_letters_follow_their_entity(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a")
        rig.settle(DEAD_LETTER, rig.one("q"))
        rig.update("q", status="receive_disabled")
        with pytest.raises(EntityDisabled):
            rig.claim(sub_queue("q"))
        rig.update("q", status="send_disabled")
        assert rig.drain(sub_queue("q")) == ["a"]

    def test_what_is_scheduled_arrives_and_what_is_forwarded_does_not(self, rig: Rig) -> None:
        rig.queue("end")
        rig.queue("q", forward_to="end")
        rig.send("end", "later", visible_ns=rig.now_ns() + 5 * SECOND)
        rig.update("end", status="send_disabled")
        rig.send("q", "forwarded")
        rig.advance(10)
        assert (rig.drain("end"), [message.body for message in rig.dead("q")]) == (["later"], ["forwarded"])

    def test_a_change_of_status_wakes_receivers(self, rig: Rig) -> None:
        rig.queue("q")
        calls: list[str] = []
        rig.store.watch("q", lambda: calls.append("first"))
        rig.store.watch("q", lambda: calls.append("second"))
        rig.update("q", status="receive_disabled")
        assert calls == ["first", "second"]
        rig.store.watch("q", lambda: calls.append("third"))
        rig.send("q", "a")
        rig.update("q", status="active")
        assert calls == ["first", "second", "third"]

    def test_a_status_that_makes_no_sense_is_refused(self, rig: Rig) -> None:
        rig.topic("t")
        rig.subscription("t", "s")
        with pytest.raises(UsageError):
            rig.update("t", status="receive_disabled")
        with pytest.raises(UsageError):
            rig.update("t/Subscriptions/s", status="send_disabled")

    def test_settings_are_only_for_some_kinds(self, rig: Rig) -> None:
        rig.topic("t")
        rig.queue("q")
        rig.claim(sub_queue("q"))
        for name in ("authorization_rules", "max_message_size_kb", "enable_express", "enable_partitioning"):
            with pytest.raises(UsageError):
                rig.subscription("t", "s", **{name: None})
        for name in ("status", "auto_delete_on_idle", "user_metadata", "authorization_rules"):
            with pytest.raises(UsageError):
                rig.update(sub_queue("q"), **{name: None})
        with pytest.raises(UsageError):
            rig.queue("r", filter_mode="azure")

    def test_a_message_that_is_too_large_for_the_entity_is_refused(self, rig: Rig) -> None:
        rig.queue("q", max_message_size_kb=1)
        with pytest.raises(MessageTooLarge):
            rig.send("q", b"x" * 1_024)
        rig.send("q", b"x" * 500)
        assert rig.info("q").active == 1


class IdleContract(Contract):
    """`auto_delete_on_idle`: an entity that is not used is deleted."""

    @pytest.fixture
    def steady(self, open_store: OpenStore) -> Iterable[Rig]:
        """Opening a store restarts the idle time: a watch keeps one store open, also in tests that reopen it."""
        with VirtualClock() as clock:
            store = open_store(clock)
            rig = Rig(store, clock)
            rig.queue("kept")
            rig.store.watch("kept", lambda: None)
            yield rig
            store.close()

    def is_there(self, rig: Rig, name: str) -> bool:
        return any(info.name == name for info in rig.store.entities().wait())

    def test_an_idle_entity_is_deleted_with_its_messages(self, steady: Rig) -> None:
        rig = steady
        rig.queue("q", auto_delete_on_idle=IDLE_S)
        rig.send("q", "a")
        rig.advance(IDLE_S - 1)
        assert self.is_there(rig, "q")
        rig.advance(1)
        assert (self.is_there(rig, "q"), self.is_there(rig, "kept")) == (False, True)
        with pytest.raises(EntityNotFound):
            rig.send("q", "b")

    def test_every_use_counts(self, steady: Rig) -> None:
        rig = steady
        rig.queue("q", auto_delete_on_idle=IDLE_S)
        for use in (
            lambda: rig.send("q", "a"),
            lambda: rig.peek("q"),
            lambda: rig.drain("q"),
            lambda: rig.claim(sub_queue("q")),
            lambda: rig.update("q", max_count=5),
        ):
            rig.advance(IDLE_S - 1)
            use()
        rig.advance(IDLE_S - 1)
        assert self.is_there(rig, "q")
        rig.advance(2)
        assert not self.is_there(rig, "q")

    def test_who_waits_or_works_uses_it(self, steady: Rig) -> None:
        rig = steady
        rig.queue("q", auto_delete_on_idle=IDLE_S, lock_duration=300.0)
        stop = rig.store.watch("q", lambda: None)
        rig.advance(3 * IDLE_S)
        assert self.is_there(rig, "q")
        stop()
        rig.send("q", "later", visible_ns=rig.now_ns() + round(2 * IDLE_S) * SECOND)
        rig.advance(IDLE_S + 1)
        assert self.is_there(rig, "q")
        rig.advance(IDLE_S)
        rig.advance(IDLE_S - 10)
        assert self.is_there(rig, "q")
        rig.advance(20)
        assert not self.is_there(rig, "q")

    def test_a_forwarding_entity_is_never_idle(self, steady: Rig) -> None:
        rig = steady
        rig.queue("end")
        rig.queue("q", auto_delete_on_idle=IDLE_S, forward_to="end")
        rig.advance(5 * IDLE_S)
        assert self.is_there(rig, "q")

    def test_a_topic_is_used_with_its_subscriptions_and_not_the_other_way(self, steady: Rig) -> None:
        rig = steady
        rig.topic("t", auto_delete_on_idle=IDLE_S)
        path = rig.subscription("t", "s")
        other = rig.subscription("t", "other", auto_delete_on_idle=IDLE_S)
        rig.advance(IDLE_S - 1)
        rig.claim(path)
        rig.send("t", "a")
        rig.advance(2)
        assert (self.is_there(rig, "t"), self.is_there(rig, path), self.is_there(rig, other)) == (True, True, False)
        rig.advance(IDLE_S)
        assert [info.name for info in rig.store.entities().wait()] == ["kept"]

    def test_it_can_be_set_later_and_taken_back(self, steady: Rig) -> None:
        rig = steady
        rig.queue("q")
        rig.queue("r", auto_delete_on_idle=IDLE_S)
        rig.update("q", auto_delete_on_idle=300.0)
        rig.update("r", auto_delete_on_idle=None)
        rig.advance(301)
        assert (self.is_there(rig, "q"), self.is_there(rig, "r")) == (False, True)
        rig.advance(5 * IDLE_S)
        assert self.is_there(rig, "r")


class MomentContract(Contract):
    """When an entity was created, changed and used."""

    def test_an_entity_knows_its_moments(self, rig: Rig) -> None:
        made_ns = rig.now_ns()
        rig.queue("q")
        rig.advance(1)
        rig.send("q", "a")
        info = rig.info("q")
        assert (info.created_ns, info.updated_ns) == (made_ns, made_ns)
        rig.advance(1)
        rig.update("q", max_count=5)
        rig.advance(1)
        rig.queue("q", max_count=5)  # No change.
        info = rig.info("q")
        assert (info.created_ns, info.updated_ns) == (made_ns, made_ns + 2 * SECOND)
        assert info.created_at is not None
        assert info.updated_at == info.created_at + timedelta(seconds=2)

    def test_a_store_knows_who_was_used_when(self, rig: Rig) -> None:
        rig.queue("q")
        rig.store.watch("q", lambda: None)  # A watch keeps one store open, also in tests that reopen it in every call.
        used_ns = rig.now_ns()
        assert rig.info("q").accessed_ns == used_ns
        for use in (lambda: rig.send("q", "a"), lambda: rig.peek("q"), lambda: rig.drain("q")):
            rig.advance(1)
            use()
            used_ns += SECOND
            assert rig.info("q").accessed_ns == used_ns
        rig.advance(1)
        assert rig.info("q").accessed_ns == used_ns

    def test_a_rule_changes_its_subscription(self, rig: Rig) -> None:
        rig.topic("t")
        path = rig.subscription("t", "s")
        made_ns = rig.info(path).updated_ns
        rig.advance(1)
        rig.run(SetRule(path, Rule("r", TrueFilter())))
        assert rig.info(path).updated_ns == made_ns + SECOND
        rig.advance(1)
        rig.run(DropRule(path, DEFAULT_RULE))
        assert (rig.info(path).created_ns, rig.info(path).updated_ns) == (made_ns, made_ns + 2 * SECOND)

    def test_an_entity_that_is_created_again_is_another(self, rig: Rig) -> None:
        rig.queue("q")
        rig.drop("q")
        rig.advance(5)
        rig.queue("q")
        assert rig.info("q").created_ns == rig.now_ns()
