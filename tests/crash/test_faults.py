"""One disk call fails: every waiter gets the error, the store stops, and after reopening all results hold."""

import random

import apsw
import pytest

from tests.crash.audit import audit
from tests.crash.power import MACHINES, JsonMachine, Machine, one_cycle
from tests.crash.workload import Worker
from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import BusError, StoreFailed, StoreFull
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.files.reserve import Reserve
from unibus.stores.seam.store import ClaimRequest
from unibus.testing.power import Fault

STEPS = 40
SITES = {"sqlite": 25, "jsonfile": 6}
"""How many of the call sites are tried for each kind of fault, spread over all of them."""

CALLS = {
    Fault.WRITE: "writes",
    Fault.FULL: "writes",
    Fault.SYNC: "syncs",
    Fault.READ: "reads",
    Fault.TRUNCATE: "truncates",
    Fault.DELETE: "deletes",
}
kinds = pytest.mark.parametrize("kind", MACHINES)


def machine_of(seed: str, kind: str) -> Machine:
    return MACHINES[kind](f"fault-{seed}")


def worked(machine: Machine) -> tuple[EmbeddedStore | None, bool]:
    """A run from the first start on. The store, if it was opened, and whether the disk has failed."""
    try:
        store = machine.start()
    except BusError:
        return None, True
    worker = Worker(store, machine.ledger, "w")
    try:
        worker.prepare()
        machine.work(worker, STEPS)
        worker.flush()
    except (StoreFailed, StoreFull):
        return store, True
    return store, False


def calls(seed: str, counter: str, kind: str) -> int:
    """How many calls of a kind the same run makes when nothing fails."""
    machine = machine_of(seed, kind)
    store, failed = worked(machine)
    assert store is not None
    assert not failed
    made: int = getattr(machine.disk, counter)
    machine.release(store)
    return made


def check_stopped(store: EmbeddedStore) -> None:
    """It takes nothing more, and says why."""
    assert not store.health().ok
    with pytest.raises(StoreFailed):
        store.claim(ClaimRequest("a"))
    with pytest.raises(StoreFailed):
        store.apply([])


@kinds
@pytest.mark.parametrize("fault", CALLS)
@pytest.mark.parametrize("seed", ["one", "two"])
def test_no_answer_is_false_whichever_call_fails(fault: Fault, seed: str, kind: str) -> None:
    total = calls(seed, CALLS[fault], kind)
    count = SITES[kind]
    sites = range(1, total + 1) if total <= count else sorted(random.Random(seed).sample(range(1, total + 1), count))
    struck = sum([strike(seed, fault, site, kind) for site in sites])
    assert struck or not sites


def strike(seed: str, fault: Fault, site: int, kind: str) -> bool:
    """Let one call fail, repair the disk, open again; then also cut the power. Whether the store had to stop."""
    machine = machine_of(seed, kind)
    machine.disk.fail_at(site, fault)
    store, failed = worked(machine)
    if store is not None and failed and not (fault is Fault.READ and store.health().ok):
        check_stopped(store)  # If only a history reader has failed, the store continues.
    machine.disk.heal()
    if store is not None:
        if store.health().ok:
            machine.read_all(store)  # Closing it trims history.
        machine.release(store)
    ledger = machine.ledger
    store = machine.start()
    audit(store, ledger, len(ledger.ops))
    assert ledger.findings.all() == [], f"{fault} {site}"
    # The first sync decides what was unknown: until then frames of SQLite's old log may become valid again.
    Worker(store, ledger, "after").send_durably()
    machine.disk.cut()
    machine.release(store)
    store = machine.start()
    audit(store, ledger, ledger.durable)
    assert ledger.findings.all() == [], f"{fault} {site}, then a power cut"
    store.close()
    return failed


def fill(worker: Worker) -> None:
    while True:
        worker.send()
        worker.flush()


class Spare(Reserve):
    """A reserve on a simulated disk: a piece that is released is space for whatever is written next."""

    def __init__(self, machine: Machine, pieces: int) -> None:
        super().__init__("", 1_000_000)
        self.machine, self.pieces, self.left = machine, pieces, pieces

    def open(self) -> None:
        self.size = self.wanted

    def free_bytes(self) -> int:
        return 10**12

    def release(self) -> bool:
        self.full = True
        if not self.left:
            return False
        self.left -= 1
        self.machine.disk.heal()
        return True

    def refill(self) -> bool:
        self.full = False
        self.left = self.pieces
        return True

    def close(self) -> None:
        """It is no file."""


@kinds
@pytest.mark.parametrize("seed", ["one", "two"])
def test_whichever_write_finds_no_space_deliveries_go_on(seed: str, kind: str) -> None:
    total, count = calls(seed, "writes", kind), SITES[kind]
    sites = sorted(random.Random(seed).sample(range(1, total + 1), count))
    entered = sum([run_full(seed, site, kind) for site in sites])
    assert entered > count // 2


