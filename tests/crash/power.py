"""The campaign on a simulated disk: work, cut the power at any step, start again, check everything; from a seed.

One cycle is one disk with several runs. Each run ends in one of four ways: a cut at a step inside of some call, a cut
between two calls, the end of the process alone, or an orderly close. The next one begins with a recovery, and that may
be cut as well, up to three times in a row.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import apsw

from tests.crash.audit import audit, read_history
from tests.crash.ledger import Findings, Ledger
from tests.crash.workload import SESSIONS, Worker, drain
from unibus.clock import Timers
from unibus.errors import BusError
from unibus.stores.engine import snapshot
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.files.reserve import Reserve
from unibus.stores.jsonfile import log as jsonfile_log
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.seam.journal import Journal
from unibus.stores.sql import trace_index
from unibus.stores.sqlite import journal as sqlite
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.files import FolderDisk
from unibus.testing.power import SimulatedDisk

PATH = "bus.db"
LIVES = 5
STEPS = 60
NESTED = 3

AnyDisk = SimulatedDisk | FolderDisk
AnyJournal = SqliteJournal | JsonFileJournal
Planting = Callable[[Journal], Journal]


@dataclass
class Tally:
    """The sum of a campaign."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)

    def add(self, ledger: Ledger) -> None:
        self.counts["cycles"] += 1
        self.counts.update(ledger.counts)
        for name in ("lost", "doubled", "half", "wrong"):
            getattr(self.findings, name).extend(getattr(ledger.findings, name))

    def line(self, name: str) -> str:
        shown = {key: self.counts[key] for key in ("cycles", "cuts", "acked", "completed")}
        shown |= {key: len(getattr(self.findings, key)) for key in ("lost", "doubled", "half", "wrong")}
        return f"{name}: " + ", ".join(f"{value:,} {key}" for key, value in shown.items())


class StillTimers(Timers):
    """Timers that never fire: every call applies passed deadlines. So a run has one thread, and follows from its
    seed."""

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        pass

    def stop(self) -> None:
        pass


class Machine:
    """A computer with one disk and one store, from start to start. `planted` puts a bug into its journal."""

    def __init__(self, seed: str, disk: AnyDisk | None = None, planted: Planting | None = None) -> None:
        self.chance = random.Random(seed)
        self.disk = disk or self.new_disk(seed, sector=self.chance.choice((512, 4096)))
        self.clock = VirtualClock()
        self.reserve: Reserve | None = None
        self.ledger = Ledger()
        self.floor = -1
        """The last operation that must have survived the end of the run before."""
        self._planted = planted
        self._snapshot_every = self.chance.choice((5, 25, 100))
        self._memory_mb = self.chance.choice((0.0, 0.01, 16.0))
        self._history_bytes = self.chance.choice((0, 30_000, 10**9))
        self._checkpoint_bytes = self.chance.choice((0, 60_000, 300_000))
        self._piece = self.chance.choice((1, 3, 500))
        self._block = self.chance.choice((10, 60, 65_536))

    # What the two kinds of journals have of their own

    @staticmethod
    def new_disk(seed: str, *, sector: int = 512, lying_sync: bool = False) -> AnyDisk:
        return SimulatedDisk(seed, sector=sector, lying_sync=lying_sync)

    def open_journal(self) -> AnyJournal:
        assert isinstance(self.disk, SimulatedDisk)
        sqlite.CHECKPOINT_BYTES = self._checkpoint_bytes
        trace_index.BLOCK_CHANGES = self._block
        return SqliteJournal(
            PATH, vfs=self.disk.name, exclusive=True, history_bytes=self._history_bytes, reserve=self.reserve
        )

    # A start

    def start(self) -> EmbeddedStore:
        """Open the store. BusError if the disk does not let us, and nothing of ours stays open then."""
        snapshot.PART_ENTRIES = self._piece
        journal = self.open_journal()
        try:
            kept: Journal = journal if self._planted is None else self._planted(journal)
            budget, every = self._memory_mb, self._snapshot_every
            return EmbeddedStore(kept, self.clock, StillTimers(), memory_budget_mb=budget, snapshot_every=every)
        except BaseException:
            self.release(journal)
            raise

    def recover(self) -> EmbeddedStore:
        """Start, through up to three cuts in the middle of that."""
        for _ in range(self.chance.choice((0, 0, 1, 2, NESTED))):
            self.disk.cut_at(self.chance.randrange(1, 12))
            try:
                store = self.start()
            except BusError:
                self.floor = min(self.floor, self.ledger.durable)
                self.ledger.counts["cuts"] += 1
            else:
                self.disk.heal()
                return store
        self.disk.heal()
        return self.start()

    # One run

    def work(self, worker: Worker, steps: int) -> None:
        for _ in range(steps):
            worker.step()
            if self.chance.random() < 0.15:
                worker.flush()
                self._pass_time(worker.store)

    def read_all(self, store: EmbeddedStore) -> None:
        """Of history, before it is trimmed: from time to time, and at close."""
        read_history(store, self.ledger, len(self.ledger.ops))

    def _pass_time(self, store: EmbeddedStore) -> None:
        self.read_all(store)
        self.clock.advance(self.chance.choice((0.5, 2, 6, 61)), settle=False)
        if self.chance.random() < 0.3:
            self._trim(store)

    def _trim(self, store: EmbeddedStore) -> None:
        """As the store does it by itself: history that could not be trimmed is no reason to stop."""
        try:
            store._committer.trim(store.now_ns())
        except BusError:
            self.ledger.counts["not trimmed"] += 1
            if not self.disk.on:
                raise

    # Its end

    def live(self, worker: Worker) -> None:
        """Work until the end that chance has in store."""
        end = self.chance.choice((self._cut_inside, self._cut_inside, self._cut_between, self._kill, self._close))
        end(worker)

    def _cut_inside(self, worker: Worker) -> None:
        self.disk.cut_at(self.chance.randrange(1, 200))
        try:
            self.work(worker, STEPS)
            worker.flush()
            self.read_all(worker.store)
            worker.store.close()
        except (BusError, apsw.Error):
            self._cut(worker.store)
        else:
            if not self.disk.on:
                self._cut(worker.store)  # In the last write of the close, which is no error.
                return
            self.disk.heal()
            self.floor = len(self.ledger.ops)

    def _cut_between(self, worker: Worker) -> None:
        self.work(worker, self.chance.randrange(STEPS))
        self.disk.cut()
        self._cut(worker.store)

    def _cut(self, store: EmbeddedStore) -> None:
        self.floor = self.ledger.durable
        self.ledger.counts["cuts"] += 1
        self.release(store)

    def _kill(self, worker: Worker) -> None:
        self.work(worker, self.chance.randrange(STEPS))
        self.disk.kill()
        self.floor = len(self.ledger.ops)
        self.release(worker.store)

    def _close(self, worker: Worker) -> None:
        self.work(worker, self.chance.randrange(STEPS))
        worker.flush()
        self.read_all(worker.store)
        worker.store.close()
        self.floor = len(self.ledger.ops)

    def release(self, opened: EmbeddedStore | AnyJournal) -> None:
        """The disk may be dead: then closing may be one more error."""
        try:
            opened.close()
        except (apsw.Error, BusError):
            self.ledger.counts["closed with an error"] += 1


