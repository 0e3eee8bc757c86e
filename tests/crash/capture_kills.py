"""The campaign with captures that are killed while a bus writes, which is killed too, now and then.

In the end one capture goes to its end, and what it has is compared to the history of the store: each event once, and
none that the store does not have.
"""

import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.kills import LIVES, ROOT, Nursery, reopened
from tests.unit.capture.captures import capture_all, captured
from tests.unit.capture.rows import rows_of
from unibus.capture.manifest import Manifest

EVERYTHING = 10**9


class CaptureNursery(Nursery):
    """A process that gives birth to captures."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.capture_child"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._buffer = b""


@dataclass
class Tally:
    kills: int = 0
    events: int = 0
    segments: int = 0
    sealed: int = 0
    """Kills after which the directory had more than before."""
    wrong: list[str] = field(default_factory=list)


def write(nursery: Nursery, path: Path, seed: str, over: threading.Event, wrong: list[str]) -> None:
    """Runs of a bus, one after the other."""
    chance = random.Random(seed)
    for life in range(LIVES * 100):
        if over.is_set():
            return
        order = {
            "path": str(path),
            "seed": f"{seed}.{life}",
            "piece": 50,
            "snapshot_every": 500,
            "checkpoint_bytes": 200_000,
            "block_changes": 65_536,
            "on_loop": False,
            "planted": "",
        }
        for told in nursery.life(order, True, chance.uniform(0.1, 0.6)):
            if told["is"] == "error":
                wrong.append(told["text"])


def one_file(bus: Nursery, captures: Nursery, folder: Path, seed: str, cycles: int) -> Tally:
    tally = Tally()
    path, target = folder / "bus.db", folder / "capture"
    with reopened(path):
        pass  # So that there is something to capture.
    over = threading.Event()
    writer = threading.Thread(target=write, args=(bus, path, seed, over, tally.wrong))
    writer.start()
    chance = random.Random(seed)
    try:
        for _ in range(cycles):
            before = last_of(target)
            order = {"url": f"sqlite:///{path}", "folder": str(target), "rows": chance.choice((5, 200, 10**6))}
            for told in captures.life(order, chance.random() < 0.8, chance.uniform(0.0, 0.3)):
                if told["is"] == "error":
                    tally.wrong.append(told["text"])
            tally.kills += 1
            tally.sealed += last_of(target) > before
    finally:
        over.set()
        writer.join()
    with reopened(path) as store:
        expected = rows_of(store.history.events_after(0, EVERYTHING)[0])
        capture_all(f"sqlite:///{path}", target)
    if captured(target) != expected:
        tally.wrong.append(f"{seed}: what was captured is not the history")
    tally.events, tally.segments = len(expected), len(Manifest.load(str(target)).segments)
    return tally


def last_of(folder: Path) -> int:
    return Manifest.load(str(folder)).last if (folder / "capture.json").exists() else 0


def campaign(folder: Path, seed: str, cycles: int, seconds: float = 0.0) -> Tally:
    """One file, and more of them until the time is over."""
    total = Tally()
    bus, captures = Nursery(), CaptureNursery()
    until = time.monotonic() + seconds
    try:
        while not total.kills or (time.monotonic() < until and not total.wrong):
            place = folder / f"{total.kills}"
            place.mkdir()
            tally = one_file(bus, captures, place, f"{seed}{total.kills}", cycles)
            total.kills += tally.kills
            total.events += tally.events
            total.segments += tally.segments
            total.sealed += tally.sealed
            total.wrong += tally.wrong
    finally:
        captures.close()
        bus.close()
    return total
