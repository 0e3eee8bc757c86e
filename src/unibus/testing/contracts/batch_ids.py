"""The contract of batch ids: a batch whose answer was lost is sent again, and takes effect once."""

import pytest

from unibus.core.lifecycle.commands import (
    COMPLETE,
    RENEW_SESSION,
    Advance,
    Command,
    Declare,
    DeletePosition,
    Move,
    Remove,
    Renew,
    SendResult,
    SessionCommand,
)
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import BusError, EntityNotFound, PositionMoved, StoreFailed, UsageError
from unibus.limits import BATCH_ID_CHARS_MAX, BATCH_ID_KEPT_S
from unibus.testing.contracts.rig import ANSWER_S, SECOND, Contract, Rig, sending, settling


class BatchIdContract(Contract):
    """The same id has the same answer, and is applied once."""

    def run(self, rig: Rig, batch_id: str, *commands: Command, first_ns: int = 0) -> list[object]:
        results = rig.store.apply(commands, None, batch_id, first_ns).wait(ANSWER_S)
        return [shown(each) for each in results]

    def test_a_copy_gets_the_same_answer_and_changes_nothing(self, rig: Rig) -> None:
        rig.queue("q", dedup_window=60)
        rig.topic("t")
        batch = [sending("q", "a", dedup_key="k"), sending("q", "b", dedup_key="k"), sending("t", "c")]
        results = self.run(rig, "one", *batch)
        assert [each[:5] for each in results if isinstance(each, tuple)] == [
            *(("q", 1, batch[0].who.message_id, False, True), ("q", 0, batch[1].who.message_id, True, True)),
            ("t", 1, batch[2].who.message_id, False, False),
        ]
        before = rig.picture()
        assert self.run(rig, "one", *batch) == results
        assert self.run(rig, "one", sending("q", "another batch under the same id")) == results
        assert rig.picture() == before
        rows, _ = rig.store.history.events_after(0, 1_000, ["applied"])
        assert [event.attrs for event in rows if event.attrs == {"batch_id": "one"}] == [{"batch_id": "one"}]

    def test_every_kind_of_result(self, rig: Rig) -> None:
        rig.queue("q")
        rig.queue("s", requires_session=True)
        rig.fill("q", "abcd")
        rig.send("s", "x", session_id="a")
        first, second = rig.claim("q", 2)
        lock = rig.accept("s", "a")
        batch: list[Command] = [
            settling(COMPLETE, first),
            Renew("q", second.sequence, second.token),
            SessionCommand(RENEW_SESSION, "s", "a", lock.token),
            Move("q", 3, "q"),
            Remove("q", 4, "by hand"),
            Advance("p", 0, 5),
        ]
        rig.advance(1)
        results = self.run(rig, "all", *batch)
        assert results[0] is None
        assert results[1] == results[2] == rig.now_ns() + 60 * SECOND
        assert isinstance(results[3], tuple)
        assert results[4] is True
        rig.advance(1)
        copied = self.run(rig, "all", *batch)
        assert copied == results
        assert list(map(type, copied)) == list(map(type, results))
        assert self.run(rig, "made", Declare("new", QUEUE, {})) == self.run(rig, "made", Declare("new", QUEUE, {}))
        assert self.run(rig, "empty") == self.run(rig, "empty") == []

    def test_other_ids_and_no_id_are_other_batches(self, rig: Rig) -> None:
        rig.queue("q")
        for batch_id in ("a", "b", "", ""):
            self.run(rig, batch_id, sending("q", batch_id))
        assert rig.drain("q") == ["a", "b", "", ""]
        with pytest.raises(UsageError):
            self.run(rig, "x" * (BATCH_ID_CHARS_MAX + 1), sending("q"))

    def test_a_refused_batch_is_not_remembered(self, rig: Rig) -> None:
        rig.queue("q")
        with pytest.raises(EntityNotFound):
            self.run(rig, "one", sending("q", "a"), sending("nowhere"))
        self.run(rig, "one", sending("q", "b"))
        assert rig.drain("q") == ["b"]

    def test_it_is_remembered_for_ten_minutes(self, rig: Rig) -> None:
        rig.queue("q")
        first_ns = rig.store.now_ns()
        results = self.run(rig, "one", sending("q", "a"), first_ns=first_ns)
        rig.advance(BATCH_ID_KEPT_S - 1)
        self.run(rig, "two", sending("q", "b"))
        assert self.run(rig, "one", sending("q", "a"), first_ns=first_ns) == results
        rig.advance(2)
        self.run(rig, "three", sending("q", "c"))
        before = rig.picture()
        with pytest.raises(StoreFailed, match="unknown"):
            self.run(rig, "one", sending("q", "a"), first_ns=first_ns)
        assert rig.picture() == before
        assert rig.store.health().ok

    def test_a_copy_of_an_old_batch_is_never_applied(self, rig: Rig) -> None:
        """Also one that was never applied: the store cannot know that."""
        rig.queue("q")
        now_ns, kept_ns = rig.store.now_ns(), int(BATCH_ID_KEPT_S) * SECOND
        for first_ns in (now_ns - kept_ns - SECOND, now_ns + kept_ns + SECOND):
            with pytest.raises(StoreFailed, match="unknown"):
                self.run(rig, "late", sending("q", "a"), first_ns=first_ns)
        assert rig.drain("q") == []
        self.run(rig, "late", sending("q", "b"), first_ns=now_ns - kept_ns + SECOND)
        assert rig.drain("q") == ["b"]

    def test_a_refused_batch_names_the_command(self, rig: Rig) -> None:
        rig.queue("q")
        good = sending("q", "a")
        batches: list[list[Command]] = [
            [sending("nowhere")],
            [good, Renew("q", 1, b"?")],
            [good, good, Advance("p", 1, 2)],
        ]
        for index, batch in enumerate(batches):
            with pytest.raises(BusError) as caught:
                rig.run(*batch)
            assert caught.value.command_index == index


