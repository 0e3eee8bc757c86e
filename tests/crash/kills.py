"""The campaign with processes that are killed: at any moment, also while they open the file. What was reported is true.

One cycle is one run. A file has several of them, so that each begins with what the ones before have left.
"""

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.crash.audit import audit
from tests.crash.child import open_journal
from tests.crash.ledger import Ledger, Op, Taken
from tests.crash.power import StillTimers, Tally
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.testing.clock.virtual_clock import VirtualClock

ROOT = Path(__file__).parents[2]
LIVES = 25
KILLS_MAX = 1_000
"""A planted bug that so many kills do not find is not found. Usually a few are enough."""
BYTES_MAX = 16_000_000
SILENCE_S = 60.0
"""A child that reports nothing for so long has failed."""


class Nursery:
    """A process that gives birth to those that are killed."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.child"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._buffer = b""

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(SILENCE_S)
        self._process.stdout.close()

    def life(self, order: dict[str, object], from_ready: bool, for_s: float) -> Iterator[dict[str, Any]]:
        """Everything that a child says until it is killed: so long after it was born, or after it was ready."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        pid, deadline = 0, None
        while True:
            told = self._next(deadline)
            if told is None:
                os.kill(pid, signal.SIGKILL)
                deadline = None
                continue
            if told["is"] == "gone":
                return
            if told["is"] == "born":
                pid = told["pid"]
            if told["is"] == ("ready" if from_ready else "born"):
                deadline = time.monotonic() + for_s
            yield told

    def _next(self, deadline: float | None) -> dict[str, Any] | None:
        """The next line, or None when it is time."""
        assert self._process.stdout is not None
        while True:
            line, found, rest = self._buffer.partition(b"\n")
            if found:
                self._buffer = rest
                if (told := parsed(line)) is not None:
                    return told
                continue
            wait_s = SILENCE_S if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], wait_s)[0]:
                assert deadline is not None, "the child does not answer"
                return None
            self._buffer += os.read(self._process.stdout.fileno(), 1 << 20)
            if deadline is not None and time.monotonic() > deadline:
                return None


def parsed(line: bytes) -> dict[str, Any] | None:
    """What was being written at the end is half a line, and was not said."""
    try:
        return json.loads(line) if line else None  # type: ignore[no-any-return]
    except ValueError:
        return None


class Scribe:
    """Records what a child reports."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ops: dict[int, Op] = {}

    def take(self, told: dict[str, Any]) -> None:
        kind = told.pop("is")
        if kind == "error":
            raise AssertionError(told["text"])
        if kind == "begin":
            number = told.pop("index")
            op = self._ops[number] = Op(**told)
            op.marks = [tuple(mark) for mark in op.marks]
            self._ledger.begin(op)
        elif kind == "refused":
            self._ledger.refused(self._ops[told["index"]])
        elif kind == "acked":
            op = self._ops[told["index"]]
            op.marks = [tuple(mark) for mark in told["marks"]]
            op.stored = [tuple(place) for place in told["stored"]]
            op.taken = [Taken(**taken) for taken in told["taken"]]
            self._ledger.acked(op)


def one_file(nursery: Nursery, path: Path, seed: str, is_over: Callable[[Ledger], bool], planted: str) -> Ledger:
    """Runs on one file, each killed, until there were enough or the campaign is over."""
    chance = random.Random(seed)
    ledger = Ledger()
    for life in range(LIVES):
        if life and is_over(ledger):
            break
        order = {
            "path": str(path),
            "seed": f"{seed}.{life}",
            "piece": chance.choice((1, 5, 500)),
            "snapshot_every": chance.choice((20, 100)),
            "checkpoint_bytes": chance.choice((0, 200_000)),
            "block_changes": chance.choice((50, 400, 65_536)),
            "on_loop": chance.choice((False, True)),
            "planted": planted,
        }
        scribe = Scribe(ledger)
        for told in nursery.life(order, chance.random() < 0.8, chance.uniform(0.0, 0.08)):
            scribe.take(told)
        ledger.counts["cuts"] += 1
        with reopened(path) as store:
            audit(store, ledger, len(ledger.ops))
    return ledger


@contextmanager
def reopened(path: Path) -> Iterator[EmbeddedStore]:
    """In this process, at this moment, which does not pass while one looks."""
    clock = VirtualClock(datetime.now(UTC))
    store = EmbeddedStore(open_journal(str(path), BYTES_MAX), clock, StillTimers())
    try:
        yield store
    finally:
        store.close()


def campaign(folder: Path, seed: str, seconds: float, ending: str = "db") -> Tally:
    """Files until the time is over. With the ending "json" they are folders of JSON files."""
    until = time.monotonic() + seconds
    return _files(folder, seed, lambda _: time.monotonic() > until, ending=ending)


def find_loss(folder: Path, seed: str, planted: str) -> Tally:
    """Files until an answered call is lost. `planted` names the bug to put into the children's journals.

    Bounded by kills and not by time: how much a child does before it is killed depends on the load of the machine.
    """

    def is_over(ledger: Ledger) -> bool:
        return bool(ledger.findings.lost)

    return _files(folder, seed, is_over, files_max=KILLS_MAX // LIVES, planted=planted)


def _files(
    folder: Path,
    seed: str,
    is_over: Callable[[Ledger], bool],
    *,
    files_max: int | None = None,
    planted: str = "",
    ending: str = "db",
) -> Tally:
    tally = Tally()
    nursery = Nursery()
    try:
        while files_max is None or tally.counts["files"] < files_max:
            number = tally.counts["files"]
            ledger = one_file(nursery, folder / f"{number}.{ending}", f"{seed}{number}", is_over, planted)
            tally.add(ledger)
            tally.counts["files"] += 1
            for left in folder.glob(f"{number}.{ending}*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            if is_over(ledger):
                break
    finally:
        nursery.close()
    tally.counts["cycles"] = tally.counts["cuts"]
    return tally
