"""Every answer of a batch is lost once, the batch is sent again, and the process is killed in between: nothing is lost
or doubled."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.sender_of_batches import opened, pairs

BATCHES = 100_000
KILLS_MAX = 40
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["sqlite", "jsonfile"])
def test_batches_that_are_sent_again_take_effect_once(
    kind: str, folder: Path, seed: str, report: Callable[[str], None]
) -> None:
    chance = random.Random(seed)
    kills = 0
    while True:
        command = [sys.executable, "-m", "tests.soak.sender_of_batches", kind, str(folder), str(BATCHES)]
        process = subprocess.Popen(command, cwd=ROOT)
        try:
            # Mostly in the middle of its work; sometimes during the recovery, which takes longer each time.
            lasts_s = chance.uniform(0.4, 1.0 + 0.1 * kills)
            assert process.wait(lasts_s if kills < KILLS_MAX else None) == 0
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    acks = pairs(folder / "acks")
    store = opened(kind, folder)
    try:
        assert store.check() == []
        assert len(acks) == BATCHES
        entries = store.list_messages("q", count=10_000_000).wait()
        found = {entry.sequence: entry.who.message_id for entry in entries}
        counts = Counter(found.values())
        assert len(found) == len(counts) == 2 * BATCHES  # None is lost, and none is stored twice.
        # Every answer named the messages of its own batch.
        wrong = [
            number
            for number, text in acks.items()
            if [found[int(each)] for each in text.split(",")] != [f"{number}a", f"{number}b"]
        ]
        assert wrong == []
        assert len(store.catalog.positions().wait()) == BATCHES // 100
    finally:
        store.close()
    assert kills
    report(f"{BATCHES:,} batches on {kind}, each sent twice, {kills} kills: 0 lost, 0 doubled (SEED={seed})")