class PositionListContract(Contract):
    """Positions can be listed and deleted, and an error has the position."""

    def test_the_error_has_the_position(self, rig: Rig) -> None:
        rig.run(Advance("a", 0, 5))
        with pytest.raises(PositionMoved) as caught:
            rig.run(Advance("a", 0, 6))
        assert caught.value.position == 5

    def test_they_are_listed_by_name(self, rig: Rig) -> None:
        rig.run(Advance("import/b", 0, 7), Advance("import/a", 0, 5), Advance("outbox/c", 0, 1))
        listed = rig.store.catalog.positions().wait(ANSWER_S)
        assert list(listed.items()) == [("import/a", 5), ("import/b", 7), ("outbox/c", 1)]
        assert rig.store.catalog.positions("import/").wait(ANSWER_S) == {"import/a": 5, "import/b": 7}

    def test_a_deleted_one_begins_again(self, rig: Rig) -> None:
        rig.run(Advance("a", 0, 5), Advance("b", 0, 5))
        with pytest.raises(PositionMoved):
            rig.run(DeletePosition("a", 4))
        with pytest.raises(UsageError):
            rig.run(DeletePosition("a", 5), Advance("a", 5, 6))
        with pytest.raises(UsageError):
            rig.run(DeletePosition("$clock", 0))
        rig.run(DeletePosition("a", 5), DeletePosition("never there", 0))
        assert rig.store.catalog.positions().wait(ANSWER_S) == {"b": 5}
        assert rig.store.position("a").wait(ANSWER_S) == 0
        rig.run(Advance("a", 0, 1))
        assert rig.store.position("a").wait(ANSWER_S) == 1


def shown(result: object) -> object:
    """A result as values that can be compared."""
    if not isinstance(result, SendResult):
        return result
    place = (result.entity, result.sequence, result.id, result.duplicate, result.is_routed)
    return (*place, result.is_forwarded_duplicate, result.durability)
