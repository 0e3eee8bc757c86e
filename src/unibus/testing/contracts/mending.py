"""The contract of what operators do: messages that are moved or removed by hand, positions, and history by message."""

import pytest

from unibus.core.deadletter import sub_queue
from unibus.core.life.changes import Overlay, Who
from unibus.core.life.commands import DEAD_LETTER, MOVE_REDIRECT, Advance, Forget, Move, Remove, SendResult
from unibus.core.life.states import GONE
from unibus.errors import BusError, EntityNotFound, MessageNotFound, PositionMoved, SessionRequired, UsageError
from unibus.testing.contracts.rig import SECOND, Contract, Rig, bodies, sending


def letter(rig: Rig, queue: str, body: object, **fields: object) -> int:
    """A dead letter of the queue, by its sequence there."""
    rig.send(queue, body, 50, **fields)
    rig.settle(DEAD_LETTER, rig.one(queue), reason="Broken")
    return int(rig.peek(sub_queue(queue))[-1].sequence)


class MoveContract(Contract):
    """One place or the other, never both, never none."""

    def test_a_dead_letter_goes_back_and_begins_anew(self, rig: Rig) -> None:
        rig.queue("q")
        sequence = letter(rig, "q", "a", message_id="m1")
        [result] = rig.run(Move(sub_queue("q"), sequence, "q"))
        assert isinstance(result, SendResult)
        again = rig.one("q")
        assert (again.sequence, again.who.message_id, again.delivery_count) == (result.sequence, "m1", 1)
        assert bodies([again]) == ["a"]
        assert rig.peek(sub_queue("q")) == []

    def test_headers_are_kept_unless_others_are_given(self, rig: Rig) -> None:
        rig.queue("q")
        cases: list[tuple[Overlay | None, str | None]] = [(None, "Broken"), ({"x": 1}, None)]
        for overlay, reason in cases:
            move = Move(sub_queue("q"), letter(rig, "q", "a"), "q")
            move.overlay = overlay
            rig.run(move)
            [claimed] = rig.claim("q", lock=False)
            assert (claimed.overlay or {}).get("DeadLetterReason") == reason

    def test_into_a_topic_it_goes_to_all_and_into_a_subscription_to_one(self, rig: Rig) -> None:
        rig.topic("t")
        one, other = rig.subscription("t", "one"), rig.subscription("t", "other")
        rig.queue("q")
        rig.run(Move(sub_queue("q"), letter(rig, "q", "all"), "t"))
        rig.run(Move(sub_queue("q"), letter(rig, "q", "one"), one))
        assert (rig.drain(one), rig.drain(other)) == (["all", "one"], ["all"])

    def test_what_was_edited_goes_on_as_it_is_now(self, rig: Rig) -> None:
        rig.queue("q")
        edited = sending("q", "better", message_id="m2")
        move = Move(sub_queue("q"), letter(rig, "q", "bad", message_id="m1"), "q")
        move.data, move.who = edited.data, edited.who
        rig.run(move)
        claimed = rig.one("q")
        assert (claimed.who.message_id, bodies([claimed])) == ("m2", ["better"])
        assert rig.peek(sub_queue("q")) == []

    def test_one_that_somebody_works_on_is_left_to_him(self, rig: Rig) -> None:
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
        sequence = letter(rig, "q", "a")
        before = rig.picture()
        refused: dict[str, type[BusError]] = {
            "nowhere": EntityNotFound,
            "by-session": SessionRequired,
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
        move = Move(sub_queue("q"), letter(rig, "q", "a", message_id="m1"), "other")
        move.action = MOVE_REDIRECT
        rig.run(move)
        rig.run(Remove("other", 1, "not wanted"))
        moved, purged = (event for event in rig.events() if event.kind in ("moved", "purged"))
        assert (moved.channel, moved.attrs) == (sub_queue("q"), {"target": "other", "action": "redirect"})
        assert (purged.channel, purged.message_id, purged.reason) == ("other", "m1", "not wanted")


class PositionContract(Contract):
    """Work that has one effect: a batch goes together with the position that says it was done."""

    def test_a_batch_is_taken_once(self, rig: Rig) -> None:
        rig.queue("q")
        assert rig.store.position("relay") == 0
        rig.run(sending("q", 1), Advance("relay", 0, 5))
        with pytest.raises(PositionMoved):
            rig.run(sending("q", 1), Advance("relay", 0, 5))
        assert (rig.drain("q"), rig.store.position("relay")) == ([1], 5)

    def test_positions_have_names_and_do_not_go_back(self, rig: Rig) -> None:
        rig.run(Advance("a", 0, 5), Advance("b", 0, 7))
        assert (rig.store.position("a"), rig.store.position("b")) == (5, 7)
        for batch in ([Advance("a", 5, 4)], [Advance("a", 5, 6), Advance("a", 6, 7)]):
            with pytest.raises(UsageError):
                rig.run(*batch)
        assert rig.store.position("a") == 5


class SeeingContract(Contract):
    """What there is now, and what there was."""

    def test_held_gives_what_is_there(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("other")
        rig.fill("q", ["a", "b"])
        rig.send("other", "c")
        assert [entry.sequence for entry in rig.store.held("q")] == [1, 2]
        assert sorted((entry.entity.name, entry.sequence) for entry in rig.store.held()) == [
            ("other", 1),
            ("q", 1),
            ("q", 2),
        ]
        assert rig.store.held(sub_queue("q")) == []
        with pytest.raises(EntityNotFound):
            rig.store.held("nowhere")

    def test_data_of_those_that_are_still_there(self, rig: Rig) -> None:
        rig.queue("q")
        rig.fill("q", ["a", "b"])
        entries = rig.store.held("q")
        rig.complete(rig.one("q"))
        found = rig.store.data_of(rig.store.held("q"))
        assert [entry.sequence for entry in found] == [2]
        if entries[0].state == GONE:  # The same object, unless the store was opened again in between.
            assert entries[0] not in rig.store.data_of(entries)

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
        """Sequences, and how many bytes each has."""
        return [(sequence, len(data)) for sequence, data in rig.store.history.replay(entity, after, since_ns)]

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
        rig.run(Forget("q", 3), Forget("q", 5, Who("whoever", 1)), Remove("q", 7, "by hand"))
        assert [sequence for sequence, _ in self.replayed(rig, "q")] == [4, 6]

    def test_a_scheduled_one_is_replayed_from_its_time_on(self, rig: Rig) -> None:
        rig.queue("q")
        rig.send("q", "later", visible_ns=rig.now_ns() + 10 * SECOND)
        assert self.replayed(rig, "q") == []
        rig.advance(20)
        rig.drain("q")
        assert [sequence for sequence, _ in self.replayed(rig, "q")] == [2]
