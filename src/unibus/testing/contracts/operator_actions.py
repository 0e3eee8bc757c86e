"""The contract of operations of operators: moving and removing messages, positions, and the history of a message."""

import pytest

from unibus.core.codec.codec import decode
from unibus.core.flow.deadletter import REASON_HEADER, SOURCE_HEADER, sub_queue
from unibus.core.lifecycle.commands import (
    DEAD_LETTER,
    MOVE_REDIRECT,
    Advance,
    Command,
    Forget,
    ImportedState,
    Move,
    Remove,
    Renew,
    SendResult,
)
from unibus.core.lifecycle.state.changes import HeaderOverrides, MessageRef
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.core.lifecycle.state.states import ACTIVE, LOCKED
from unibus.errors import (
    BusError,
    EntityNotFound,
    MessageNotFound,
    PositionMoved,
    QuotaExceeded,
    SessionRequired,
    UsageError,
)
from unibus.stores.seam.message_record import MessageRecord
from unibus.testing.contracts.rig import ANSWER_S, SECOND, Contract, Rig, bodies, headers, sending


def dead_lettered(rig: Rig, queue: str, body: object, **fields: object) -> int:
    """Dead-letter a message of the queue; returns its sequence in the dead-letter queue."""
    rig.send(queue, body, 50, **fields)
    rig.settle(DEAD_LETTER, rig.one(queue), reason="Broken")
    return int(rig.peek(sub_queue(queue))[-1].sequence)


class DeadLetterContract(Contract):
    """What a dead-letter queue inherits from its entity."""

    def test_it_has_the_lock_duration_of_its_entity(self, rig: Rig) -> None:
        rig.queue("q", lock_duration=10.0)
        dead_lettered(rig, "q", "a")
        assert rig.info(sub_queue("q")).settings["lock_duration"] == 10.0
        claimed = rig.one(sub_queue("q"))
        assert claimed.until_ns == rig.now_ns() + 10 * SECOND
        rig.update("q", lock_duration=20.0)
        assert rig.run(Renew(sub_queue("q"), claimed.sequence, claimed.token)) == [rig.now_ns() + 20 * SECOND]
        rig.update(sub_queue("q"), lock_duration=5.0)
        assert rig.run(Renew(sub_queue("q"), claimed.sequence, claimed.token)) == [rig.now_ns() + 5 * SECOND]

    def test_one_that_dies_again_keeps_where_it_died_first(self, rig: Rig) -> None:
        rig.queue("q")
        dead_lettered(rig, "q", "a")
        rig.settle(DEAD_LETTER, rig.one(sub_queue("q")), reason="Again")
        [again] = rig.dead("q")
        assert (again.headers[SOURCE_HEADER], again.headers[REASON_HEADER]) == ("q", "Again")


