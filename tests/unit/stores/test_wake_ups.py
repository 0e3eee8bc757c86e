"""A receiver that is not woken waits for ever beside its message: what keeps one from being woken stops the store."""

from pathlib import Path

import pytest

from unibus.errors import StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import Rig, sending


def test_an_exception_while_receivers_are_woken_stops_the_store_and_wakes_the_others(folder: Path) -> None:
    woken: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    with VirtualClock() as clock:
        store = EmbeddedStore(SqliteJournal(str(folder / "bus.db")), clock, clock.timers(lambda: True))
        rig = Rig(store, clock)
        rig.queue("q")
        rig.queue("other")
        store.watch("q", interrupted)
        store.watch("other", lambda: woken.append("other"))
        with pytest.raises(KeyboardInterrupt):
            store.apply([sending("q", "a")])
        assert (store.health().ok, woken) == (False, ["other"])
        with pytest.raises(StoreFailed):
            store.apply([sending("q", "b")])
        store.close()


def test_a_reader_of_history_that_raises_harms_none(folder: Path) -> None:
    def broken() -> None:
        raise ValueError("a defect of the reader")

    calls: list[str] = []
    with VirtualClock() as clock:
        store = EmbeddedStore(SqliteJournal(str(folder / "bus.db")), clock, clock.timers(lambda: True))
        rig = Rig(store, clock)
        rig.queue("q")
        store.history.watch(broken)
        store.history.watch(lambda: calls.append("other"))
        rig.send("q", "a")
        assert (store.health().ok, calls) == (True, ["other"])
        store.close()


def test_reading_history_wakes_no_reader(folder: Path) -> None:
    """A read makes sure that what it shows is on the disk. That is a commit, and it would wake the reader itself."""
    calls: list[str] = []
    with VirtualClock() as clock:
        store = EmbeddedStore(SqliteJournal(str(folder / "bus.db")), clock, clock.timers(lambda: True))
        rig = Rig(store, clock)
        rig.queue("q")
        store.history.watch(lambda: calls.append("grown"))
        store.history.events_after(0)
        assert calls == []
        rig.send("q", "a")
        assert calls == ["grown"]
        store.close()
