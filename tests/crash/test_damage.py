"""Damaged files: opening names the file and what is wrong with it, or what is served is true. Never something else.

True means: some whole past of the store, word for word. A log that lost its end is such a past.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.crash.audit import Held, Story
from tests.crash.ledger import body_of
from tests.crash.power import MACHINES, PATH, AnyDisk, AnyJournal, StillTimers
from tests.crash.workload import Worker
from unibus.core.lifecycle.events import Event
from unibus.errors import BusError, StoreDamaged, StoreFailed, StoreUnavailable
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.files import FolderDisk

WAL = f"{PATH}-wal"
TRIES = 120
"""Of each kind of damage. A few seconds."""


@dataclass
class Truth:
    """A disk as a killed process left it, and everything that ever was true on it."""

    disk: AnyDisk
    history: list[Event]


def truth_of(seed: str, kind: str = "sqlite", steps_after: int = 0) -> Truth:
    """A run with some snapshots, with a part of it in the file and a part in the write-ahead log only."""
    machine = MACHINES[kind](seed)
    machine._history_bytes = 10**9
    machine._snapshot_every = 60
    machine._checkpoint_bytes = 400_000
    store = machine.start()
    worker = Worker(store, machine.ledger, seed)
    worker.prepare()
    while store.health().snapshot_seq < 300:
        worker.step()
    for _ in range(steps_after):
        worker.step()
    worker.flush()
    rows, _ = store.history.events_after(0, 10**9)
    machine.disk.kill()
    machine.release(store)
    return Truth(machine.disk, rows)


@pytest.fixture(scope="module")
def truth() -> Truth:
    return truth_of("damage")


def past(truth: Truth, length: int) -> dict[str, dict[int, tuple[str, int, int]]]:
    story = Story()
    for event in truth.history[:length]:
        story.play(event)
    return {channel: known(queue) for channel, queue in story.channels.items()}


def known(queue: dict[int, Held]) -> dict[int, tuple[str, int, int]]:
    return {sequence: (held.id, held.state, held.count) for sequence, held in queue.items()}


def opened(disk: AnyDisk) -> EmbeddedStore:
    """With a clock that stays at the beginning, so that no deadline passes."""
    journal: AnyJournal
    if isinstance(disk, FolderDisk):
        journal = JsonFileJournal(PATH, files=disk.start())
    else:
        journal = SqliteJournal(PATH, vfs=disk.name, exclusive=True)
    try:
        return EmbeddedStore(journal, VirtualClock(), StillTimers(), memory_budget_mb=0)
    except BaseException:
        journal.close()
        raise


def served(disk: AnyDisk) -> tuple[list[Event], dict[str, dict[int, tuple[str, int, int]]]] | None:
    """Everything that can be read, or None if it was refused in the right way."""
    try:
        store = opened(disk)
    except (StoreDamaged, StoreUnavailable) as error:
        return refused(error)
    try:
        return everything(store)
    except (StoreDamaged, StoreFailed) as error:
        return refused(error)
    finally:
        try:
            store.close()
        except BusError as error:
            refused(error)


def refused(error: BusError) -> None:
    """It has to say of which file it speaks."""
    if PATH not in str(error):
        raise AssertionError("no file is named") from error


def everything(store: EmbeddedStore) -> tuple[list[Event], dict[str, dict[int, tuple[str, int, int]]]]:
    rows, safe = store.history.events_after(0, 10**9)
    assert [row.seq for row in rows] == list(range(1, safe + 1))
    found: dict[str, dict[int, tuple[str, int, int]]] = {}
    for info in store.entities().wait():
        seen = store.peek(info.name, 0, 10**9).wait(30)
        for each in seen:
            assert each.data == body_of(each.who.message_id)
        found[info.name] = {each.sequence: (each.who.message_id, each.state, each.delivery_count) for each in seen}
    return rows, found


def check(truth: Truth, disk: AnyDisk, what: str) -> bool:
    """Whether the damage was noticed."""
    answer = served(disk)
    if answer is None:
        return True
    rows, found = answer
    assert rows == truth.history[: len(rows)], what
    told = past(truth, len(rows))
    for channel in {*found, *told}:
        assert found.get(channel, {}) == told.get(channel, {}), f"{what}: {channel}"
    return False


def flip(disk: AnyDisk, name: str, chance: random.Random) -> str:
    offset, bit = chance.randrange(len(disk.content(name))), chance.randrange(8)
    disk.flip(name, offset, bit)
    return f"bit {bit} of byte {offset} of {name}"


def zero(disk: AnyDisk, name: str, chance: random.Random) -> str:
    offset = chance.randrange(max(1, len(disk.content(name)) // 512)) * 512
    length = chance.choice((512, 4096, 8192))
    disk.zero(name, offset, length)
    return f"{length} zeros at {offset} of {name}"


def shorten(disk: AnyDisk, name: str, chance: random.Random) -> str:
    size = chance.randrange(len(disk.content(name)))
    disk.shorten(name, size)
    return f"{name} cut at {size}"


Damage = Callable[[AnyDisk, str, random.Random], str]


def test_without_damage_everything_is_served(truth: Truth) -> None:
    rows, found = served(truth.disk.copy()) or ([], {})
    assert rows == truth.history
    assert found == {**{name: {} for name in found}, **past(truth, len(rows))}
    assert len(truth.disk.content(WAL)) > 100_000


@pytest.mark.parametrize("name", [PATH, WAL])
@pytest.mark.parametrize("damage", [flip, zero, shorten])
def test_damage_is_named_or_harmless(truth: Truth, damage: Damage, name: str) -> None:
    noticed = 0
    for number in range(TRIES):
        disk = truth.disk.copy()
        what = damage(disk, name, random.Random(number))
        noticed += check(truth, disk, what)
    # A log that is cut is a log that ends there; in the file itself, much must have been noticed.
    assert noticed > 0 or name == WAL


def test_a_torn_end_of_the_log_is_cut(truth: Truth) -> None:
    """What was being written when the process died is not there, and all before it is."""
    disk = truth.disk.copy()
    disk.put(WAL, disk.content(WAL) + random.Random(1).randbytes(5_000))
    assert not check(truth, disk, "a torn end")
    answer = served(disk)
    assert answer is not None
    assert answer[0] == truth.history


@pytest.mark.unchecked
def test_the_check_finds_what_is_wrong(truth: Truth) -> None:
    """A body that was changed along with its checksum is found by the comparison alone."""
    disk = truth.disk.copy()
    store = opened(disk)
    store._journal._connection.execute(
        "UPDATE messages SET (data, data_crc) = (SELECT data, data_crc FROM messages ORDER BY key LIMIT 1)"
        " WHERE key = (SELECT max(key) FROM messages)"
    )
    store.close()
    with pytest.raises(AssertionError):
        check(truth, disk, "a message with the body of another")
