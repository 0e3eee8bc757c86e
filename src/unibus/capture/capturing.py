"""The loop of `unibus capture`: from the history of a store to sealed segments, each event once.

    step: read a page of what has come ──▶ columns in memory ──▶ seal: settle the store, write the segment, show it

Where it stands is the manifest's `last`, and nothing else. What is in memory was not captured yet: a crash loses it,
and the next start reads it again. So the order inside of `seal` is what makes it once.

- `settle` first. A store whose owner does not wait for the disk may lose its last changes with the power, and give
  their numbers to others. What stands in a segment must not be undone, so what was read is synced before it is sealed.
- A group of changes, which is one commit of the owner, is never split: whoever reads a segment sees batches whole.
- A look copies rows out of the file and lets go of it. While a reader is in the file its log cannot be moved, so no
  look takes longer than copying a page.
- Pages are large and looks are few: the work per event is small only where many are worked on at once.

Which store it is: a SQLite store has no name of its own (a bus draws one for its outboxes, in a place that only it
reads). So what tells it is the domain, and the last event that was captured: `Manifest.tail` is a fingerprint of it,
and a store that has another event under that number, or none because it is not that far, is another one. Nothing is
written then. Where the store has forgotten that event already, there is nothing to compare, and history goes on after
a gap.
"""

import gc
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from unibus.capture.bodies import bodies_of
from unibus.capture.columns import EventColumns, Page, by_type
from unibus.capture.compacting import compact
from unibus.capture.redaction import Redaction
from unibus.capture.retention import keep
from unibus.capture.segments import SegmentWriter, fingerprint
from unibus.capture.settings import CURSOR, Policy, Rotation, policy_of, with_policy
from unibus.errors import CaptureDamaged, CaptureMismatch, StoreUnavailable
from unibus.stores.files.disk import Files
from unibus.stores.seam.store_view import PAGE_BYTES, PAGE_CHANGES, HistoryReader

log = logging.getLogger("unibus")

MEMORY_BYTES: Final = 300_000_000
"""What may wait in memory to be sealed, whatever the size of a segment on disk."""

LOOK_S_MAX: Final = 1.0
LOOKS_PER_SEAL: Final = 4
TEND_S: Final = 30.0
"""How often retention and compaction are looked at."""


@dataclass
class CaptureProgress:
    """What a run has done so far."""

    events: int = 0
    segments: int = 0
    missed: int = 0
    last: int = 0
    behind: int = 0


