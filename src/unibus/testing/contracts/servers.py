"""The contract for protocol servers: locks by token, peeks from any sequence, single entities, sessions.

A server holds no object for a received message, only the lock token that a client sends. It looks into queues of any
length, and asks for one of many entities with every request.
"""

import pytest

from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule, rules_text
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.commands import (
    ABANDON,
    BY_TOKEN,
    COMPLETE,
    DEAD_LETTER,
    LEAVE_SESSION,
    SET_SESSION_STATE,
    Command,
    Declare,
    Drop,
    Renew,
    SendResult,
    Settle,
)
from unibus.core.lifecycle.state.entity import NAMESPACE, NAMESPACE_NAME, QUEUE, SUBSCRIPTION, TOPIC
from unibus.errors import BusError, EntityExists, EntityNotFound, LockLost, MessageNotFound, NameInvalid, UsageError
from unibus.stores.seam.store import SessionLock
from unibus.testing.contracts.rig import ANSWER_S, SECOND, Contract, Rig, bodies, sending


def by_token(command: Settle | Renew, message_id: str = "") -> Command:
    command.message_id = message_id
    return command


class TokenContract(Contract):
    def test_a_token_alone_settles_its_message_and_no_other(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", ["a", "b"])
        first, second = rig.claim("q", 2)
        rig.run(Settle(COMPLETE, "", BY_TOKEN, first.token))
        rig.run(Settle(ABANDON, "", BY_TOKEN, second.token))
        assert bodies(rig.claim("q", 9)) == ["b"]

    def test_a_token_is_renewed_alone(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10)
        rig.send("q")
        claimed = rig.one("q")
        rig.advance(9)
        assert rig.run(Renew("", BY_TOKEN, claimed.token)) == [rig.now_ns() + 10 * SECOND]

    def test_a_token_that_is_unknown_settled_or_over_is_lost(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10)
        rig.fill("q", ["a", "b", "c"])
        settled, over, other = rig.claim("q", 3)
        rig.complete(settled)
        rig.abandon(other)
        rig.advance(10)
        before = rig.picture()
        for token in (settled.token, over.token, other.token, bytes(16), b""):
            for command in (Settle(COMPLETE, "", BY_TOKEN, token), Renew("q", BY_TOKEN, token)):
                with pytest.raises(LockLost):
                    rig.run(command)
        assert rig.picture() == before

    def test_another_id_or_entity_is_not_found_and_the_lock_stays(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("other")
        rig.send("q", message_id="mine")
        claimed = rig.one("q")
        before = rig.picture()
        wrong = [
            by_token(Settle(COMPLETE, "", BY_TOKEN, claimed.token), "another"),
            by_token(Settle(DEAD_LETTER, "other", BY_TOKEN, claimed.token)),
            by_token(Renew("other", BY_TOKEN, claimed.token), "mine"),
            by_token(Renew("Q", BY_TOKEN, claimed.token), "another"),
        ]
        for command in wrong:
            with pytest.raises(MessageNotFound):
                rig.run(command)
        with pytest.raises(EntityNotFound):
            rig.run(Settle(COMPLETE, "nowhere", BY_TOKEN, claimed.token))
        assert rig.picture() == before
        rig.run(by_token(Settle(COMPLETE, "Q", BY_TOKEN, claimed.token), "mine"))
        assert rig.peek("q") == []

    def test_a_token_settles_once_in_a_batch(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q")
        claimed = rig.one("q")
        twice = [Settle(COMPLETE, "", BY_TOKEN, claimed.token), Settle(COMPLETE, "q", claimed.sequence, claimed.token)]
        with pytest.raises(UsageError):
            rig.run(*twice)
        rig.run(twice[0])

    def test_a_deleted_entity_takes_its_locks_with_it(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q")
        claimed = rig.one("q")
        rig.drop("q")
        with pytest.raises(LockLost):
            rig.run(Settle(COMPLETE, "", BY_TOKEN, claimed.token))

    def test_inside_of_a_session_too(self, rig: Rig) -> None:
        rig.queue("q", requires_session=True)
        rig.send("q", session_id="s")
        lock = rig.accept("q", "s")
        [claimed] = rig.claim_in(lock)
        assert rig.run(Renew("", BY_TOKEN, claimed.token)) == [lock.until_ns]
        rig.run(Settle(COMPLETE, "", BY_TOKEN, claimed.token))
        assert rig.peek("q") == []

    def test_the_first_byte_of_a_token_is_reserved(self, rig: Rig) -> None:
        rig.queue("q", requires_session=True)
        rig.fill("q", range(30), session_id="s")
        lock = rig.accept("q", "s")
        tokens = [lock.token, *(each.token for each in rig.claim_in(lock, 30))]
        assert {token[0] for token in tokens} == {0}
        assert {len(token) for token in tokens} == {16}
        assert len(set(tokens)) == 31


class PeekContract(Contract):
    def sequences(self, rig: Rig, first: int = 0, count: int = 100, session_id: str | None = None) -> list[int]:
        return [each.sequence for each in rig.store.peek("q", first, count, session_id).wait(ANSWER_S)]

    def test_a_peek_begins_anywhere_and_sees_every_state(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", range(6))
        rig.send("q", "later", visible_ns=rig.now_ns() + 60 * SECOND)
        locked, deferred, done = rig.claim("q", 3)
        rig.defer(deferred)
        rig.complete(done)
        assert self.sequences(rig) == [1, 2, 4, 5, 6, 7]
        assert self.sequences(rig, 3, 2) == [4, 5]
        assert self.sequences(rig, 8) == []
        rig.complete(locked)
        rig.advance(60)  # The scheduled message is the last one now.
        assert self.sequences(rig) == [2, 4, 5, 6, 8]
        rig.send("q")
        assert self.sequences(rig, 5) == [5, 6, 8, 9]

    def test_a_peek_shows_no_lock_token(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q")
        claimed = rig.one("q")
        [seen] = rig.peek("q")
        assert (seen.token, seen.until_ns, bool(claimed.token)) == (b"", claimed.until_ns, True)

    def test_a_peek_keeps_up_while_messages_come_and_go(self, rig: Rig) -> None:
        rig.queue("q", requires_session=True)
        held: dict[str, list[int]] = {"a": [], "b": []}
        for _ in range(6):
            ids = ["ab"[number % 2] for number in range(100)]
            results = rig.run(*[sending("q", "x", session_id=each) for each in ids])
            for session_id, result in zip(ids, results, strict=True):
                assert isinstance(result, SendResult)
                held[session_id].append(result.sequence)
            lock = rig.accept("q", "a")
            rig.run(*[Settle(COMPLETE, "", BY_TOKEN, each.token) for each in rig.claim_in(lock, 49)])
            rig.session(LEAVE_SESSION, lock)
            del held["a"][:49]
            assert self.sequences(rig, 0, 5_000, "a") == held["a"]
            assert self.sequences(rig, held["b"][-2], 9, "b") == held["b"][-2:]
            assert self.sequences(rig, 0, 5_000) == sorted(held["a"] + held["b"])

    def test_a_peek_by_session(self, rig: Rig) -> None:
        rig.queue("q", requires_session=True)
        rig.send("q", session_id="a")
        assert self.sequences(rig, 0, 9, "b") == []
        rig.send("q", session_id="b")
        rig.send("q", session_id="a")
        rig.send("q", session_id="a", visible_ns=rig.now_ns() + 60 * SECOND)
        assert self.sequences(rig, 0, 9, "a") == [1, 3, 4]
        assert self.sequences(rig, 2, 1, "a") == [3]
        assert self.sequences(rig, 0, 9, "b") == [2]
        rig.advance(60)
        assert self.sequences(rig, 0, 9, "a") == [1, 3, 5]
        assert self.sequences(rig, 0, 9, "none") == []

    def test_the_oldest_message_of_an_entity(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", visible_ns=rig.now_ns() + 600 * SECOND)
        assert rig.info("q").oldest_ns == 0
        began = rig.now_ns()
        rig.send("q")
        rig.advance(5)
        rig.send("q")
        assert rig.info("q").oldest_ns == began
        rig.complete(rig.one("q"))
        assert rig.info("q").oldest_ns == began + 5 * SECOND
        rig.complete(rig.one("q"))
        assert rig.info("q").oldest_ns == 0
        rig.advance(600)
        assert rig.info("q").oldest_ns == rig.now_ns() - 5 * SECOND


class ListedSessionContract(Contract):
    def ids(self, rig: Rig, after_ns: int = 0, skip: int = 0, top: int = 100) -> list[str]:
        return rig.store.catalog.sessions("q", after_ns, skip, top).wait(ANSWER_S)

    def stated(self, rig: Rig, session_id: str, state: bytes | None) -> SessionLock:
        lock = rig.accept("q", session_id)
        rig.session(SET_SESSION_STATE, lock, state)
        rig.session(LEAVE_SESSION, lock)
        return lock

    def test_sessions_with_messages_or_a_state_are_listed_by_id(self, rig: Rig) -> None:
        rig.queue("q", requires_session=True)
        for session_id in ("c", "a", "b"):
            rig.send("q", session_id=session_id)
        self.stated(rig, "stated", b"1")
        rig.accept("q", "only locked")
        assert self.ids(rig) == ["a", "b", "c", "stated"]
        assert self.ids(rig, 0, 1, 2) == ["b", "c"]
        [claimed] = rig.claim_in(rig.accept("q", "a"))
        rig.complete(claimed)
        assert self.ids(rig) == ["b", "c", "stated"]

    def test_only_those_whose_state_was_set_after_an_instant(self, rig: Rig) -> None:
        rig.queue("q", requires_session=True)
        rig.send("q", session_id="a")
        rig.advance(1)
        self.stated(rig, "a", b"1")
        first = rig.now_ns()
        rig.advance(1)
        self.stated(rig, "b", b"1")
        assert self.ids(rig, first - 1) == ["a", "b"]
        assert self.ids(rig, first) == ["b"]
        rig.advance(1)
        self.stated(rig, "a", b"2")
        assert self.ids(rig, first + SECOND) == ["a"]
        self.stated(rig, "a", None)
        assert self.ids(rig, 1) == ["b"]

    def test_an_unknown_entity_has_no_sessions(self, rig: Rig) -> None:
        with pytest.raises(EntityNotFound):
            self.ids(rig)


class CatalogContract(Contract):
    def names(self, rig: Rig, kind: int, topic: str = "", skip: int = 0, top: int = 100) -> list[str]:
        return [info.name for info in rig.store.catalog.page(kind, topic, skip, top).wait(ANSWER_S)]

    def test_one_entity_is_what_the_list_of_all_shows(self, rig: Rig) -> None:
        rig.queue("Q", max_count=5)
        rig.fill("Q", range(3))
        rig.claim("Q")
        assert rig.store.catalog.entity("q").wait(ANSWER_S) == rig.info("Q")
        assert rig.store.catalog.entity("none").wait(ANSWER_S) is None
        found = rig.store.catalog.find("q")
        assert found is not None
        assert (found.name, found.kind, found.settings.count_max) == ("Q", QUEUE, 5)
        rig.update("Q", max_count=6)
        changed = rig.store.catalog.find("q")
        assert changed is not None
        assert changed.settings.count_max == 6
        assert found.settings.count_max == 5  # A copy of the moment of the call.
        rig.drop("Q")
        assert rig.store.catalog.find("q") is None

    def test_pages_by_kind_and_by_topic(self, rig: Rig) -> None:
        for name in ("c", "A", "b"):
            rig.queue(name)
        rig.topic("t")
        for name in ("two", "One"):
            rig.subscription("t", name)
        rig.topic("u")
        rig.subscription("u", "other")
        assert self.names(rig, QUEUE) == ["A", "b", "c"]
        assert self.names(rig, QUEUE, "", 1, 1) == ["b"]
        assert self.names(rig, TOPIC) == ["t", "u"]
        assert self.names(rig, SUBSCRIPTION, "T") == ["t/Subscriptions/One", "t/Subscriptions/two"]
        rig.drop("b")
        rig.queue("d")
        rig.drop("t/Subscriptions/One")
        assert self.names(rig, QUEUE) == ["A", "c", "d"]
        assert self.names(rig, SUBSCRIPTION, "t") == ["t/Subscriptions/two"]
        with pytest.raises(EntityNotFound):
            self.names(rig, SUBSCRIPTION, "none")

    def test_a_new_entity_only(self, rig: Rig) -> None:
        rig.run(Declare("q", QUEUE, {"max_count": 5}, new_only=True))
        before = rig.picture()
        for kind, name in ((QUEUE, "q"), (QUEUE, "Q"), (TOPIC, "q")):
            with pytest.raises(EntityExists):
                rig.run(Declare(name, kind, {"max_count": 5}, new_only=True))
        assert rig.picture() == before
        rig.run(Declare("q", QUEUE, {"max_count": 5}))

    def test_duplicate_detection_and_its_window_are_two_settings(self, rig: Rig) -> None:
        rig.queue("window", dedup_window=60)
        rig.queue("off", dedup_window=60, duplicate_detection=False)
        rig.queue("on", duplicate_detection=True)
        for name, known in (("window", True), ("off", False), ("on", True)):
            rig.send(name, message_id="m")
            assert rig.send(name, message_id="m").duplicate == known
        rig.run(Declare("window", QUEUE, {"duplicate_detection": True, "dedup_window": 60}))
        with pytest.raises(EntityExists):
            rig.run(Declare("on", QUEUE, {"duplicate_detection": False}))
        rig.advance(61)
        assert not rig.send("window", message_id="m").duplicate
        assert rig.send("on", message_id="m").duplicate  # The default window is ten minutes.
        rig.update("off", duplicate_detection=True)
        rig.send("off", message_id="n")
        assert rig.send("off", message_id="n").duplicate
        rig.update("on", duplicate_detection=False)
        assert not rig.send("on", message_id="m").duplicate


class NamespaceContract(Contract):
    RULE = AuthorizationRule.generated("all", [Right.SEND], bytes(64))

    def test_the_namespace_has_settings_and_is_listed_nowhere(self, rig: Rig) -> None:
        rig.queue("q")
        listed = rig.store.entities().wait(ANSWER_S)
        assert rig.store.catalog.find(NAMESPACE_NAME) is None
        for text in (rules_text([self.RULE]), rules_text([])):
            rig.run(Declare(NAMESPACE_NAME, NAMESPACE, {"authorization_rules": text}))
            found = rig.store.catalog.find(NAMESPACE_NAME)
            assert found is not None
            assert found.settings.given == {"authorization_rules": text}
        assert rig.store.entities().wait(ANSWER_S) == listed
        assert rig.messages() == []
        info = rig.store.catalog.entity(NAMESPACE_NAME).wait(ANSWER_S)
        assert info is not None
        assert info.kind == "namespace"

    def test_no_other_verb_reaches_it(self, rig: Rig) -> None:
        rig.run(Declare(NAMESPACE_NAME, NAMESPACE, {}))
        rig.queue("q", forward_to=NAMESPACE_NAME)
        rig.send("q")
        assert len(rig.peek(sub_queue("q"))) == 1
        calls = (
            lambda: rig.send(NAMESPACE_NAME),
            lambda: rig.claim(NAMESPACE_NAME),
            lambda: rig.peek(NAMESPACE_NAME),
            lambda: rig.claim(sub_queue(NAMESPACE_NAME)),
            lambda: rig.run(Drop(NAMESPACE_NAME)),
            lambda: rig.update(NAMESPACE_NAME, user_metadata="x"),
            lambda: rig.queue(NAMESPACE_NAME),
        )
        before = rig.picture()
        for call in calls:
            with pytest.raises(BusError):
                call()
        assert rig.picture() == before

    def test_it_has_one_name_and_few_settings(self, rig: Rig) -> None:
        with pytest.raises(NameInvalid):
            rig.run(Declare("other", NAMESPACE, {}))
        with pytest.raises(UsageError):
            rig.run(Declare(NAMESPACE_NAME, NAMESPACE, {"max_count": 1}))
        assert rig.store.catalog.find(NAMESPACE_NAME) is None