class JsonMachine(Machine):
    """The same with a folder of JSON files. Segments of the log end as often as SQLite's log is moved."""

    @staticmethod
    def new_disk(seed: str, *, sector: int = 512, lying_sync: bool = False) -> AnyDisk:
        return FolderDisk(seed, sector=sector, lying_sync=lying_sync)

    def open_journal(self) -> AnyJournal:
        assert isinstance(self.disk, FolderDisk)
        jsonfile_log.SEGMENT_BYTES = self._checkpoint_bytes
        return JsonFileJournal(PATH, files=self.disk.start(), history_bytes=self._history_bytes, reserve=self.reserve)


MACHINES: dict[str, type[Machine]] = {"sqlite": Machine, "jsonfile": JsonMachine}


def cycle(machine: Machine, seed: str) -> Ledger:
    """All runs of one disk. Ends with everything received, once."""
    before: Worker | None = None
    for life in range(LIVES):
        store = machine.recover()
        audit(store, machine.ledger, machine.floor)
        worker = Worker(store, machine.ledger, f"{seed}.{life}")
        worker.prepare()
        if before is not None:
            worker.inherit(before)
            if machine.chance.random() < 0.3:
                machine.ledger.findings.wrong += worker.check_holdings()
        before = worker
        machine.live(worker)
    receive_everything(machine, f"{seed}.end")
    return machine.ledger


def receive_everything(machine: Machine, seed: str) -> None:
    """Each message that is left is delivered, and with that it is gone, also after another start."""
    ledger = machine.ledger
    store = machine.recover()
    audit(store, ledger, machine.floor)
    worker = Worker(store, ledger, seed)
    worker.prepare()
    machine.clock.advance(1_000, settle=False)
    check_sessions(worker, ledger)
    drain(worker)
    machine.read_all(store)
    store.close()
    store = machine.start()
    audit(store, ledger, len(ledger.ops))
    left = [(info.name, info) for info in store.entities().wait() if info.active + info.locked + info.deferred]
    ledger.findings.wrong += [f"not received in the end: {each}" for each in left]
    store.close()


def check_sessions(worker: Worker, ledger: Ledger) -> None:
    """Every session has the state that was set last, of the batches that took place."""
    states = {session: state for op in ledger.ops for session, state in op.states.items()}
    for session in SESSIONS:
        found = worker.take_session(session)
        expected = states.get(session)
        if found != (None if expected is None else expected.encode()):
            ledger.findings.wrong.append(f"session {session} has the state {found!r}, not {expected!r}")


def campaign(
    seed: str,
    seconds: float,
    planted: Planting | None = None,
    *,
    lying_sync: bool = False,
    kind: type[Machine] = Machine,
) -> Tally:
    """Cycles until the time is over."""
    tally = Tally()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        tally.add(one_cycle(f"{seed}.{tally.counts['cycles']}", planted, lying_sync=lying_sync, kind=kind))
    return tally


def one_cycle(
    seed: str, planted: Planting | None = None, *, lying_sync: bool = False, kind: type[Machine] = Machine
) -> Ledger:
    disk = kind.new_disk(seed, lying_sync=True) if lying_sync else None
    segment = jsonfile_log.SEGMENT_BYTES
    before = snapshot.PART_ENTRIES, sqlite.CHECKPOINT_BYTES, trace_index.BLOCK_CHANGES
    try:
        return cycle(kind(seed, disk, planted), seed)
    finally:
        snapshot.PART_ENTRIES, sqlite.CHECKPOINT_BYTES, trace_index.BLOCK_CHANGES = before
        jsonfile_log.SEGMENT_BYTES = segment
