"""One script for four buses: both faces, each over a store in memory and over a SQLite file.

A Rig calls a verb of its bus and gives the answer. For the async face it does so on a loop that runs in a thread, so
that a test is written once, in straight lines. What needs a task of its own (cancelling) is written async instead.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bus.probes import GUARD_S
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.clock import SYSTEM_CLOCK, Clock
from unibus.core.lifecycle.state.changes import Change
from unibus.errors import StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.journal import SnapshotSlice
from unibus.stores.seam.store import EntityInfo
from unibus.stores.sqlite.journal import SqliteJournal

Bus = Any  # Of either face.


class Rig:
    """`path` is the SQLite file, None for memory. Channels are persistent where they are created so."""

    def __init__(self, face: type, path: Path | None, clock: Clock | None = None) -> None:
        self.path = path
        self._face = face
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.bus: Bus = self._made()

    @property
    def durable(self) -> bool:
        return self.path is not None

    def _made(self) -> Bus:
        def made() -> Bus:
            if self.path is not None:
                return self._face(persistence_path=self.path, clock=self._clock)
            return self._face(clock=self._clock).with_persistence("memory://")

        return self.do(made)

    def do(self, action: Callable[[], Any]) -> Any:
        """The action's answer; what can be awaited is."""
        if self._face is SyncMessageBus:
            return action()
        return asyncio.run_coroutine_threadsafe(_answer(action), self._loop).result(GUARD_S)

    def in_turn(self, *actions: Callable[[Any], Any]) -> list[Any]:
        """The answers of several actions; each gets the answer before it. One way to the loop and back for all."""

        def sync() -> list[Any]:
            answers: list[Any] = []
            for action in actions:
                answers.append(action(answers[-1] if answers else None))
            return answers

        async def in_loop() -> list[Any]:
            answers: list[Any] = []
            for action in actions:
                answers.append(await _answer(partial(action, answers[-1] if answers else None)))
            return answers

        return list(self.do(sync if self._face is SyncMessageBus else in_loop))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self.bus, name)
        return lambda *given, **named: self.do(lambda: verb(*given, **named))

    def take(self, entity: str, count: int = 1, timeout: float = 0) -> list[Any]:
        return list(self.receive_batch(entity, count, timeout))

    def one(self, entity: str, timeout: float = GUARD_S) -> Any:
        """The next message of the entity, which must come."""
        (message,) = self.take(entity, 1, timeout)
        return message

    def each(self, entity: str) -> list[Any]:
        """What `receive` gives until nothing waits. Each message is left in its own block, which completes it."""
        if self._face is SyncMessageBus:
            return _each(self.bus, entity)
        return list(self.do(lambda: _each_async(self.bus, entity)))

    def info(self, name: str) -> EntityInfo:
        (found,) = [info for info in self.entities() if info.name == name]
        return found

    def counts(self, name: str) -> tuple[int, int, int, int, int]:
        """Active, locked, scheduled, deferred, dead."""
        info = self.info(name)
        return info.active, info.locked, info.scheduled, info.deferred, info.dead

    def reopen(self) -> None:
        self.close(1)
        self.bus = self._made()

    def end(self) -> None:
        self.close(0.2)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GUARD_S)
        self._loop.close()


async def _answer(action: Callable[[], Any]) -> Any:
    answer = action()
    return await answer if inspect.isawaitable(answer) else answer


def _each(bus: Bus, entity: str) -> list[Any]:
    found = []
    for message in bus.receive(entity, timeout=0):
        with message:
            found.append(message)
    return found


async def _each_async(bus: Bus, entity: str) -> list[Any]:
    found = []
    async for message in bus.receive(entity, timeout=0):
        async with message:
            found.append(message)
    return found


def fails(error: type[BaseException], match: str | None = None) -> Any:
    """`pytest.raises` around several steps, where only together they make sense."""
    return pytest.raises(error, match=match)


class BreakingJournal(SqliteJournal):
    """A SQLite file on a disk that can stop taking anything."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.broken = False

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        if self.broken:
            raise StoreFailed("the disk is gone", "look for it")
        super().append(first_seq, changes, sync, part)


class NoTimers:
    """For a store whose deadlines do not matter in the test."""

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Never."""

    def stop(self) -> None:
        """There is nothing to stop."""


def breaking_store(path: Path) -> tuple[EmbeddedStore, BreakingJournal]:
    journal = BreakingJournal(path)
    return EmbeddedStore(journal, SYSTEM_CLOCK, NoTimers()), journal


FACES = [MessageBus, SyncMessageBus]