class MoveContract(Contract):
    """A moved message is in one of the two entities, never in both, never in none."""

    def test_a_dead_lettered_message_is_moved_back_with_a_new_delivery_count(self, rig: Rig) -> None:
        rig.queue("q")
        sequence = dead_lettered(rig, "q", "a", message_id="m1")
        [result] = rig.run(Move(sub_queue("q"), sequence, "q"))
        assert isinstance(result, SendResult)
        again = rig.one("q")
        assert (again.sequence, again.who.message_id, again.delivery_count) == (result.sequence, "m1", 1)
        assert bodies([again]) == ["a"]
        assert rig.peek(sub_queue("q")) == []

    def test_headers_are_kept_unless_others_are_given(self, rig: Rig) -> None:
        rig.queue("q")
        cases: list[tuple[HeaderOverrides | None, str | None]] = [(None, "Broken"), ({"x": 1}, None)]
        for overlay, reason in cases:
            move = Move(sub_queue("q"), dead_lettered(rig, "q", "a"), "q")
            move.overlay = overlay
            rig.run(move)
            [claimed] = rig.claim("q", lock=False)
            assert (claimed.overlay or {}).get("DeadLetterReason") == reason

    def test_into_a_topic_it_goes_to_all_and_into_a_subscription_to_one(self, rig: Rig) -> None:
        rig.topic("t")
        one, other = rig.subscription("t", "one"), rig.subscription("t", "other")
        rig.queue("q")
        rig.run(Move(sub_queue("q"), dead_lettered(rig, "q", "all"), "t"))
        rig.run(Move(sub_queue("q"), dead_lettered(rig, "q", "one"), one))
        assert (rig.drain(one), rig.drain(other)) == (["all", "one"], ["all"])

    def test_what_was_edited_goes_on_as_it_is_now(self, rig: Rig) -> None:
        rig.queue("q")
        edited = sending("q", "better", message_id="m2")
        move = Move(sub_queue("q"), dead_lettered(rig, "q", "bad", message_id="m1"), "q")
        move.data, move.who, move.overlay = edited.data, edited.who, {"tries": 2}
        rig.run(move)
        claimed = rig.one("q")
        assert (claimed.who.message_id, bodies([claimed])) == ("m2", ["better"])
        assert (claimed.overlay, headers(claimed)) == ({"tries": 2}, {"tries": 2})
        assert rig.peek(sub_queue("q")) == []

    def test_a_locked_message_is_not_moved(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("other")
        rig.send("q", "a")
        claimed = rig.one("q")
        before = rig.picture()
        for command in (Move("q", 1, "other"), Remove("q", 1, "by hand"), Move("q", 7, "other")):
            with pytest.raises(MessageNotFound):
                rig.run(command)
            command.raises = False
            assert rig.run(command)[0] in (None, False)
        assert rig.picture() == before
        rig.complete(claimed)

    def test_a_move_that_cannot_be_made_changes_nothing(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("by-session", requires_session=True)
        rig.queue("full", max_count=1)
        rig.send("full", "x")
        rig.topic("unheard")
        sequence = dead_lettered(rig, "q", "a")
        before = rig.picture()
        refused: dict[str, type[BusError]] = {
            "nowhere": EntityNotFound,
            "by-session": SessionRequired,
            "full": QuotaExceeded,
            "unheard": UsageError,
            sub_queue("q"): UsageError,
        }
        for target, error in refused.items():
            with pytest.raises(error):
                rig.run(sending("q", "with it"), Move(sub_queue("q"), sequence, target))
        with pytest.raises(UsageError):
            rig.run(Move(sub_queue("q"), sequence, "q"), Remove(sub_queue("q"), sequence, "twice"))
        assert rig.picture() == before

    def test_scheduled_and_deferred_ones_can_be_removed(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "later", visible_ns=rig.now_ns() + 10 * SECOND)
        rig.send("q", "put aside")
        rig.defer(rig.one("q"))
        assert rig.run(Remove("q", 1, "by hand"), Remove("q", 2, "by hand")) == [True, True]
        rig.advance(20)
        assert rig.peek("q") == []
        assert rig.info("q").size_bytes == 0

    def test_history_tells_what_was_done_by_hand(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("other")
        move = Move(sub_queue("q"), dead_lettered(rig, "q", "a", message_id="m1"), "other")
        move.action = MOVE_REDIRECT
        rig.run(move)
        rig.run(Remove("other", 1, "not wanted"))
        moved, purged = (event for event in rig.events() if event.kind in ("moved", "purged"))
        assert (moved.channel, moved.attrs) == (sub_queue("q"), {"target": "other", "action": "redirect"})
        assert (purged.channel, purged.message_id, purged.reason) == ("other", "m1", "not wanted")


class PositionContract(Contract):
    """Exactly-once work: a batch is applied together with the position that records it."""

    def test_a_batch_is_taken_once(self, rig: Rig) -> None:
        rig.queue("q")
        assert rig.store.position("relay").wait() == 0
        rig.run(sending("q", 1), Advance("relay", 0, 5))
        with pytest.raises(PositionMoved):
            rig.run(sending("q", 1), Advance("relay", 0, 5))
        assert (rig.drain("q"), rig.store.position("relay").wait()) == ([1], 5)

    def test_positions_have_names_and_do_not_go_back(self, rig: Rig) -> None:
        rig.run(Advance("a", 0, 5), Advance("b", 0, 7))
        assert (rig.store.position("a").wait(), rig.store.position("b").wait()) == (5, 7)
        for batch in ([Advance("a", 5, 4)], [Advance("a", 5, 6), Advance("a", 6, 7)]):
            with pytest.raises(UsageError):
                rig.run(*batch)
        assert rig.store.position("a").wait() == 5


class FormerContract(Contract):
    """An imported message has the state that it had in its former store."""

    def place(self, rig: Rig, entity: str, body: object, count: int = 0, **fields: object) -> int:
        overlay, expires_ns = fields.pop("overlay", None), fields.pop("expires_ns", 0)
        assert overlay is None or isinstance(overlay, dict)
        assert isinstance(expires_ns, int)
        priority = fields.pop("priority", 50)
        assert isinstance(priority, int)
        return rig.send(entity, body, priority, imported=ImportedState(count, expires_ns, overlay), **fields).sequence

    def test_its_count_and_its_headers(self, rig: Rig) -> None:
        rig.queue("q", max_delivery_count=3)
        assert self.place(rig, "q", "new") == 1
        self.place(rig, "q", "tried", 2, overlay={"note": "x"})
        new, tried = rig.claim("q", 2)
        assert (new.delivery_count, tried.delivery_count) == (1, 3)
        assert (new.overlay, headers(tried)) == (None, {"note": "x"})
        rig.abandon(new)
        rig.abandon(tried)  # That was its last allowed delivery.
        assert (rig.info("q").active, rig.info("q").dead) == (1, 1)

    def test_order_is_by_priority_and_then_as_they_came(self, rig: Rig) -> None:
        rig.queue("q")
        for body, count, priority in (("c", 0, 50), ("a", 1, 10), ("d", 2, 50), ("b", 0, 10)):
            self.place(rig, "q", body, count, priority=priority)
        assert rig.drain("q") == ["a", "b", "c", "d"]

    def test_a_dead_lettered_message_is_imported_into_the_dead_letter_queue(self, rig: Rig) -> None:
        rig.queue("q", forward_dead_letters_to="elsewhere", max_count=1)
        record: HeaderOverrides = {"DeadLetterReason": "Broken", "DeadLetterAttempts": 3}
        for body in ("a", "b"):
            self.place(rig, sub_queue("q"), body, overlay=record)
        assert [(each.body, each.headers["DeadLetterReason"]) for each in rig.dead("q")] == [
            ("a", "Broken"),
            ("b", "Broken"),
        ]
        assert (rig.info("q").active, rig.info("q").dead) == (0, 2)
        assert rig.one(sub_queue("q")).delivery_count == 1

    def test_in_one_subscription_and_where_it_would_be_forwarded_from(self, rig: Rig) -> None:
        rig.topic("t")
        one, other = rig.subscription("t", "one"), rig.subscription("t", "other")
        rig.queue("q", forward_to="t")
        self.place(rig, one, "a")
        self.place(rig, "q", "b")
        assert (rig.drain(one), rig.drain(other), rig.drain("q")) == (["a"], [], ["b"])

    def test_what_a_topic_kept_goes_to_its_first_subscription_or_to_those_there_are(self, rig: Rig) -> None:
        rig.topic("t", keeps=True)
        self.place(rig, "t", "early")
        one = rig.subscription("t", "one")
        self.place(rig, "t", "late", overlay={"note": "x"})
        assert rig.drain(one) == ["early", "late"]

    def test_its_times(self, rig: Rig) -> None:
        rig.queue("q", default_ttl=1)
        now_ns = rig.now_ns()
        self.place(rig, "q", "scheduled", visible_ns=now_ns + 10 * SECOND)
        self.place(rig, "q", "delayed", 1, visible_ns=now_ns + 20 * SECOND)
        self.place(rig, "q", "was due", visible_ns=now_ns - SECOND)
        self.place(rig, "q", "short", expires_ns=now_ns + 5 * SECOND)
        self.place(rig, "q", "over", expires_ns=now_ns - SECOND)
        assert rig.info("q").scheduled == 2
        assert bodies(rig.claim("q", 10)) == ["was due", "short"]
        rig.advance(11)
        assert rig.drain("q") == ["scheduled"]
        rig.advance(10)
        assert [(each.delivery_count, *bodies([each])) for each in rig.claim("q")] == [(2, "delayed")]

    def test_a_key_that_is_known_does_not_keep_it_out_and_is_known_from_then_on(self, rig: Rig) -> None:
        rig.queue("q", dedup_window=600)
        rig.send("q", "a", message_id="m1")
        self.place(rig, "q", "b", message_id="m1")
        self.place(rig, "q", "c", message_id="m2")
        assert rig.send("q", "d", message_id="m2").duplicate
        assert rig.drain("q") == ["a", "b", "c"]

    def test_in_a_session(self, rig: Rig) -> None:
        rig.queue("q", requires_session=True)
        self.place(rig, "q", "a", 2, session_id="s")
        self.place(rig, "q", "b", session_id="s")
        claimed = rig.claim_in(rig.accept("q", "s"), 5)
        assert (bodies(claimed), [each.delivery_count for each in claimed]) == (["a", "b"], [3, 1])

    def test_what_cannot_be_stored_changes_nothing(self, rig: Rig) -> None:
        rig.topic("t")
        rig.queue("q", max_count=1)
        rig.queue("by-session", requires_session=True)
        before = rig.picture()
        refused: dict[str, type[BusError]] = {
            "nowhere": EntityNotFound,
            sub_queue("nowhere"): EntityNotFound,
            sub_queue("t"): UsageError,
            "by-session": SessionRequired,
        }
        for entity, error in refused.items():
            with pytest.raises(error):
                rig.run(sending("q", "with it"), sending(entity, "x", imported=ImportedState(1, 0, None)))
        with pytest.raises(QuotaExceeded):
            rig.run(*[sending("q", number, imported=ImportedState(0, 0, None)) for number in range(2)])
        assert rig.picture() == before

    def test_together_with_a_position(self, rig: Rig) -> None:
        rig.queue("q")
        batch: list[Command] = [sending("q", "a", imported=ImportedState(1, 0, None)), Advance("import", 0, 1)]
        rig.run(*batch)
        with pytest.raises(PositionMoved):
            rig.run(*batch)
        assert rig.drain("q") == ["a"]


class SeeingContract(Contract):
    """Reading stored messages, and the history of a message."""

    def test_held_gives_what_is_there(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("other")
        rig.fill("q", ["a", "b"])
        rig.send("other", "c")
        assert [record.key for record in self.listed(rig, "q")] == [("q", 1), ("q", 2)]
        assert [record.key for record in rig.messages()] == [("other", 1), ("q", 1), ("q", 2)]
        assert self.listed(rig, sub_queue("q")) == []
        with pytest.raises(EntityNotFound):
            self.listed(rig, "nowhere")

    def listed(self, rig: Rig, entity: str, from_sequence: int = 0, count: int = 100) -> list[MessageRecord]:
        return rig.store.list_messages(entity, from_sequence, count).wait(ANSWER_S)

    def test_messages_are_listed_in_pages(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", range(7))
        rig.complete(rig.claim("q", 4)[2])
        assert [record.sequence for record in self.listed(rig, "q", 0, 3)] == [1, 2, 4]
        assert [record.sequence for record in self.listed(rig, "q", 3, 3)] == [4, 5, 6]
        assert [record.sequence for record in self.listed(rig, "q", 7, 3)] == [7]
        assert self.listed(rig, "q", 8, 3) == []

    def test_a_record_is_a_frozen_copy(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "a", message_id="m")
        [before] = self.listed(rig, "q")
        claimed = rig.one("q")
        [locked] = self.listed(rig, "q")
        rig.abandon(claimed, overlay={"why": "busy"})
        [returned] = self.listed(rig, "q")
        rig.drain("q")
        assert [record.state for record in (before, locked, returned)] == [ACTIVE, LOCKED, ACTIVE]
        assert [record.delivery_count for record in (before, locked, returned)] == [0, 1, 1]
        assert (before.locked_until_ns, locked.locked_until_ns) == (0, claimed.until_ns)
        assert (before.overlay, returned.overlay) == (None, {"why": "busy"})
        assert (before.who.message_id, before.kind, before.priority) == ("m", QUEUE, 50)
        with pytest.raises(AttributeError):
            before.state = LOCKED  # type: ignore[misc]

    def test_data_of_those_that_are_still_there(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", ["a", "b"])
        before = self.listed(rig, "q")
        rig.complete(rig.one("q"))
        keys = [*[record.key for record in before], ("q", 3), ("nowhere", 1)]
        found = rig.store.read_bodies(keys).wait(ANSWER_S)
        assert {key: decode(data).body for key, data in found.items()} == {("q", 2): "b"}
        assert rig.store.read_bodies([]).wait(ANSWER_S) == {}

    def test_events_of_one_message_in_all_its_places(self, rig: Rig) -> None:
        rig.topic("t")
        one = rig.subscription("t", "one")
        rig.subscription("t", "other")
        for number in range(30):
            rig.send("t", number, message_id=f"m{number}")
        rig.complete(rig.one(one))
        rig.send("t", "again", message_id="m0")
        expected = [event for event in rig.events() if event.message_id == "m0"]
        assert rig.store.history.events_of("m0") == expected
        assert len(expected) == 8
        assert rig.store.history.events_of("m") == []

    def test_events_of_some_kinds(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", range(5))
        rig.complete(rig.one("q"))
        rows, _ = rig.store.history.events_after(0, 3, ("completed", "sent"))
        assert [event.kind for event in rows] == ["sent"] * 3
        rows, safe = rig.store.history.events_after(rows[-1].seq, 10, ("completed", "sent"))
        assert [event.kind for event in rows] == ["sent", "sent", "completed"]
        assert safe >= rows[-1].seq

    def replayed(self, rig: Rig, entity: str, after: int = 0, since_ns: int = 0) -> list[tuple[int, int]]:
        """The sequence and the size of each replayed message."""
        index = rig.store.history.replay_index(entity, after, since_ns)
        return [(sequence, len(data)) for sequence, data in index.messages()]

    def test_replay_gives_what_was_there_before(self, rig: Rig) -> None:
        rig.topic("t")
        rig.queue("q")
        subscription = rig.subscription("t", "s")
        for entity in ("q", "t"):
            rig.fill(entity, ["a", "b", "c"])
        assert rig.drain("q") == rig.drain(subscription) == ["a", "b", "c"]
        for entity in ("q", "t", subscription):
            assert [sequence for sequence, _ in self.replayed(rig, entity)] == [1, 2, 3]
            assert [sequence for sequence, _ in self.replayed(rig, entity, after=2)] == [3]
        rig.advance(5)
        rig.send("q", "d")
        assert [sequence for sequence, _ in self.replayed(rig, "q", since_ns=rig.now_ns())] == [4]

    def test_what_was_forgotten_by_hand_is_not_replayed(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", range(6))
        rig.drain("q")
        rig.send("q", 6)
        rig.run(Forget("q", 3), Forget("q", 5, MessageRef("any id", 1)), Remove("q", 7, "by hand"))
        assert [sequence for sequence, _ in self.replayed(rig, "q")] == [4, 6]

    def test_a_scheduled_one_is_replayed_from_its_time_on(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "later", visible_ns=rig.now_ns() + 10 * SECOND)
        assert self.replayed(rig, "q") == []
        rig.advance(20)
        rig.drain("q")
        assert [sequence for sequence, _ in self.replayed(rig, "q")] == [2]
