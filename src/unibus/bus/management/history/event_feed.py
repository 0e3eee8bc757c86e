"""Follows history for many clients at once: events are read and encoded once, and kept in a ring buffer.

    store ── commit ──▶ watch ──▶ one reading at a time ──▶ ring of pages ──▶ every tail, from its own seq
                                  (a thread, each 100 ms)    ▲ the oldest page is evicted
                                                             └─ a tail that is further behind reads history itself

Without tails nothing is read, and nothing is polled: a commit wakes the reader. Events within COALESCE_S are read
together. Tails share the loop with all other requests: together they may write BYTES_PER_WINDOW in WINDOW_S, and of
those behind the ring only one reads at a time. So a slow tail falls behind and stays correct; it costs no memory,
because its events are in history.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from unibus.bus.management.history.event_search import PAGE, last_seq
from unibus.bus.management.history.events import EventFilter
from unibus.bus.management.wake import Wake
from unibus.core.lifecycle.events import Event
from unibus.stores.seam.history import History

COALESCE_S: Final = 0.1
RING_EVENTS_MAX: Final = 20_000
RING_BYTES_MAX: Final = 16 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024
"""The size of one write: a larger one would block the loop for too long."""

FOUND_MAX: Final = 4
"""Filters whose result a page caches. More would multiply the memory of the ring by the number of filters, which
clients choose."""

WINDOW_S: Final = 0.02
BYTES_PER_WINDOW: Final = 1024 * 1024
_PIECE_COST_BYTES: Final = 8 * 1024
"""The fixed cost of writing a piece, expressed in bytes."""


@dataclass
class EventFeedPage:
    """The events from `after` + 1 to `last`, each with its encoded bytes."""

    after: int
    last: int
    events: list[Event]
    encoded: list[bytes]
    _by_channel: dict[str, list[int]] | None = field(default=None, repr=False)
    _found: dict[object, list[bytes]] = field(default_factory=dict, repr=False)

    def pieces_for(self, wanted: EventFilter, after: int) -> list[bytes]:
        """The bytes of the matching events after a seq, joined to pieces of about PIECE_BYTES.

        The result is cached for the first FOUND_MAX filters: joining it again for each of hundreds of tails with the
        same filter would dominate the cost.
        """
        # A tail that begins in the middle of the page: its result is used once, so it is not cached.
        if after > self.after:
            return joined([self.encoded[at] for at in self._matching(wanted) if self.events[at].seq > after])
        found = self._found.get(wanted.key)
        if found is None:
            chosen = self.encoded if wanted.is_all else [self.encoded[at] for at in self._matching(wanted)]
            found = joined(chosen)
            if len(self._found) < FOUND_MAX:
                self._found[wanted.key] = found
        return found

    def _matching(self, wanted: EventFilter) -> list[int]:
        """The indexes of the matching events. The index by channel is built once per page, on first use."""
        channels = self._by_channel
        if channels is None:
            channels = self._by_channel = {}
            for at, event in enumerate(self.events):
                channels.setdefault(event.channel, []).append(at)
        if wanted.exact:
            among = channels.get(wanted.exact, [])
        else:
            # By channel first: a pattern is matched once for each channel and not for each event. Sorted back into the
            # order of seqs.
            among = sorted([at for name, indexes in channels.items() if wanted.means(name) for at in indexes])
        return [at for at in among if wanted.accepts(self.events[at])]


def joined(parts: Iterable[bytes]) -> list[bytes]:
    """The same bytes in pieces of about PIECE_BYTES."""
    pieces: list[bytes] = []
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            pieces.append(b"".join(held))
            held, size = [], 0
    return [*pieces, b"".join(held)] if held else pieces


class EventFeed:
    """The history of one store, for the tails of one event loop. `encode` gives the bytes that all tails send."""

    def __init__(self, history: History, encode: Callable[[Event], bytes]) -> None:
        self.grown: Final = Wake()
        """Wakes the tails after a new page, and when `failure` is set."""
        self.failure: BaseException | None = None
        self.readings = 0
        self._history: Final = history
        self._encode: Final = encode
        self._seq = 0
        self._pages: deque[EventFeedPage] = deque()
        self._held_events = self._held_bytes = 0
        self._tails = 0
        self._reading: asyncio.Task[None] | None = None
        self._commits: Final = Wake()
        self._catching_up: Final = asyncio.Lock()
        self._window: Final = _Window()

    @contextlib.asynccontextmanager
    async def tail(self) -> AsyncIterator[int]:
        """Inside of this context history is read. Gives the seq of the last event at entry."""
        # Before the count: after it there is no await until the reader is started, so two first tails start one reader.
        last = await asyncio.to_thread(last_seq, self._history)
        self._tails += 1
        try:
            if self._reading is None:
                self._clear()
                self._seq, self.failure = last, None
                self._reading = asyncio.ensure_future(self._read_repeatedly())
            yield last
        finally:
            self._tails -= 1
            # No polling without tails: the reader ends, and the ring is freed.
            if not self._tails:
                self._end()

    def _end(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
        self._clear()

    def _clear(self) -> None:
        self._pages.clear()
        self._held_events = self._held_bytes = 0

    def page_after(self, seq: int) -> EventFeedPage | None:
        """The page with the next event after a seq; None if there is none yet, or if `is_behind`."""
        for page in self._pages:
            if page.last > seq:
                # A page that begins later: events in between have left the ring.
                return page if page.after <= seq else None
        return None

    def is_behind(self, seq: int) -> bool:
        """Whether events after the seq have left the ring and are only in history."""
        first = next((page for page in self._pages if page.last > seq), None)
        return seq < self._seq if first is None else first.after > seq

    async def catch_up(self, seq: int) -> EventFeedPage:
        """A page from history itself, one tail at a time. If history was pruned, its `after` is larger than `seq`."""
        # One at a time: a hundred tails that are behind would fill the threads of the loop.
        async with self._catching_up:
            began_s = asyncio.get_running_loop().time()
            page = await asyncio.to_thread(self._read, seq)
            await asyncio.sleep(asyncio.get_running_loop().time() - began_s)  # Leaves half of the time to others.
            return page

    async def turn(self, size: int) -> None:
        """Wait until a tail may write `size` bytes."""
        await self._window.turn(size)

    async def _read_repeatedly(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                began_s = loop.time()
                commit = self._commits.coming()  # Before the watch: a commit may follow immediately.
                stop = self._history.watch(self._commits.wake_soon)
                try:
                    while True:
                        # Only this task advances `_seq`, so no lock is needed; the thread only reads.
                        page = await asyncio.to_thread(self._read, self._seq)
                        if page.last == self._seq:
                            break
                        self._add(page)
                    await asyncio.wait([commit])
                finally:
                    stop()
                await asyncio.sleep(max(0.0, began_s + COALESCE_S - loop.time()))
        except Exception as error:
            # The store has failed or is closed. Each tail raises the error, and the next tail starts a new reader.
            self.failure = error
            self._reading = None
            self.grown.wake()

    def _read(self, seq: int) -> EventFeedPage:
        """Read and encode one page; called in a thread."""
        self.readings += 1
        events, safe = self._history.events_after(seq, PAGE)
        if not events:
            # Pruned events cannot be read, and count as read.
            return EventFeedPage(max(seq, safe), max(seq, safe), [], [])
        return EventFeedPage(events[0].seq - 1, events[-1].seq, events, [self._encode(event) for event in events])

    def _add(self, page: EventFeedPage) -> None:
        self._seq = page.last
        self._pages.append(page)
        self._count(page, 1)
        # The newest page stays, whatever its size: without it every tail would be behind.
        while len(self._pages) > 1 and (self._held_events > RING_EVENTS_MAX or self._held_bytes > RING_BYTES_MAX):
            self._count(self._pages.popleft(), -1)
        self.grown.wake()

    def _count(self, page: EventFeedPage, sign: int) -> None:
        self._held_events += sign * len(page.events)
        self._held_bytes += sign * sum([len(each) for each in page.encoded])


class _Window:
    """A rate limiter: BYTES_PER_WINDOW in each window of time, for all tails. Waiting tails are served in order."""

    def __init__(self) -> None:
        self._used = 0
        self._is_open = False  # Whether a timer is set that ends this window.
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    async def turn(self, size: int) -> None:
        cost = size + _PIECE_COST_BYTES
        if not self._is_open:
            self._is_open = True
            asyncio.get_running_loop().call_later(WINDOW_S, self._next)
        # Not before others that wait: a tail with small pieces would otherwise overtake them for ever.
        if self._used < BYTES_PER_WINDOW and not self._waiting:
            self._used += cost
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, cost))
        await turn

    def _next(self) -> None:
        self._used = 0
        while self._waiting and self._used < BYTES_PER_WINDOW:
            turn, cost = self._waiting.popleft()
            # A cancelled tail costs nothing of the window.
            if not turn.done():
                turn.set_result(None)
                self._used += cost
        # A window without any use sets no further timer: an idle server has none.
        self._is_open = bool(self._waiting or self._used)
        if self._is_open:
            asyncio.get_running_loop().call_later(WINDOW_S, self._next)
