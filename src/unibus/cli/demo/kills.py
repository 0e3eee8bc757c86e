"""The stage of the demo that kills a sender with `kill -9`, and compares its acknowledged messages with the store.

    sender process ── send ──▶ store
         │ number of each acknowledged message
         ▼ pipe
    Sender (a thread reads it) ── kill -9 ──▶ the store is opened again: is each of these numbers in it?

The process never outlives the demo: `close` kills it on every path, Ctrl-C included, and if the demo itself is killed,
the sender ends at its next write to the closed pipe.
"""

import contextlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Final

from rich.text import Text

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.cli.demo import sender
from unibus.cli.demo.stage import TICK_S, DemoResult, Stage
from unibus.cli.terminal.signals import undisturbed
from unibus.errors import StoreFailed

QUEUE: Final = "parcels"
KILLS_MAX: Final = 3
SECONDS_EACH: Final = 3.0
"""Of the stage, for one more kill."""
SENT_LEAST: Final = 50
"""Messages that are acknowledged before a kill, however slow the machine is."""
ROWS_MAX: Final = 1_000_000


class Sender:
    """One run of the sender process. `acknowledged` has the numbers that it has reported."""

    def __init__(self, url: str, first: int) -> None:
        self._command = [sys.executable, "-P", "-m", sender.__name__, url, QUEUE, str(first)]
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._reading = threading.Thread(target=self._read, name="unibus-demo-acknowledged", daemon=True)
        self.acknowledged: list[int] = []

    def start(self) -> None:
        # A session of its own: the terminal sends Ctrl-C to the demo only, which then kills the sender.
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._reading.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def check(self) -> None:
        """Raises StoreFailed if the process has ended by itself, with the last line of its errors."""
        assert self._process is not None
        if self._process.poll() is not None:
            self._errors.seek(0)
            lines = self._errors.read().decode("utf-8", "replace").split("\n")
            reason = next((line for line in reversed(lines) if line.strip()), "it wrote no error")
            raise StoreFailed(f"the sender of the demo ended by itself: {reason.strip()}")

    def kill(self) -> None:
        """kill -9. Returns when the process has ended and every number that it wrote is read."""
        if self._process is not None:
            self._process.kill()
            self.join()

    def join(self) -> None:
        """Waits until the process has ended."""
        assert self._process is not None
        self._process.wait()
        self._reading.join()

    def close(self) -> None:
        self.kill()
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # The last line may be cut off by the kill.
                self.acknowledged.append(int(line))


def kills(stage: Stage) -> None:
    rounds = max(1, min(KILLS_MAX, int(stage.seconds / SECONDS_EACH)))
    acknowledged: set[int] = set()
    stored: set[int] = set()
    for number in range(1, rounds + 1):
        stage.store.close()  # The sender owns the file while it runs.
        first = max(acknowledged | stored, default=0) + 1
        pid, numbers = _one_kill(stage, first, stage.seconds * 0.9 * number / rounds)
        acknowledged.update(numbers)
        stored = stored_numbers(stage.store.open())
        stage.result.add_kill(acknowledged, stored)
        stage.screen.note(_verdict(pid, stage.result))
    stage.rest()


def _one_kill(stage: Stage, first: int, until_s: float) -> tuple[int, list[int]]:
    """Starts a sender and kills it, at `until_s` of the stage or a little before. Returns its numbers."""
    with contextlib.closing(Sender(stage.store.url, first)) as running:
        with undisturbed():  # A Ctrl-C between the start and its return would leave a process that is not known here.
            running.start()
        stage.screen.note(f"process {running.pid} sends to the queue {QUEUE!r}")
        stage.screen.watch(lambda: Text(f"{len(running.acknowledged):,} acknowledged", style="bold green"))
        until_s -= random.uniform(0.0, 0.1)
        while len(running.acknowledged) < SENT_LEAST or stage.passed_s < until_s:
            running.check()
            stage.screen.refresh()
            time.sleep(TICK_S)
        running.kill()
        return running.pid, running.acknowledged


def stored_numbers(bus: SyncMessageBus) -> set[int]:
    sql = "SELECT id FROM messages WHERE channel = ? AND status = 'pending'"
    rows = bus.query_messages(sql, (QUEUE,), rows_max=ROWS_MAX, time_limit=60)
    return {sender.number_of(str(row["id"])) for row in rows}


def _verdict(pid: int, result: DemoResult) -> Text:
    said = Text.assemble(
        (f"kill -9 {pid}", "bold"),
        ": ",
        (result.describe(), "bold red" if result.lost else "bold green"),
    )
    if result.unanswered:
        said.append(f"; {result.unanswered:,} more unanswered")
    return said
