"""The loop of `unibus capture`: from the history of a store to sealed segments, each event once.

    step: read a page of new events ──▶ columns in memory ──▶ seal: sync the store, write the segment, show the cursor

The position of a capture is the manifest's `last`, and nothing else. What is in memory is not captured yet: a crash
loses it, and the next start reads it from the store again. The order inside `seal` therefore makes it exactly-once.

- `settle` comes first. A store whose owner does not wait for the disk may lose its last changes in a power failure and
  give their numbers to other changes. A sealed event must not be undone, so the store is synced before it is sealed.
- A group of changes, which is one commit of the owner, is never split: a reader of a segment sees whole commits.
- A read copies rows out of the store and ends its transaction. SQLite cannot reset its write-ahead log while a reader
  is active, so no read takes longer than copying one page.
- Pages are large and reads are few: the cost per event is small only where many events are processed at once.

How a store is recognised: a SQLite store has no identifier that a reader can see. So a capture compares the domain and
the last captured event: `Manifest.tail` is a fingerprint of that event, and a store with a different event under that
number, or with a lower last number, is a different store. Nothing is written then. If the store has already pruned that
event there is nothing to compare, and the capture continues after a gap.
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
"""Columns that may wait in memory to be sealed, whatever the size of a segment on disk."""

LOOK_S_MAX: Final = 1.0
LOOKS_PER_SEAL: Final = 4
TEND_S: Final = 30.0
"""How often retention and compaction run."""


@dataclass
class CaptureProgress:
    """What a run has done so far."""

    events: int = 0
    segments: int = 0
    missed: int = 0
    last: int = 0
    behind: int = 0


class Buffer:
    """Columns that were read and are not sealed yet."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.bodies: list[pa.Table] = []
        self.rows = 0
        self.bytes = 0
        self.since_s = 0.0

    def add(self, table: pa.Table, bodies: pa.Table | None) -> int:
        """Return the size of the added columns in memory, in bytes."""
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
    """One capture of one store into one directory. Not thread-safe."""

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
        self._publishes_cursor = True
        self._compacts = True
        self._is_behind = False
        self._domain = reader.domain
        self._columns = EventColumns(self._domain)
        self._writer = SegmentWriter(folder, self._domain, files=files)
        try:
            # The position is that of the manifest, not of the cursor beside the store: only the manifest is written
            # atomically with the events.
            self._at = self._writer.last
            self._identity = reader.identity()
            # Before anything is written: events of another store must not be appended to this history.
            self._check_same()
            self._set_policy(policy)
        except BaseException:
            self._writer.close()
            raise
        self._buffer = Buffer()
        self._compression = 0.2  # Size of a segment divided by its columns in memory; measured at the last one.
        self._maintained_s = time.monotonic() - TEND_S
        self.progress.last = self._at
        self._publish_cursor()

    def _set_policy(self, policy: Policy | None) -> None:
        """A changed policy is stored before any event is captured under it."""
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
            raise self._mismatch(f"its last event is {last}, and event {self._at} is captured already")
        tail = self._writer.manifest.tail
        found = self._reader.groups_after(self._at - 1, 1)[:1] if tail else []
        if found and found[0][0] == self._at:  # Else the store has pruned it, perhaps since `bounds` was read.
            row = self._columns.table(by_type([(self._at, found[0][1][:1])]), self._reader.names_of)
            if fingerprint(row, 0) != tail:
                raise self._mismatch(f"event {self._at} differs from the captured one")

    def _mismatch(self, what: str) -> CaptureMismatch:
        return CaptureMismatch(
            f"{self._writer.folder} holds the history of another store: {what}",
            "if the store was restored or replaced, capture it into a new directory, and give it another ?domain=",
        )

    # Reading

    def step(self) -> int:
        """Read a page of new events and return their number. Seals the buffer when it is full or old enough."""
        # A store that is restored from a backup while the capture runs is a new file under the old name.
        if self._reader.identity() != self._identity:
            self._start_over()
        self._is_behind = False
        page = self._reader.groups_after(self._at, self._page)
        taken = self._take(page) if page else 0
        # Nothing new is normal. A lower end is not: the file was overwritten in place, and would count up to our
        # position with other events.
        if not taken and self._reader.bounds()[1] < self._at:
            raise self._mismatch("its last event has a lower number than before")
        # One seal per step at most, so memory is bounded by the limits and one page.
        if self._is_full() or (not self._is_behind and self._is_due()):
            self.seal()
        self._maintain()
        return taken

    def _start_over(self) -> None:
        """The file of the store was replaced. Discard what is not sealed; it is read again if the store is the same."""
        self._buffer = Buffer()
        self._at = self._writer.last
        self._check_same()
        self._identity = self._reader.identity()

    def _take(self, page: Page) -> int:
        first = page[0][0]
        if first > self._at + 1:
            self._record_gap(self._at + 1, first - 1)
        sorted_out = by_type(page)
        bodies = None
        if self._policy.bodies:
            bodies = bodies_of(sorted_out, self._domain, self._reader.names_of, self._redact)
        table = self._columns.table(sorted_out, self._reader.names_of)
        size = self._buffer.add(table, bodies)
        # A full page, by rows or by bytes, means that more events wait.
        self._is_behind = table.num_rows >= self._page or size >= PAGE_BYTES // 2
        # Only in memory: the durable position moves with the segment. An error before this line leaves the page unread.
        self._at = page[-1][0] + len(page[-1][1]) - 1
        self.progress.events += table.num_rows
        return int(table.num_rows)

    def _record_gap(self, first: int, last: int) -> None:
        """The store pruned events that were not read yet. The buffer holds events before the gap: seal it first."""
        self.seal()
        # Contiguous with the segment that was just sealed: the manifest accepts no other order.
        self._writer.gap(first, last)
        self._at = last
        self.progress.missed += last - first + 1
        log.warning("the store pruned events %d to %d before they were captured: they are a gap", first, last)

    def _is_due(self) -> bool:
        """Whether the oldest event in the buffer has waited for `every_s`. Not called while the capture is behind: it
        then catches up in large segments, because small ones would make nothing visible sooner."""
        return self._buffer.rows > 0 and time.monotonic() - self._buffer.since_s >= self._roll.every_s

    def _is_full(self) -> bool:
        buffer = self._buffer
        size = buffer.bytes * self._compression
        return buffer.rows >= self._roll.rows or size >= self._roll.bytes or buffer.bytes >= MEMORY_BYTES

    # Sealing

    def seal(self) -> None:
        """Write the buffer as one segment. A crash before the manifest names it only costs reading it again."""
        buffer = self._buffer
        if not buffer.rows:
            return
        self._reader.settle()  # First: see the module docstring.
        # Without copying: the tables become chunks of one.
        bodies = pa.concat_tables(buffer.bodies) if buffer.bodies else None
        segment = self._writer.write(pa.concat_tables(buffer.tables), bodies)
        size = segment.bytes + (segment.bodies.bytes if segment.bodies else 0)
        self._compression = max(0.01, min(1.0, size / max(1, buffer.bytes)))
        # Only after the manifest has the segment. An error above ends the capture, and the next start reads these
        # events again.
        self._buffer = Buffer()
        self.progress.segments += 1
        self.progress.last = segment.last
        self._publish_cursor()

    def _publish_cursor(self) -> None:
        """Write the position beside the store, where its owner reads it. The capture works without it."""
        if self._publishes_cursor:
            try:
                self._reader.show_cursor(self._cursor, self._writer.last)
            except OSError as error:
                # The store may be on a read-only disk. Its owner then does not see how far the capture is, which
                # affects nothing.
                self._publishes_cursor = False
                log.warning(
                    "cannot write the position of the capture beside the store: %s; it is not tried again", error
                )

    def _maintain(self) -> None:
        if time.monotonic() - self._maintained_s >= TEND_S:
            self._maintained_s = time.monotonic()
            # Retention first: what it removes need not be compacted. The sweep before the compaction frees its space.
            keep(self._writer, self._policy)
            self._writer.sweep()
            if self._compacts:
                self._compact()
            self._writer.shorten()

    def _compact(self) -> None:
        """A damaged or unreadable old segment must not stop the capture of new events: log it once, and stop
        compacting. Readers of that segment get the error too."""
        try:
            compact(self._writer, self._roll)
        except (CaptureDamaged, StoreUnavailable) as error:
            self._compacts = False
            log.warning("compaction is switched off until the capture is started again: %s", error)

    # Running

    def run(self, stop: threading.Event, shown: Callable[[CaptureProgress], None] | None = None) -> None:
        """Capture until `stop` is set. Everything that was read is sealed before this returns."""
        pause_s = min(LOOK_S_MAX, self._roll.every_s / LOOKS_PER_SEAL)
        while not stop.is_set():
            self.step()
            if shown is not None:
                self.progress.behind = self._reader.bounds()[1] - self._at
                shown(self.progress)
            # While it is behind it reads page after page: the pause is for a capture that has caught up.
            if not self._is_behind:
                stop.wait(pause_s)
        self.seal()

    def finish(
        self, stop: threading.Event | None = None, shown: Callable[[CaptureProgress], None] | None = None
    ) -> None:
        """Capture every event that exists at the time of the call, and seal it."""
        last = self._reader.bounds()[1]
        # Up to the end at the time of the call: a busy store must not keep it running. `step` returns 0 if the rest was
        # pruned.
        while self._at < last and not (stop is not None and stop.is_set()) and self.step():
            if shown is not None:
                self.progress.behind = max(0, last - self._at)
                shown(self.progress)
        self.seal()

    def close(self) -> None:
        self._writer.close()


def limit_resources() -> None:
    """For a process that does nothing but capture. Arrow would use every processor, and the bus needs them. The garbage
    collector would scan millions of values that reference counting frees."""
    pa.set_cpu_count(1)
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
