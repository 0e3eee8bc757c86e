"""Histories for tests: random work of every kind on a real file, with time that passes by steps."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.crash.ledger import Ledger
from tests.crash.power import StillTimers
from tests.crash.workload import Worker
from unibus.core.lifecycle.events import Event
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import Rig, sending

EVERYTHING = 10**9


class Work:
    """A store that this process owns, and a worker that changes it."""

    def __init__(self, path: Path, seed: str, **journal: object) -> None:
        self.path = path
        self.clock = VirtualClock(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
        opened = SqliteJournal(str(path), **journal)  # type: ignore[arg-type]
        self.store = EmbeddedStore(opened, self.clock, StillTimers(), snapshot_every=50)
        self.rig = Rig(self.store, self.clock)
        self._worker = Worker(self.store, Ledger(), seed)
        self._worker.prepare()
        self._chance = random.Random(seed)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def steps(self, count: int) -> None:
        for _ in range(count):
            self._worker.step()
            if self._chance.random() < 0.2:
                self.clock.advance(self._chance.uniform(0.0, 3.0))
        self._worker.flush()

    def fill(self, queue: str, count: int) -> None:
        """Many sends in one batch, so that it takes no time."""
        self.rig.run(*[sending(queue, {"n": number}, 50) for number in range(count)])

    def events(self, after: int = 0) -> list[Event]:
        return self.store.history.events_after(after, EVERYTHING)[0]

    def forget(self) -> None:
        """Trim history, as the store does it by itself from time to time."""
        while self.store._committer.trim(self.store.now_ns()):
            pass

    def last(self) -> int:
        return self.store.health().last_seq


@contextmanager
def working(path: Path, seed: str = "w", **journal: object) -> Iterator[Work]:
    work = Work(path, seed, **journal)
    try:
        yield work
    finally:
        work.store.close()