class Buffer:
    """Columns that were read and are not sealed."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.bodies: list[pa.Table] = []
        self.rows = 0
        self.bytes = 0
        self.since_s = 0.0

    def add(self, table: pa.Table, bodies: pa.Table | None) -> int:
        """Gives how many bytes it is in memory."""
        if not self.rows:
            self.since_s = time.monotonic()
        size = int(table.nbytes)
        self.tables.append(table)
        self.rows += table.num_rows
        if bodies is not None and bodies.num_rows:
            self.bodies.append(bodies)
            size += int(bodies.nbytes)
        self.bytes += size
        return size


class Capturing:
    """One capture of one store into one directory. Not for several threads."""

    def __init__(
        self,
        reader: HistoryReader,
        folder: str,
        roll: Rotation | None = None,
        policy: Policy | None = None,
        *,
        cursor: str = CURSOR,
        files: Files | None = None,
    ) -> None:
        self.progress = CaptureProgress()
        self._reader = reader
        self._roll = roll or Rotation()
        self._cursor = cursor
        self._page = min(PAGE_CHANGES, self._roll.rows)
        self._shows = True
        self._compacts = True
        self._is_behind = False
        self._domain = reader.domain
        self._columns = EventColumns(self._domain)
        self._writer = SegmentWriter(folder, self._domain, files=files)
        try:
            self._at = self._writer.last
            self._identity = reader.identity()
            self._check_same()
            self._set_policy(policy)
        except BaseException:
            self._writer.close()
            raise
        self._buffer = Buffer()
        self._packed = 0.2  # How much smaller a segment is than its columns in memory; learned from the last one.
        self._tended_s = time.monotonic() - TEND_S
        self.progress.last = self._at
        self._show()

    def _set_policy(self, policy: Policy | None) -> None:
        """A new one is written down before anything is captured by it."""
        about = self._writer.manifest.about
        changed = None if policy is None else with_policy(about, policy)
        if changed is not None:
            self._writer.set_about(changed)
        self._policy = policy_of(self._writer.manifest.about)
        self._redact = Redaction(self._policy.redact) if self._policy.redact else None

    # Which store it is

    def _check_same(self) -> None:
        last = self._reader.bounds()[1]
        if last < self._at:
            raise self._another(f"it has come to {last}, and {self._at} was captured")
        tail = self._writer.manifest.tail
        found = self._reader.groups_after(self._at - 1, 1)[:1] if tail else []
        if found and found[0][0] == self._at:  # Else the store has forgotten it, perhaps at this very moment.
            row = self._columns.table(by_type([(self._at, found[0][1][:1])]), self._reader.names_of)
            if fingerprint(row, 0) != tail:
                raise self._another(f"event {self._at} is another one")

    def _another(self, what: str) -> CaptureMismatch:
        return CaptureMismatch(
            f"{self._writer.folder} holds the history of another store: {what}",
            "was the store restored or replaced? capture it into a new directory, and give it another ?domain=",
        )

    # Reading

    def step(self) -> int:
        """Take a page of what has come; gives how many events that were. Seals what is full or due."""
        if self._reader.identity() != self._identity:
            self._begin_anew()
        self._is_behind = False
        page = self._reader.groups_after(self._at, self._page)
        taken = self._take(page) if page else 0
        if not taken and self._reader.bounds()[1] < self._at:
            raise self._another("its history went back")
        if self._is_full() or (not self._is_behind and self._is_due()):
            self.seal()
        self._tend()
        return taken

    def _begin_anew(self) -> None:
        """Another file has the name. What was read of the old one and not sealed is read again, if it is the same."""
        self._buffer = Buffer()
        self._at = self._writer.last
        self._check_same()
        self._identity = self._reader.identity()

    def _take(self, page: Page) -> int:
        first = page[0][0]
        if first > self._at + 1:
            self._note_gap(self._at + 1, first - 1)
        sorted_out = by_type(page)
        bodies = None
        if self._policy.bodies:
            bodies = bodies_of(sorted_out, self._domain, self._reader.names_of, self._redact)
        table = self._columns.table(sorted_out, self._reader.names_of)
        size = self._buffer.add(table, bodies)
        self._is_behind = table.num_rows >= self._page or size >= PAGE_BYTES // 2  # Such a page is a full one.
        self._at = page[-1][0] + len(page[-1][1]) - 1
        self.progress.events += table.num_rows
        return int(table.num_rows)

    def _note_gap(self, first: int, last: int) -> None:
        """The store forgot what nobody had read. What is in memory comes before that."""
        self.seal()
        self._writer.gap(first, last)
        self._at = last
        self.progress.missed += last - first + 1
        log.warning("history %d to %d was forgotten by the store before it was captured", first, last)

    def _is_due(self) -> bool:
        """Whether what came first has waited long enough. Not asked while there is more at once: one that is behind
        has nothing fresh to show, and catches up in large segments."""
        return self._buffer.rows > 0 and time.monotonic() - self._buffer.since_s >= self._roll.every_s

    def _is_full(self) -> bool:
        buffer = self._buffer
        size = buffer.bytes * self._packed
        return buffer.rows >= self._roll.rows or size >= self._roll.bytes or buffer.bytes >= MEMORY_BYTES

    # Sealing

    def seal(self) -> None:
        buffer = self._buffer
        if not buffer.rows:
            return
        self._reader.settle()
        bodies = pa.concat_tables(buffer.bodies) if buffer.bodies else None
        segment = self._writer.write(pa.concat_tables(buffer.tables), bodies)
        size = segment.bytes + (segment.bodies.bytes if segment.bodies else 0)
        self._packed = max(0.01, min(1.0, size / max(1, buffer.bytes)))
        self._buffer = Buffer()
        self.progress.segments += 1
        self.progress.last = segment.last
        self._show()

    def _show(self) -> None:
        if self._shows:
            try:
                self._reader.show_cursor(self._cursor, self._writer.last)
            except OSError as error:
                self._shows = False
                log.warning("where the capture stands cannot be shown beside the store: %s", error)

    def _tend(self) -> None:
        if time.monotonic() - self._tended_s >= TEND_S:
            self._tended_s = time.monotonic()
            keep(self._writer, self._policy)
            self._writer.sweep()
            if self._compacts:
                self._compact()
            self._writer.shorten()

    def _compact(self) -> None:
        """Damage of the past is no reason to stop: it is told, and those who read it will be told too. Nor is a file
        that cannot be read now."""
        try:
            compact(self._writer, self._roll)
        except (CaptureDamaged, StoreUnavailable) as error:
            self._compacts = False
            log.warning("segments are not put together any more: %s", error)

    # Running

    def run(self, stop: threading.Event, shown: Callable[[CaptureProgress], None] | None = None) -> None:
        """Until `stop` is set. What was read is sealed before it returns."""
        pause_s = min(LOOK_S_MAX, self._roll.every_s / LOOKS_PER_SEAL)
        while not stop.is_set():
            self.step()
            if shown is not None:
                self.progress.behind = self._reader.bounds()[1] - self._at
                shown(self.progress)
            if not self._is_behind:
                stop.wait(pause_s)
        self.seal()

    def finish(
        self, stop: threading.Event | None = None, shown: Callable[[CaptureProgress], None] | None = None
    ) -> None:
        """Take all that is there at this moment, and seal it."""
        last = self._reader.bounds()[1]
        while self._at < last and not (stop is not None and stop.is_set()) and self.step():
            if shown is not None:
                self.progress.behind = max(0, last - self._at)
                shown(self.progress)
        self.seal()

    def close(self) -> None:
        self._writer.close()


def limit_resources() -> None:
    """For a process that does nothing but capture. Arrow would take every processor there is, and the bus needs them;
    and there is no need to look for cycles among millions of values that go by themselves."""
    pa.set_cpu_count(1)
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
