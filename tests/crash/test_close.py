"""A store is closed with a snapshot. Whatever interrupts it, every message exists once afterwards."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest

from tests.crash.power import MACHINES, Machine
from tests.crash.test_snapshots import held, machine_of, send
from unibus.core.lifecycle.commands import COMPLETE, Declare, Settle
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import BusError
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.store import ClaimRequest
from unibus.sync import MessageBus
from unibus.testing.disk import Fault

SITES = {"sqlite": 40, "jsonfile": 20}
KILLS = 6
MESSAGES = 400

kinds = pytest.mark.parametrize("kind", MACHINES)
CLOSING = f"""
import sys
from unibus.stores.engine import snapshot
from unibus.sync import MessageBus
snapshot.PART_ENTRIES = 1
with MessageBus(sys.argv[1]) as bus:
    bus.send_many("q", range({MESSAGES}))
    for message in bus.receive_batch("q", 10, timeout=0):
        message.complete()
    print("closing", flush=True)
print("closed", flush=True)
"""


def prepared(kind: str) -> tuple[Machine, EmbeddedStore, list[str]]:
    """A second run: some messages of the first are removed, some are new, and the snapshot has several slices."""
    machine = machine_of(kind, every=10**6, piece=3)
    store = machine.start()
    store.apply([Declare("q", QUEUE, {})]).wait(10)
    store.apply([send(f"m{number}") for number in range(8)]).wait(10)
    store.close()
    store = machine.start()
    for claimed in store.claim(ClaimRequest("q", 4)).wait(10):
        store.apply([Settle(COMPLETE, "q", claimed.sequence, claimed.token)]).wait(10)
    store.apply([send(f"n{number}") for number in range(8)]).wait(10)
    return machine, store, [f"m{number}" for number in range(4, 8)] + [f"n{number}" for number in range(8)]


def closed(machine: Machine, store: EmbeddedStore) -> None:
    try:
        store.close()
    except (BusError, apsw.Error):
        machine.release(store)


def sites(kind: str, counter: str) -> list[int]:
    machine, store, _ = prepared(kind)
    before = getattr(machine.disk, counter)
    store.close()
    total = getattr(machine.disk, counter) - before
    assert total > 3, "closing wrote a snapshot"
    chosen = range(1, total + 1)
    return sorted(random.Random(kind).sample(chosen, min(total, SITES[kind])))


@kinds
@pytest.mark.unchecked
def test_the_power_fails_at_any_step_of_a_close(kind: str) -> None:
    for site in sites(kind, "steps"):
        machine, store, expected = prepared(kind)
        machine.disk.cut_at(site)
        closed(machine, store)
        machine.disk.cut()
        machine.release(store)
        machine.disk.heal()
        store = machine.start()
        assert held(store) == expected, f"step {site}"
        store.close()


@kinds
@pytest.mark.unchecked
@pytest.mark.parametrize("fault", [Fault.FULL, Fault.WRITE, Fault.SYNC])
def test_the_disk_fails_at_any_step_of_a_close(kind: str, fault: Fault) -> None:
    for site in sites(kind, "syncs" if fault is Fault.SYNC else "writes"):
        machine, store, expected = prepared(kind)
        machine.disk.fail_at(site, fault, lasting=True)
        closed(machine, store)
        machine.disk.heal()
        machine.disk.kill()
        store = machine.start()
        assert held(store) == expected, f"{fault} {site}"
        store.close()


@pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])
def test_a_process_is_killed_while_it_closes(scheme: str, tmp_path: Path) -> None:
    chance = random.Random(scheme)
    killed = 0
    for number in range(KILLS):
        url = f"{scheme}:///{tmp_path}/{number}"
        with subprocess.Popen([sys.executable, "-c", CLOSING, url], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "closing\n"
            time.sleep(chance.uniform(0, 0.1))  # Any moment is a good one.
            process.send_signal(signal.SIGKILL)
            killed += process.stdout.read() == ""
        with MessageBus(url) as bus:
            assert [message.body for message in bus.peek("q", 2 * MESSAGES)] == list(range(10, MESSAGES))
    assert killed > 0
