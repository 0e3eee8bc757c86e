"""Following history for many clients at once: events are read and encoded once, and kept for a moment.

    store ── commit ──▶ watch ──▶ one reading at a time ──▶ ring of pages ──▶ every tail, from its own place
                                  (a thread, each 100 ms)    ▲ the oldest is dropped
                                                             └─ a tail that is further back reads history itself

Nothing is read while there is no tail, and nothing is polled: a commit wakes the reading. What came within COALESCE_S
is read together. Tails share the loop with every other request: together they may write BYTES_PER_WINDOW in WINDOW_S,
and only one of those that are behind the ring reads at a time. So a slow tail falls behind and stays correct; it costs
no memory, because its events are in history.
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
"""What is written at once: more would stop the loop for longer than other requests should wait."""

FOUND_MAX: Final = 4
"""Filters whose bytes a page remembers. More would multiply the ring by the number of filters, which clients choose."""

WINDOW_S: Final = 0.02
BYTES_PER_WINDOW: Final = 1024 * 1024
_PIECE_COST_BYTES: Final = 8 * 1024
"""What writing a piece costs besides its bytes, in the time that so many bytes take."""


@dataclass
class EventFeedPage:
    """Events from `after` + 1 to `last`, each with its bytes."""

    after: int
    last: int
    events: list[Event]
    encoded: list[bytes]
    _by_channel: dict[str, list[int]] | None = field(default=None, repr=False)
    _found: dict[object, list[bytes]] = field(default_factory=dict, repr=False)

    def pieces_for(self, wanted: EventFilter, after: int) -> list[bytes]:
        """The bytes of the events that are wanted, after a place, joined to pieces of about PIECE_BYTES.

        Remembered for others that want the same: joining them for each of hundreds would cost more than all else. The
        filters that came first are.
        """
        if after > self.after:
            return joined([self.encoded[at] for at in self._places(wanted) if self.events[at].seq > after])
        found = self._found.get(wanted.key)
        if found is None:
            chosen = self.encoded if wanted.is_all else [self.encoded[at] for at in self._places(wanted)]
            found = joined(chosen)
            if len(self._found) < FOUND_MAX:
                self._found[wanted.key] = found
        return found

    def _places(self, wanted: EventFilter) -> list[int]:
        channels = self._by_channel
        if channels is None:
            channels = self._by_channel = {}
            for at, event in enumerate(self.events):
                channels.setdefault(event.channel, []).append(at)
        if wanted.exact:
            among = channels.get(wanted.exact, [])
        else:
            among = sorted([at for name, places in channels.items() if wanted.means(name) for at in places])
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
    """History of one store, for the tails of one event loop. `encode` makes the bytes that all of them send."""

    def __init__(self, history: History, encode: Callable[[Event], bytes]) -> None:
        self.grown: Final = Wake()
        """Wakes tails: there is a new page, or `failure` is set."""
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
        self._lane: Final = asyncio.Lock()
        self._window: Final = _Window()

    @contextlib.asynccontextmanager
    async def tail(self) -> AsyncIterator[int]:
        """While it is entered there is a reading. Gives the seq of the last event at this moment."""
        last = await asyncio.to_thread(last_seq, self._history)
        self._tails += 1
        try:
            if self._reading is None:
                self._forget()
                self._seq, self.failure = last, None
                self._reading = asyncio.ensure_future(self._read_on())
            yield last
        finally:
            self._tails -= 1
            if not self._tails:
                self._end()

    def _end(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
        self._forget()

    def _forget(self) -> None:
        self._pages.clear()
        self._held_events = self._held_bytes = 0

    def page_after(self, seq: int) -> EventFeedPage | None:
        """The page that goes on from there; None if there is none yet, or `is_behind`."""
        for page in self._pages:
            if page.last > seq:
                return page if page.after <= seq else None
        return None

    def is_behind(self, seq: int) -> bool:
        """Whether events after that place are only in history."""
        first = next((page for page in self._pages if page.last > seq), None)
        return seq < self._seq if first is None else first.after > seq

    async def catch_up(self, seq: int) -> EventFeedPage:
        """A page from history itself, one tail at a time. `after` is larger than `seq` by what history lacks."""
        async with self._lane:
            began_s = asyncio.get_running_loop().time()
            page = await asyncio.to_thread(self._read, seq)
            await asyncio.sleep(asyncio.get_running_loop().time() - began_s)  # Half of the time is for others.
            return page

    async def turn(self, size: int) -> None:
        """Return when a tail may write so many bytes."""
        await self._window.turn(size)

    async def _read_on(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                began_s = loop.time()
                commit = self._commits.coming()  # Before watching: a commit may come at once.
                stop = self._history.watch(self._commits.wake_soon)
                try:
                    while True:
                        page = await asyncio.to_thread(self._read, self._seq)
                        if page.last == self._seq:
                            break
                        self._add(page)
                    await asyncio.wait([commit])
                finally:
                    stop()
                await asyncio.sleep(max(0.0, began_s + COALESCE_S - loop.time()))
        except Exception as error:
            # The store has failed or is closed. Each tail raises it, and the next tail begins again.
            self.failure = error
            self._reading = None
            self.grown.wake()

    def _read(self, seq: int) -> EventFeedPage:
        """In a thread."""
        self.readings += 1
        events, safe = self._history.events_after(seq, PAGE)
        if not events:
            # What history has forgotten is not there, and counts as read.
            return EventFeedPage(max(seq, safe), max(seq, safe), [], [])
        return EventFeedPage(events[0].seq - 1, events[-1].seq, events, [self._encode(event) for event in events])

    def _add(self, page: EventFeedPage) -> None:
        self._seq = page.last
        self._pages.append(page)
        self._count(page, 1)
        while len(self._pages) > 1 and (self._held_events > RING_EVENTS_MAX or self._held_bytes > RING_BYTES_MAX):
            self._count(self._pages.popleft(), -1)
        self.grown.wake()

    def _count(self, page: EventFeedPage, sign: int) -> None:
        self._held_events += sign * len(page.events)
        self._held_bytes += sign * sum([len(each) for each in page.encoded])


class _Window:
    """So many bytes in each window of time, for all who take turns. Who waits is served in order."""

    def __init__(self) -> None:
        self._used = 0
        self._is_open = False  # Whether a timer ends this window.
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    async def turn(self, size: int) -> None:
        cost = size + _PIECE_COST_BYTES
        if not self._is_open:
            self._is_open = True
            asyncio.get_running_loop().call_later(WINDOW_S, self._next)
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
            if not turn.done():
                turn.set_result(None)
                self._used += cost
        self._is_open = bool(self._waiting or self._used)
        if self._is_open:
            asyncio.get_running_loop().call_later(WINDOW_S, self._next)
