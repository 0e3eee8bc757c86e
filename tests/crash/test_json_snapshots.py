"""A power cut at each single step of a snapshot in JSON files: the old or the new one is valid, and the log is
complete."""

import pytest

from tests.crash.power import JsonMachine
from tests.crash.test_snapshots import held, send
from unibus.core.lifecycle.commands import Declare, Drop
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.store import ClaimRequest

EVERY = 30


def prepared(fate: str) -> tuple[JsonMachine, EmbeddedStore]:
    """One snapshot exists, and the next one is nearly due: with messages that are added, kept and removed."""
    machine = JsonMachine("snapshots", JsonMachine.new_disk(fate))
    machine._snapshot_every, machine._piece, machine._memory_mb = EVERY, 4, 0.0
    machine._history_bytes = 10**9
    store = machine.start()
    for name in ("q", "r", "gone"):
        store.apply([Declare(name, QUEUE, {})]).wait(10)
        store.apply([send(f"{name}{number}", name) for number in range(9)]).wait(10)
    while store.health().snapshot_seq == 0:
        store.apply([send(f"x{store.health().last_seq}", "r")]).wait(10)
    return machine, store


def work(store: EmbeddedStore, done: list[str]) -> None:
    """Through the next snapshot, one answered step after the other."""
    before = store.health().snapshot_seq
    store.claim(ClaimRequest("q", 3, lock=False)).wait(10)
    done.append("claimed")
    store.apply([Drop("gone")]).wait(10)
    done.append("dropped")
    while store.health().snapshot_seq == before:
        name = f"y{store.health().last_seq}"
        store.apply([send(name)]).wait(10)
        done.append(name)


def steps() -> range:
    machine, store = prepared("count")
    before = machine.disk.steps
    work(store, [])
    taken = machine.disk.steps - before
    store.close()
    return range(1, taken + 1)


def check(store: EmbeddedStore, done: list[str]) -> None:
    """All that was answered is true. What was being asked for when the power failed may be."""
    entities = {info.name for info in store.entities().wait(10)}
    assert "gone" not in entities or "dropped" not in done
    first = [f"q{number}" for number in range(3 if "claimed" in done else 0, 9)]
    found = held(store)
    sent = [name for name in done if name.startswith("y")]
    assert [name for name in found if name.startswith("q")] in (first, [f"q{number}" for number in range(3, 9)])
    assert [name for name in found if name.startswith("y")][: len(sent)] == sent
    assert held(store, "r")[:9] == [f"r{number}" for number in range(9)]


def test_a_cut_at_every_step_of_a_snapshot() -> None:
    cuts = 0
    generations = set()
    for step in steps():
        machine, store = prepared(f"fate {step}")
        done: list[str] = []
        machine.disk.cut_at(step)
        with pytest.raises(StoreFailed):
            work(store, done)
        cuts += 1
        machine.release(store)
        store = machine.start()
        generations.add(store.health().snapshot_seq)
        check(store, done)
        store.close()
        store = machine.start()
        check(store, done)
        store.close()
    assert cuts > 30
    assert len(generations) == 2, "the one before and the new one"
