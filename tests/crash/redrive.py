"""The campaign on dead-lettered messages: processes that redrive thousands are killed, until one finishes.

After each kill every message is in one place: dead-lettered with its reason, or redriven without it. What was reported
is done.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.kills import ROOT, Nursery, reopened
from tests.crash.redriver import REVIEW
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.codec.codec import decode
from unibus.limits import BATCH_COMMANDS_MAX
from unibus.stores.seam.message_record import MessageRecord
from unibus.stores.seam.store_view import OpenStoreView, all_messages

LETTERS = 10_000
LIFE_S = 0.25
LIVES_MIN = 5
PATIENCE_S = 60.0
RECORD = "DeadLetterReason"
RECOVERIES = "DeadLetterRecoveryAttempts"
QUEUES = ("orders", "billing", "t/Subscriptions/a")


class Redrivers(Nursery):
    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.redriver"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._buffer = b""

    def life(self, order: dict[str, object], from_ready: bool, for_s: float) -> Iterator[dict[str, Any]]:
        """As there; but one that has come to the end is not waited for."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        pid, deadline, is_over = 0, None, False
        while (told := self._next(deadline)) is None or told["is"] != "gone":
            if not is_over and (told is None or told["is"] == "done"):
                os.kill(pid, signal.SIGKILL)
                deadline, is_over = None, True
            if told is None:
                continue
            if told["is"] == "born":
                pid = told["pid"]
            if not is_over and told["is"] == ("ready" if from_ready else "born"):
                deadline = time.monotonic() + for_s
            yield told


@dataclass
class Score:
    """What was seen. `findings` is empty if all is well."""

    kills: int = 0
    in_the_middle: int = 0
    files: int = 0
    moved: int = 0
    findings: list[str] = field(default_factory=list)

    def line(self, name: str) -> str:
        moved = f"{self.in_the_middle} of them half way, {self.moved} messages moved"
        return f"{name}: {self.files} files, {self.kills} kills, {moved}, findings: {self.findings[:3] or 'none'}"


def buried(path: Path, count: int) -> dict[str, tuple[str, int]]:
    """A file with this many dead-lettered messages: by id, the queue and the body of each."""
    known: dict[str, tuple[str, int]] = {}
    with SyncMessageBus(str(path)) as bus:
        bus.create_topic("t")
        bus.create_subscription("t", "a")
        bus.create_queue(REVIEW)
        for number, queue in enumerate(QUEUES):
            everything = range(number, count, len(QUEUES))
            for start in range(0, len(everything), BATCH_COMMANDS_MAX):
                bodies = everything[start : start + BATCH_COMMANDS_MAX]
                sent = bus.send_many(queue.partition("/")[0], bodies, durability="D1")
                known |= {each.id: (queue, body) for each, body in zip(sent, bodies, strict=True)}
            while messages := bus.receive_batch(queue, 1_000, timeout=0):
                with bus.transaction("D1"):
                    for message in messages:
                        message.dead_letter("Broken", "by hand")
    return known


def one_file(nursery: Nursery, path: Path, chance: random.Random, score: Score, seconds: float, planted: bool) -> None:
    """Kill the process that moves them, again and again, until all are moved. After the time limit one may finish."""
    known = buried(path, LETTERS if not planted else 300)
    until, lives = time.monotonic() + seconds, 0
    verb, back = chance.choice(["retry", "redirect"]), 0
    while back < len(known) and not score.findings:
        is_over = time.monotonic() > until and lives >= LIVES_MIN
        batch_size = 500 if is_over else chance.choice((20, 100, 500))
        for_s = PATIENCE_S if is_over else chance.uniform(0.0, LIFE_S)
        lives += 1
        order = {"path": str(path), "verb": verb, "batch_size": batch_size, "planted": planted}
        told = one_life(nursery, order, chance.random() < 0.9, for_s)
        score.kills += 1
        before, back = back, audit(path, known, REVIEW if verb == "redirect" or planted else "", score.findings)
        score.in_the_middle += 0 < back < len(known)
        if back < before + told:
            score.findings.append(f"{told} were reported as moved, and {back - before} are")
    score.moved += back
    score.files += 1


def one_life(nursery: Nursery, order: dict[str, object], from_ready: bool, for_s: float) -> int:
    """How many messages it reported as moved before it was killed."""
    told = 0
    for word in nursery.life(order, from_ready, for_s):
        if word["is"] == "error":
            raise AssertionError(word["text"])
        told = word.get("done", told)
    return told


def audit(path: Path, known: dict[str, tuple[str, int]], target: str, findings: list[str]) -> int:
    """Every message exists once and is right. How many are redriven."""
    back = 0
    with reopened(path) as store:
        entries = list(all_messages(OpenStoreView(store)))
        data = store.read_bodies([entry.key for entry in entries]).wait()
        counts = Counter(entry.who.message_id for entry in entries)
        wrong = {each: counts[each] for each in known.keys() | counts.keys() if counts[each] != 1 or each not in known}
        if wrong:
            findings.append(f"not there once: {dict(list(wrong.items())[:5])}")
        for entry in entries:
            queue, body = known.get(entry.who.message_id, ("", -1))
            is_dead = entry.entity == f"{queue}/$DeadLetterQueue"
            back += not is_dead
            if not is_dead and entry.entity != (target or queue):
                findings.append(f"{entry.who.message_id} of {queue} is in {entry.entity}")
            if not is_right(entry, is_dead) or decode(data[entry.key]).body != body:
                findings.append(f"{entry.who.message_id} of {queue} is not as it should be: {entry.overlay}")
    return back


def is_right(entry: MessageRecord, is_dead: bool) -> bool:
    overlay = entry.overlay or {}
    if is_dead:
        return RECORD in overlay and RECOVERIES not in overlay
    return RECORD not in overlay and overlay.get(RECOVERIES) == 1


def campaign(folder: Path, seed: str, seconds: float, planted: bool = False) -> Score:
    """Files until the time is over, at least one."""
    score, chance = Score(), random.Random(seed)
    nursery = Redrivers()
    until = time.monotonic() + seconds
    try:
        while not score.findings and (not score.files or time.monotonic() < until):
            path = folder / f"{score.files}.db"
            one_file(nursery, path, chance, score, until - time.monotonic(), planted)
            for left in folder.glob(f"{path.name}*"):
                left.unlink()
    finally:
        nursery.close()
    return score
