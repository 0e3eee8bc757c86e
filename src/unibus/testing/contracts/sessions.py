"""The contract of sessions: one receiver at a time, order by sequence alone, and a state that outlasts the messages."""

import pytest

from unibus.core.flow.deadletter import MAX_DELIVERY_COUNT_EXCEEDED, REASON_HEADER
from unibus.core.lifecycle.commands import DEFER, LEAVE_SESSION, RENEW_SESSION, SET_SESSION_STATE
from unibus.errors import (
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    SessionLocked,
    SessionLockLost,
    SessionNotAllowed,
    SessionRequired,
)
from unibus.limits import SESSION_STATE_BYTES_MAX
from unibus.stores.seam.store import SessionLock
from unibus.testing.contracts.rig import ANSWER_S, SECOND, Contract, Rig, bodies


class SessionContract(Contract):
    def begin(self, rig: Rig) -> None:
        rig.queue("q", requires_session=True, lock_duration=10, max_delivery_count=3)
        for body, session_id, priority in (("a1", "a", 200), ("b1", "b", 50), ("a2", "a", 0)):
            rig.send("q", body, priority, session_id=session_id)

    def state(self, rig: Rig, lock: SessionLock) -> bytes | None:
        return rig.store.session_state(lock).wait(ANSWER_S)

    def test_a_session_accepted_by_its_id_gives_its_messages_by_sequence(self, rig: Rig) -> None:
        self.begin(rig)
        lock = rig.accept("q", "a")
        assert (lock.session_id, lock.until_ns) == ("a", rig.now_ns() + 10 * SECOND)
        assert bodies(rig.claim_in(lock, 9)) == ["a1", "a2"]

    def test_the_next_session_is_the_one_that_has_waited_longest(self, rig: Rig) -> None:
        self.begin(rig)
        assert [rig.accept("q").session_id, rig.accept("q").session_id] == ["a", "b"]
        assert rig.store.accept("q", None, "").wait(ANSWER_S) is None

    def test_a_session_without_messages_is_never_the_next_but_may_be_accepted(self, rig: Rig) -> None:
        self.begin(rig)
        lock = rig.accept("q", "empty")
        assert rig.claim_in(lock) == []
        rig.session(LEAVE_SESSION, lock)
        assert {rig.accept("q").session_id, rig.accept("q").session_id} == {"a", "b"}

    def test_a_session_has_one_receiver(self, rig: Rig) -> None:
        self.begin(rig)
        lock = rig.accept("q", "a")
        with pytest.raises(SessionLocked):
            rig.accept("q", "a")
        rig.session(LEAVE_SESSION, lock)
        assert rig.accept("q", "a").token != lock.token

    def test_messages_that_come_meanwhile_belong_to_the_receiver(self, rig: Rig) -> None:
        self.begin(rig)
        lock = rig.accept("q", "a")
        rig.claim_in(lock, 9)
        rig.send("q", "a3", session_id="a")
        assert bodies(rig.claim_in(lock, 9)) == ["a3"]

    def test_leaving_gives_back_what_is_not_settled_in_its_place(self, rig: Rig) -> None:
        self.begin(rig)
        lock = rig.accept("q", "a")
        first, _ = rig.claim_in(lock, 2)
        rig.session(LEAVE_SESSION, lock)
        again = rig.claim_in(rig.accept("q", "a"), 9)
        assert bodies(again) == ["a1", "a2"]
        assert [each.delivery_count for each in again] == [2, 2]
        with pytest.raises(LockLost):
            rig.complete(first)

    def test_the_end_of_the_lock_frees_the_session_and_its_messages(self, rig: Rig) -> None:
        self.begin(rig)
        lock = rig.accept("q", "a")
        [claimed] = rig.claim_in(lock)
        rig.advance(10)
        before = rig.picture()
        for verb in (RENEW_SESSION, LEAVE_SESSION, SET_SESSION_STATE):
            with pytest.raises(SessionLockLost):
                rig.session(verb, lock)
        with pytest.raises(SessionLockLost):
            rig.claim_in(lock)
        with pytest.raises(SessionLockLost):
            self.state(rig, lock)
        with pytest.raises(LockLost):
            rig.complete(claimed)
        assert rig.picture() == before
        assert rig.claim_in(rig.accept("q", "a"))[0].delivery_count == 2

    def test_a_renewed_session_keeps_its_messages(self, rig: Rig) -> None:
        self.begin(rig)
        lock = rig.accept("q", "a")
        [claimed] = rig.claim_in(lock)
        rig.advance(9)
        assert rig.session(RENEW_SESSION, lock) == rig.now_ns() + 10 * SECOND
        rig.advance(9)
        rig.complete(claimed)
        rig.advance(1)
        with pytest.raises(SessionLockLost):
            rig.session(RENEW_SESSION, lock)

    def test_another_receivers_token_is_no_use(self, rig: Rig) -> None:
        self.begin(rig)
        mine, other = rig.accept("q", "a"), rig.accept("q", "b")
        forged = SessionLock("q", "a", other.token, other.until_ns)
        before = rig.picture()
        for verb in (RENEW_SESSION, LEAVE_SESSION, SET_SESSION_STATE):
            with pytest.raises(SessionLockLost):
                rig.session(verb, forged, b"x")
        with pytest.raises(SessionLockLost):
            rig.claim_in(forged)
        assert rig.picture() == before
        assert self.state(rig, mine) is None

    def test_deliveries_that_came_to_nothing_count_up_to_the_dead_letters(self, rig: Rig) -> None:
        self.begin(rig)
        for _ in range(3):
            lock = rig.accept("q", "b")
            rig.claim_in(lock)
            rig.session(LEAVE_SESSION, lock)
        [message] = rig.dead("q")
        assert (message.body, message.headers[REASON_HEADER]) == ("b1", MAX_DELIVERY_COUNT_EXCEEDED)

    def test_the_state_outlives_receivers_and_messages(self, rig: Rig) -> None:
        self.begin(rig)
        lock = rig.accept("q", "b")
        assert self.state(rig, lock) is None
        rig.session(SET_SESSION_STATE, lock, b"halfway")
        for claimed in rig.claim_in(lock, 9):
            rig.complete(claimed)
        rig.session(LEAVE_SESSION, lock)
        rig.advance(3600)
        lock = rig.accept("q", "b")
        assert self.state(rig, lock) == b"halfway"
        rig.session(SET_SESSION_STATE, lock, None)
        assert self.state(rig, lock) is None

    def test_a_state_has_a_bound(self, rig: Rig) -> None:
        self.begin(rig)
        lock = rig.accept("q", "a")
        rig.session(SET_SESSION_STATE, lock, b"x" * SESSION_STATE_BYTES_MAX)
        with pytest.raises(MessageTooLarge):
            rig.session(SET_SESSION_STATE, lock, b"y" * (SESSION_STATE_BYTES_MAX + 1))
        assert self.state(rig, lock) == b"x" * SESSION_STATE_BYTES_MAX

    def test_who_has_no_session_gets_and_sends_nothing(self, rig: Rig) -> None:
        self.begin(rig)
        before = rig.picture()
        with pytest.raises(SessionRequired):
            rig.claim("q")
        with pytest.raises(SessionRequired):
            rig.send("q", "x")
        assert rig.picture() == before

    def test_a_queue_without_sessions_takes_the_id_and_gives_no_session(self, rig: Rig) -> None:
        rig.queue("plain")
        rig.send("plain", "x", session_id="a")
        for session_id in ("a", None):
            with pytest.raises(SessionNotAllowed):
                rig.accept("plain", session_id)
        assert rig.one("plain").who.session_id == "a"

    def test_deferred_messages_of_a_session_belong_to_its_receiver(self, rig: Rig) -> None:
        self.begin(rig)
        lock = rig.accept("q", "a")
        [claimed] = rig.claim_in(lock)
        rig.settle(DEFER, claimed)
        assert bodies(rig.claim_in(lock, 9)) == ["a2"]
        other = rig.accept("q", "b")
        with pytest.raises(MessageNotFound):
            rig.claim_in(other, sequences=(1,))
        with pytest.raises((MessageNotFound, SessionRequired)):
            rig.deferred("q", 1)
        assert bodies(rig.claim_in(lock, sequences=(1,))) == ["a1"]
        rig.session(LEAVE_SESSION, lock)
        lock = rig.accept("q", "a")
        assert bodies(rig.claim_in(lock, 9)) == ["a2"]
        assert rig.claim_in(lock, sequences=(1,))[0].delivery_count == 3

    def test_a_message_that_comes_back_makes_its_session_the_next(self, rig: Rig) -> None:
        rig.queue("q", requires_session=True, lock_duration=10)
        rig.send("q", "a1", session_id="a")
        rig.claim_in(rig.accept("q"))
        assert rig.store.accept("q", None, "").wait(ANSWER_S) is None
        rig.advance(10)
        assert rig.accept("q").session_id == "a"

    def test_a_session_that_is_held_ends_with_its_queue(self, rig: Rig) -> None:
        self.begin(rig)
        lock = rig.accept("q", "a")
        rig.claim_in(lock)
        rig.drop("q")
        rig.queue("q", requires_session=True)
        rig.advance(60)
        with pytest.raises(SessionLockLost):
            rig.claim_in(lock)
        rig.send("q", "new", session_id="a")
        assert bodies(rig.claim_in(rig.accept("q", "a"), 9)) == ["new"]
