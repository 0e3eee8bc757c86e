"""A subscription that starts in the past, while others use the store: each message once, and no other call waits."""

import threading
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pytest

from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import SUBSCRIPTION
from unibus.errors import EntityNotFound
from unibus.stores.engine import history, past_subscription
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.journal import Journal
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import ANSWER_S, SECOND, Rig, sending

PATH = "t/Subscriptions/s"


def journal_of(kind: str, folder: Path) -> Journal:
    if kind == "memory":
        return MemoryJournal()
    return SqliteJournal(str(folder / "bus.db")) if kind == "sqlite" else JsonFileJournal(str(folder / "bus"))


def rig_of(journal: Journal) -> Rig:
    clock = VirtualClock()
    return Rig(EmbeddedStore(journal, clock, clock.timers(lambda: True)), clock)


def begin(rig: Rig, path: str = PATH) -> int:
    return rig.store.subscribe_from(Declare(path, SUBSCRIPTION, {}), 0, 0).wait(ANSWER_S)


class Waiting(MemoryJournal):
    """Its history, after the recovery, is read only after `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.go = threading.Event(), threading.Event()

    def changes_after(self, seq: int) -> Generator[tuple[int, Change], None, None]:
        if self.last:
            self.reading.set()
            assert self.go.wait(ANSWER_S)
        yield from super().changes_after(seq)


def test_other_calls_are_decided_while_history_is_read() -> None:
    journal = Waiting()
    rig = rig_of(journal)
    with closing(rig.store):
        rig.topic("t")
        rig.queue("q")
        rig.send("t", "before")
        copies: list[int] = []
        thread = threading.Thread(target=lambda: copies.append(begin(rig)))
        thread.start()
        assert journal.reading.wait(ANSWER_S)
        rig.send("t", "meanwhile")
        rig.send("q", "other")
        assert rig.drain("q") == ["other"]
        journal.go.set()
        thread.join(ANSWER_S)
        assert copies == [2]
        rig.send("t", "after")
        assert rig.drain(PATH) == ["before", "meanwhile", "after"]


def test_a_topic_that_is_replaced_while_its_history_is_read_has_no_past() -> None:
    journal = Waiting()
    rig = rig_of(journal)
    with closing(rig.store):
        rig.topic("t")
        rig.send("t", "before")
        copies: list[int] = []
        thread = threading.Thread(target=lambda: copies.append(begin(rig)))
        thread.start()
        assert journal.reading.wait(ANSWER_S)
        rig.drop("t")
        rig.topic("t")
        journal.go.set()
        thread.join(ANSWER_S)
        assert copies == [0]
        with pytest.raises(EntityNotFound):
            begin(rig, "nowhere/Subscriptions/s")


class Appending(SqliteJournal):
    """Calls `between` when a reader has read to the end for the first time, before it gets its page."""

    between: Callable[[], object] | None = None

    def changes_after(self, seq: int) -> Generator[tuple[int, Change], None, None]:
        page = list(super().changes_after(seq))
        call, self.between = self.between, None
        if call is not None:
            call()
        yield from page


def test_what_is_stored_between_the_last_page_and_the_decision_is_copied_once(folder: Path) -> None:
    journal = Appending(str(folder / "bus.db"))
    rig = rig_of(journal)
    with closing(rig.store):
        rig.topic("t")
        rig.send("t", "before")

        def between() -> None:
            rig.send("t", "written")
            rig.store.apply([sending("t", "decided")])  # Not waited for: the journal does not have it yet.

        journal.between = between
        assert begin(rig) == 3
        assert rig.drain(PATH) == ["before", "written", "decided"]


@pytest.mark.parametrize("rounds", [1, 16])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonfile"])
def test_beside_a_sender_each_message_comes_once(
    kind: str, rounds: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (history, "PAGE", 7),
        (past_subscription, "PAGE", 7),
        (past_subscription, "REST_MAX", 3),
        (past_subscription, "ROUNDS_MAX", rounds),
    ):
        monkeypatch.setattr(module, name, value)
    rig = rig_of(journal_of(kind, folder))
    with closing(rig.store):
        rig.topic("t")
        rig.fill("t", range(100))
        paths = [f"t/Subscriptions/s{number}" for number in range(8)]
        sender = threading.Thread(target=lambda: rig.fill("t", range(100, 300)))
        sender.start()
        copies = [begin(rig, path) for path in paths]
        sender.join(ANSWER_S)
        assert min(copies) >= 100
        assert sorted(copies) == copies
        for path in paths:
            assert rig.drain(path) == list(range(300))


def test_a_message_that_becomes_due_with_the_call_is_copied() -> None:
    clock = VirtualClock()
    timers = clock.timers(lambda: True)
    store = EmbeddedStore(MemoryJournal(), clock, timers)
    with closing(store):
        rig = Rig(store, clock)
        rig.topic("t")
        rig.send("t", "scheduled", visible_ns=rig.now_ns() + SECOND)
        timers.stop()  # So that the call itself applies the deadline.
        clock.advance(2)
        assert begin(rig) == 1
        assert rig.drain(PATH) == ["scheduled"]
