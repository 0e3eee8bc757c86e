"""The campaign with servers that are killed: `unibus serve` on one file, under the load of several clients.

    start ─▶ clients work ─▶ kill -9, at any moment, also while it starts ─▶ start again on the same file …
    at the end: `unibus check`, then everything is drained in this process and compared with what was answered

A run is one process. A file has many of them, so that each begins with what the ones before have left.
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.crash.http_clients import ENTITIES, Client
from tests.crash.http_ledger import Findings, HttpLedger
from tests.crash.server_process import PATIENCE_S, Executed, Forked, ServerProcess, arguments_of, kill
from unibus.errors import SessionNotFound
from unibus.stores.opening import open_store
from unibus.sync import MessageBus
from unibus.testing.clock.virtual_clock import VirtualClock

LIVES = 20
CLIENTS = 6
PAGE = 1_000
COUNTED = (
    "kills",
    "kills at the start",
    "acknowledged sends",
    "unknown sends",
    "duplicates",
    "deliveries",
    "acknowledged complete",
    "acknowledged dead-letter",
    "lost locks",
)


@dataclass
class Tally:
    counts: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)

    def add(self, ledger: HttpLedger) -> None:
        self.counts += ledger.counts
        for name, texts in vars(ledger.findings).items():
            getattr(self.findings, name).extend(texts)

    def line(self, name: str) -> str:
        said = ", ".join(f"{self.counts[key]} {key}" for key in COUNTED)
        return f"{name}: {said}, {len(self.findings.all())} findings"


def one_life(server: ServerProcess, path: Path, clients: list[Client], chance: random.Random) -> str:
    """Start, work, kill. Gives "kills at the start" if no client has seen it."""
    entities, log = path.with_suffix(".json"), path.with_suffix(".log")
    server.start(arguments_of(path, "--entities", str(entities)), log)
    is_early = chance.random() < 0.15
    port = server.port(time.monotonic() + (chance.uniform(0.0, 0.2) if is_early else PATIENCE_S))
    if not port:
        assert is_early, f"the server did not start: {log.read_text()[-2_000:]}"
        kill(server)
        return "kills at the start"
    stop = threading.Event()
    threads = [threading.Thread(target=each.live, args=(port, stop)) for each in clients]
    for each in threads:
        each.start()
    for_s = chance.choice((0.05, 0.3, 0.3, 1.0))
    stop.wait(chance.uniform(0.0, for_s))  # Nothing sets it: a run ends at a random moment.
    code = kill(server)
    assert code == -9, f"the server ended by itself with {code}: {log.read_text()[-2_000:]}"
    stop.set()
    for each in threads:
        each.join(PATIENCE_S)
        assert not each.is_alive()
    return "kills"


def one_file(server: ServerProcess, path: Path, seed: str, lives: int, until: float) -> HttpLedger:
    chance = random.Random(seed)
    ledger = HttpLedger()
    path.with_suffix(".json").write_text(json.dumps(ENTITIES))
    clients = [Client(ledger, f"m{seed}.{number}") for number in range(CLIENTS)]
    for life in range(lives):
        if life and time.monotonic() > until:
            break
        ledger.counts[one_life(server, path, clients, chance)] += 1
        if ledger.findings.all():
            break
    if path.exists():
        judge(path, ledger)
    return ledger


def judge(path: Path, ledger: HttpLedger) -> dict[str, list[tuple[str, int]]]:
    """Everything that was in the store, by entity."""
    checked = subprocess.run([sys.executable, "-m", "unibus", "check", str(path)], capture_output=True, text=True)
    if checked.returncode:
        ledger.wrong(f"unibus check: {checked.stdout}{checked.stderr}")
    log = path.with_suffix(".log").read_text()
    if "Traceback" in log or "internal_error" in log:
        ledger.wrong(f"a traceback in the log: {log[log.find('Traceback') :][:2_000]}")
    found = drained(path)
    ledger.judge(found)
    return found


def drained(path: Path) -> dict[str, list[tuple[str, int]]]:
    """Take everything out, a day later: no lock holds any more and everything that was scheduled is due."""
    clock = VirtualClock(datetime.now(UTC) + timedelta(days=1))
    store = open_store(f"sqlite:///{path}", clock, clock.timers(lambda: True))
    found: dict[str, list[tuple[str, int]]] = {}
    with MessageBus(store, clock=clock) as bus:
        for info in list(bus.entities()):
            if info.kind == "topic":
                continue
            found[info.name] = _sessions(bus, info.name) if info.settings["requires_session"] else _all(bus, info.name)
        left = {
            info.name: (info.active, info.locked, info.scheduled, info.deferred, info.dead) for info in bus.entities()
        }
    assert not any(sum(counts) for counts in left.values()), f"stranded: {left}"
    return found


def _all(bus: MessageBus, entity: str) -> list[tuple[str, int]]:
    found = []
    while batch := bus.receive_batch(entity, PAGE, timeout=0, mode="receive_and_delete"):
        found += [(each.id, int(each.sequence)) for each in batch]
    deferred = [int(each.sequence) for each in bus.peek(entity, 100_000)]
    taken = bus.receive_deferred(entity, deferred) if deferred else []
    for each in taken:
        each.complete()
    return (
        sorted([*found, *[(each.id, int(each.sequence)) for each in taken]], key=lambda each: each[1])
        if taken
        else found
    )


def _sessions(bus: MessageBus, entity: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    while True:
        try:
            receiver = bus.accept_session(entity, timeout=0)
        except SessionNotFound:
            return sorted(found, key=lambda each: each[1])
        with receiver as session:
            while batch := session.receive_batch(PAGE, timeout=0):
                for each in batch:
                    found.append((each.id, int(each.sequence)))
                    each.complete()


def campaign(
    folder: Path, seed: str, *, kills: int = 0, seconds: float = 0.0, forked: bool = True, planted: str = ""
) -> Tally:
    """Files until there were so many kills and the time is over, or until something is found."""
    tally = Tally()
    server: ServerProcess = Forked(planted) if forked else Executed()
    until = time.monotonic() + seconds
    try:
        while not tally.findings.all() and (_killed(tally) < kills or time.monotonic() < until):
            number = tally.counts["files"]
            wanted = min(LIVES, max(1, kills - _killed(tally))) if time.monotonic() >= until else LIVES
            path = folder / f"{number}.db"
            tally.add(one_file(server, path, f"{seed}{number}", wanted, until if not kills else float("inf")))
            tally.counts["files"] += 1
            if not tally.findings.all():
                for left in folder.glob(f"{number}.*"):
                    left.unlink()
    finally:
        server.close()
    return tally


def _killed(tally: Tally) -> int:
    return tally.counts["kills"] + tally.counts["kills at the start"]