def run_full(seed: str, site: int, kind: str) -> bool:
    """From one write on there is no space but that of the reserve. Whether the store ran full."""
    machine = machine_of(seed, kind)
    spare = Spare(machine, 1)
    machine.reserve = spare
    machine.disk.fail_at(site, Fault.FULL, lasting=True)
    store, failed = worked(machine)
    if store is None:
        return False  # A new store finds no space: test_full_disk.py.
    ledger = machine.ledger
    assert not failed, f"write {site}"
    was_full = spare.full
    health = store.health()
    assert health.ok
    assert bool(health.warning) == was_full
    if was_full:
        with pytest.raises(StoreFull):
            store.apply([Declare("more", QUEUE, {})])
    spare.refill()
    machine.disk.heal()
    worker = Worker(store, ledger, "after")
    worker.send_durably()
    machine.work(worker, STEPS)  # With what was put off.
    worker.flush()
    audit(store, ledger, len(ledger.ops))
    assert ledger.findings.all() == [], f"write {site}"
    machine.disk.kill()
    machine.release(store)
    store = machine.start()
    audit(store, ledger, len(ledger.ops))
    assert ledger.findings.all() == [], f"write {site}, then a kill"
    store.close()
    return was_full


class FullMachine(Machine):
    """A machine whose disk runs full now and then, beside all that happens to it anyway (power.py)."""

    def start(self) -> EmbeddedStore:
        self.reserve = Spare(self, 3)
        return super().start()

    def work(self, worker: Worker, steps: int) -> None:
        assert self.reserve is not None
        for _ in range(steps):
            if self.chance.random() < 0.05:
                self.disk.fail_at(self.chance.randrange(1, 30), Fault.FULL, lasting=True)
            if self.reserve.full:
                self.ledger.counts["full"] += 1
                if self.chance.random() < 0.2:
                    self.reserve.refill()
            super().work(worker, 1)

    def live(self, worker: Worker) -> None:
        super().live(worker)
        self.disk.heal()


class FullJsonMachine(FullMachine, JsonMachine):
    """The same with a folder of JSON files."""


@pytest.mark.parametrize("kind", [FullMachine, FullJsonMachine])
def test_a_disk_that_runs_full_now_and_then_loses_nothing_in_cuts_and_kills(kind: type[Machine]) -> None:
    full = 0
    for number in range(5):
        ledger = one_cycle(f"full {number}", kind=kind)
        assert ledger.findings.all() == [], number
        full += ledger.counts["full"]
    assert full > 20


def test_opening_must_copy_the_log_also_on_a_full_disk() -> None:
    """What a failed sync left in the cache of the kernel only must be written once more before it is served."""
    machine = machine_of("one", "sqlite")
    store, _ = worked(machine)
    assert store is not None
    machine.disk.kill()
    machine.release(store)
    machine.disk.fail_at(1, Fault.FULL)  # The first page of the file; the log has space.
    with pytest.raises(StoreFull):
        machine.start()
    machine.reserve = Spare(machine, 1)
    machine.disk.fail_at(1, Fault.FULL, lasting=True)
    store = machine.start()
    audit(store, machine.ledger, len(machine.ledger.ops))
    assert machine.ledger.findings.all() == []
    store.close()


@kinds
def test_a_disk_that_stays_full_stops_the_store_and_loses_nothing(kind: str) -> None:
    """Without a reserve, or with one that is used up. The outcome is known all the same: not stored."""
    machine = machine_of("full", kind)
    store = machine.start()
    worker = Worker(store, machine.ledger, "w")
    worker.prepare()
    machine.work(worker, STEPS)
    worker.flush()
    machine.disk.fail_at(1, Fault.FULL, lasting=True)
    with pytest.raises(StoreFull, match=r"bus\.db could not be written.*nothing of the last calls was stored"):
        fill(worker)
    check_stopped(store)
    machine.release(store)
    full, failed = worked(machine)
    assert failed
    if full is not None:
        machine.release(full)
    machine.disk.heal()
    store = machine.start()
    audit(store, machine.ledger, len(machine.ledger.ops))
    assert machine.ledger.findings.all() == []
    store.close()


@kinds
def test_no_error_of_the_driver_comes_through(kind: str) -> None:
    """Programs catch our errors; they do not know which driver is below."""
    for site in range(1, 40):
        machine = machine_of("one", kind)
        machine.disk.fail_at(site, Fault.READ, lasting=True)
        try:
            store, _ = worked(machine)
        except (apsw.Error, OSError) as error:
            raise AssertionError(f"read {site}") from error
        machine.disk.heal()
        if store is not None:
            machine.release(store)
