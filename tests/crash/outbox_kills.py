"""The campaign of the outbox: programs that are killed at any moment, and what is in both databases after that.

The user's rows are the truth. Before anything is relayed the store has the messages of some first transactions, whole
ones; after that it has one message for each row, in order, and no other.
"""

import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.crash.kills import ROOT, Nursery
from unibus.sync import MessageBus

LIVES = 12
PAGE = 1_000


class Programs(Nursery):
    """The same for programs of ours."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.crash.outbox_child"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._buffer = b""


@dataclass
class Tally:
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def line(self, name: str) -> str:
        told = ", ".join(f"{self.counts[key]} {key}" for key in ("lives", "transactions", "rows", "waiting", "files"))
        return f"{name}: {told}, {len(self.findings)} findings"


def rows_of(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchone():
            return []
        return connection.execute("SELECT name, work FROM orders ORDER BY number").fetchall()


def messages_of(bus: MessageBus) -> list[tuple[str, str]]:
    if not any(info.name == "orders" for info in bus.entities()):
        return []
    found: list[tuple[str, str]] = []
    last = 0
    while page := bus.peek("orders", PAGE, last + 1):
        found += [(str(message.body), str(message.headers["work"])) for message in page]
        last = int(page[-1].sequence)
    return found


def judge(path: Path, url: str, tally: Tally, where: str) -> None:
    rows = rows_of(path)
    with MessageBus(url) as bus:
        before = messages_of(bus)
        if before != rows[: len(before)]:
            tally.findings.append(f"{where}: not the first of the rows: {difference(before, rows)}")
        elif len(before) < len(rows) and before and before[-1][1] == rows[len(before)][1]:
            tally.findings.append(f"{where}: half of a transaction, {before[-1][1]}")
        bus.relay_outbox(path)
        after = messages_of(bus)
        if after != rows:
            tally.findings.append(f"{where}: {difference(after, rows)}")
    tally.counts["waiting"] += len(rows) - len(before)


def difference(messages: list[tuple[str, str]], rows: list[tuple[str, str]]) -> str:
    lost, strange = [each for each in rows if each not in messages], [each for each in messages if each not in rows]
    doubled = [each for each, count in Counter(messages).items() if count > 1]
    return f"lost {lost[:3]}, without a row {strange[:3]}, doubled {doubled[:3]}, of {len(rows)} rows"


def one_file(nursery: Nursery, folder: Path, seed: str, until: float, tally: Tally, planted: bool) -> None:
    chance = random.Random(seed)
    path = folder / "app.db"
    url = f"sqlite:///{folder / 'bus.db'}?durability={chance.choice(('D1', 'D1', 'D2'))}"
    journal = chance.choice(("wal", "delete"))
    for life in range(LIVES):
        if life and time.monotonic() > until:
            break
        order: dict[str, Any] = {
            "path": str(path),
            "url": url,
            "seed": f"{seed}.{life}",
            "journal": journal,
            "isolation": chance.choice((None, "", "IMMEDIATE")),
            "synchronous": chance.choice(("OFF", "OFF", "NORMAL")),  # What a killed process has written stays.
            "relays": chance.random() < 0.5,
            "planted": planted,
        }
        for told in nursery.life(order, chance.random() < 0.85, chance.uniform(0.0, 0.25)):
            if told["is"] == "error":
                raise AssertionError(told["text"])
        tally.counts["lives"] += 1
        judge(path, url, tally, f"{seed}, life {life}")
        if tally.findings:
            break
    rows = rows_of(path)
    tally.counts["rows"] += len(rows)
    tally.counts["transactions"] += sum(1 for _ in groupby(rows, key=lambda row: row[1]))


def campaign(folder: Path, seed: str, seconds: float, planted: bool = False) -> Tally:
    """Files until the time is over."""
    tally = Tally()
    nursery = Programs()
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until and not tally.findings:
            number = tally.counts["files"]
            place = folder / str(number)
            place.mkdir()
            one_file(nursery, place, f"{seed}{number}", until, tally, planted)
            tally.counts["files"] += 1
            for left in place.iterdir():
                left.unlink()
    finally:
        nursery.close()
    return tally
