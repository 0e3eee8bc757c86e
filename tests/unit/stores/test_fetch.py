"""A message that a rule has to look at, and that cannot be read: the store stops before half a batch is written."""

from pathlib import Path

import pytest

from unibus.core.codec.codec import decode
from unibus.core.filters.filters import SqlFilter
from unibus.core.lifecycle.commands import DEAD_LETTER, Move
from unibus.core.lifecycle.state.entity import Entity, Session, StoredMessage
from unibus.core.lifecycle.state.rules import Rule, text_of
from unibus.errors import StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import Rig, sending

DEAD = "q/$DeadLetterQueue"


class Unreadable(SqliteJournal):
    """Its disk cannot be read any more, from a moment on."""

    broken = False

    def read_bodies(self, entries: object) -> dict[StoredMessage, bytes]:
        if self.broken:
            raise StoreFailed("the disk cannot be read")
        return super().read_bodies(entries)  # type: ignore[arg-type]


def opened(path: Path, clock: VirtualClock) -> tuple[Unreadable, Rig]:
    journal = Unreadable(str(path))
    store = EmbeddedStore(journal, clock, clock.timers(lambda: True), memory_budget_mb=0)
    return journal, Rig(store, clock)


def test_nothing_of_a_batch_that_broke_off_is_ever_written(tmp_path: Path) -> None:
    clock = VirtualClock()
    journal, rig = opened(tmp_path / "bus.db", clock)
    rig.queue("q")
    rig.topic("t")
    path = rig.subscription("t", "s", rules=text_of([Rule("r", SqlFilter("n = 1"))]))
    rig.send("q", "letter")
    rig.settle(DEAD_LETTER, rig.one("q"), reason="Broken")
    journal.broken = True
    with pytest.raises(StoreFailed):
        rig.run(sending("q", "with it"), Move(DEAD, 1, "t"))
    assert not rig.store.health().ok
    with pytest.raises(StoreFailed):
        rig.send("q", "later")
    rig.store.close()
    _, again = opened(tmp_path / "bus.db", clock)
    assert [again.info(name).active for name in ("q", DEAD, path)] == [0, 1, 0]
    again.store.close()


def test_a_body_that_cannot_be_read_is_an_error_of_its_reader_only(tmp_path: Path) -> None:
    journal, rig = opened(tmp_path / "bus.db", VirtualClock())
    rig.queue("q")
    rig.send("q", "far")
    journal.broken = True
    with pytest.raises(StoreFailed):
        rig.store.read_bodies([("q", 1)])
    journal.broken = False
    assert rig.store.health().ok
    assert [decode(data).body for data in rig.store.read_bodies([("q", 1)]).wait().values()] == ["far"]
    rig.store.close()


def test_a_claim_leads_to_no_object_of_the_state_once_it_is_answered(tmp_path: Path) -> None:
    _, rig = opened(tmp_path / "bus.db", VirtualClock())
    rig.queue("q")
    rig.fill("q", ["far", "also far"])
    for claimed in [rig.one("q"), *rig.peek("q")]:
        assert claimed.data is not None
        state = (Entity, Session, StoredMessage)
        assert not any(isinstance(getattr(claimed, name), state) for name in dir(claimed) if not name.startswith("__"))
    rig.store.close()
