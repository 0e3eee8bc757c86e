"""The process that is killed: it works on a real file and reports each call and each result on its standard output.

`python -m tests.crash.child` waits for orders, one line each, and forks a child for every one of them: so a run begins
within a few milliseconds. The last word about a child is written when it is gone, after all that it has said itself.
"""

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import cast

from tests.crash import planted
from tests.crash.ledger import Op
from tests.crash.on_loop import OnLoop
from tests.crash.workload import Worker
from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.stores.engine import snapshot
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.jsonfile import log as jsonfile_log
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.seam.journal import Journal
from unibus.stores.sql import trace_index
from unibus.stores.sqlite import journal as sqlite
from unibus.stores.sqlite.journal import SqliteJournal

TOLD = ("marks", "stored", "taken", "states")


class Wire:
    """A ledger in another process. A line is written completely before the call continues."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def begin(self, op: Op) -> None:
        with self._lock:
            op.index = self._count
            self._count += 1
            self._write({"is": "begin", **asdict(op)})

    def acked(self, op: Op) -> None:
        told = asdict(op)
        with self._lock:
            self._write({"is": "acked", "index": op.index, **{name: told[name] for name in TOLD}})

    def refused(self, op: Op) -> None:
        with self._lock:
            self._write({"is": "refused", "index": op.index})

    def say(self, what: str, **more: object) -> None:
        with self._lock:
            self._write({"is": what, **more})

    def _write(self, told: dict[str, object]) -> None:
        data = b"\n" + json.dumps(told).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]


def live(order: dict[str, object]) -> None:
    """Work in some threads until it is killed."""
    wire = Wire()
    try:
        snapshot.PART_ENTRIES = int(str(order["piece"]))
        trace_index.BLOCK_CHANGES = int(str(order["block_changes"]))
        timers = ThreadTimers(SYSTEM_CLOCK, lambda error: wire.say("error", text=repr(error)))
        journal = open_journal(str(order["path"]), int(str(order["checkpoint_bytes"])))
        if order["planted"]:
            journal = getattr(planted, str(order["planted"]))(journal)
        every = int(str(order["snapshot_every"]))
        store = EmbeddedStore(journal, SYSTEM_CLOCK, timers, memory_budget_mb=0.01, snapshot_every=every)
        Worker(store, wire, f"{order['seed']}.p").prepare()
        wire.say("ready")
        shown = cast("EmbeddedStore", OnLoop(store)) if order["on_loop"] else store
        others = [threading.Thread(target=work, args=(shown, wire, order["seed"], lane)) for lane in (1, 2)]
        for other in others:
            other.start()
        work(shown, wire, order["seed"], 0)
    except BaseException:
        wire.say("error", text=traceback.format_exc())


def open_journal(path: str, bytes_max: int) -> Journal:
    """The kind of journal, from the name of the file."""
    if path.endswith(".json"):
        jsonfile_log.SEGMENT_BYTES = bytes_max
        return JsonFileJournal(path)
    sqlite.CHECKPOINT_BYTES = bytes_max
    return SqliteJournal(path)


def work(store: EmbeddedStore, wire: Wire, seed: object, lane: int) -> None:
    try:
        worker = Worker(store, wire, f"{seed}", lane)
        while True:
            worker.step()
    except BaseException:
        wire.say("error", text=traceback.format_exc())


def births(live: Callable[[dict[str, object]], None]) -> None:
    """For each order on the standard input, one process that works until it is killed."""
    wire = Wire()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            live(json.loads(line))
            os._exit(1)
        wire.say("born", pid=pid)
        os.waitpid(pid, 0)
        wire.say("gone")


if __name__ == "__main__":
    births(live)
