"""Captures onto a disk that loses power: whatever step it is, a new start leaves each event once.

The store is a real file that stays whole; the directory is on a disk of `unibus.testing.files`, where nothing is
durable that was not synced, and what was not synced ends in any way.
"""

import random
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

from tests.unit.capture.captures import captured_on
from tests.unit.capture.histories import Work, working
from tests.unit.capture.rows import rows_of
from unibus.capture import manifest
from unibus.capture.capturing import Capturing
from unibus.capture.compacting import compact
from unibus.capture.retention import keep
from unibus.capture.segments import SegmentWriter
from unibus.capture.settings import Policy, Rotation
from unibus.core.lifecycle.events import Event
from unibus.stores.files.disk import Files
from unibus.stores.schemes import open_history
from unibus.testing.files import FolderDisk

FOLDER = "capture"
SMALL = Rotation(rows=6)


def one_life(work: Work, files: Files, policy: Policy | None) -> None:
    """Capture all there is in small segments, put them together, drop some bodies, and write the manifest again."""
    with closing(open_history(work.url)) as reader, patch.object(manifest, "LINES_MIN", 5):
        with closing(Capturing(reader, FOLDER, SMALL, policy, files=files)) as capture:
            capture.finish()
        with closing(SegmentWriter(FOLDER, files=files)) as writer:
            compact(writer, Rotation(rows=30), by_hand=True)
            keep(writer, Policy(bodies_keep_s=1.0))
            writer.shorten()


def steps_of(work: Work, seed: str) -> int:
    """How many steps a run takes without a cut."""
    disk = FolderDisk(seed)
    one_life(work, disk.start(), None)
    return disk.steps


def cut_and_go_on(work: Work, expected: list[Event], seed: str, steps: list[int], lying: bool = False) -> None:
    """One run for each of the steps, with a power cut there; then a complete one, and a check of the result."""
    disk = FolderDisk(seed, lying_sync=lying)
    for step in steps:
        files = disk.start()
        disk.cut_at(step)
        try:
            one_life(work, files, None)
        except OSError:
            assert not disk.on
        if disk.on:
            disk.cut()
    files = disk.start()
    one_life(work, files, None)
    assert captured_on(files, FOLDER) == rows_of(expected), (seed, steps)


def campaign(folder: Path, seed: str, rounds: int, lying: bool = False) -> int:
    """Rounds of some runs each. Returns how many cuts there were."""
    chance = random.Random(seed)
    cuts = 0
    with working(folder / "bus.db", seed) as work:
        work.steps(25)
        expected = work.events()
        most = steps_of(work, seed)
        for number in range(rounds):
            steps = [chance.randint(1, most) for _ in range(chance.randint(1, 4))]
            cut_and_go_on(work, expected, f"{seed}{number}", steps, lying)
            cuts += len(steps)
    return cuts
