"""Events of a server's history: in pages, and with `follow` as server-sent events.

While a command follows, a thread reads the stream into a bounded queue. During a pause the queue fills, the thread
blocks, and backpressure stops the server. It continues at the same event, so none is missed while history has it.
"""

import queue
import threading
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from unibus.bus.management.history.events import EventFilter
from unibus.cli.connection.management import WantedEvents
from unibus.cli.terminal.output import aside
from unibus.client.answers import record_of
from unibus.client.client import Client
from unibus.client.events import EventStream
from unibus.core.lifecycle.events import Event
from unibus.errors import AnswerInvalid

if TYPE_CHECKING:
    from unibus.client.events import ServerEvent

PAGE: Final = 1_000
AHEAD_MAX: Final = 2_000
_TIMES: Final = {"enqueued_at": "enqueued_us", "first_delivered_at": "first_delivered_us", "at": "ts"}


class Missed(msgspec.Struct, frozen=True):
    missed: int = 0


class EventsPage(msgspec.Struct, frozen=True):
    events: list[dict[str, object]]
    next: int
    last: int = 0


class RemoteTail:
    def __init__(self, client: Client, wanted: WantedEvents) -> None:
        EventFilter(*wanted)  # Raises UsageError for a filter that can never match, as a file does.
        self._client = client
        self._query = {"channel": wanted.channel, "kind": wanted.kinds, "where": wanted.where}
        self._seq = 0
        self._since_ns = 0
        self._coming: queue.Queue[ServerEvent | BaseException] | None = None

    def last(self, count: int) -> list[Event]:
        if not count:
            self._seq = self._client.get("events/last", EventsPage, {**self._query, "count": 1}).next
            return []
        if count > PAGE:
            return self._last_of_all(count)
        page = self._client.get("events/last", EventsPage, {**self._query, "count": count})
        self._seq = page.next
        return [event_of(each) for each in page.events]

    def _last_of_all(self, count: int) -> list[Event]:
        """The server returns one page of the newest events; more are found by reading all of them."""
        newest: deque[Event] = deque(maxlen=count)
        is_more = True
        while is_more:
            events, is_more = self.page()
            newest.extend(events)
        return list(newest)

    def begin(self, after: int, since_us: int) -> None:
        self._seq, self._since_ns = after, since_us * 1_000

    def page(self) -> tuple[list[Event], bool]:
        if self._coming is not None:
            return self._take(self._coming), False
        query = {**self._query, "after": self._seq, "limit": PAGE, "since_ns": self._since_ns or None}
        page = self._client.get("events", EventsPage, query)
        self._seq = page.next
        return [event_of(each) for each in page.events], page.next < page.last

    def follow(self) -> None:
        self._coming = queue.Queue(AHEAD_MAX)
        threading.Thread(target=self._listen, args=(self._coming,), name="unibus-tail", daemon=True).start()

    def _listen(self, coming: "queue.Queue[ServerEvent | BaseException]") -> None:
        try:
            for event in EventStream(self._client.twin(), "events/live", self._query, str(self._seq)):
                coming.put(event)
        except BaseException as error:  # The next `page` raises it in the thread of the command.
            coming.put(error)

    def _take(self, coming: "queue.Queue[ServerEvent | BaseException]") -> list[Event]:
        found: list[Event] = []
        while len(found) < PAGE:
            try:
                each = coming.get_nowait()
            except queue.Empty:
                break
            if isinstance(each, BaseException):
                raise each
            if each.kind == "missed":
                aside(f"{record_of(each.data, Missed).missed:,} events were missed: history no longer has them")
                continue
            found.append(event_of(record_of(each.data, dict[str, object])))
        return found


def event_of(record: dict[str, object]) -> Event:
    """The inverse of `record_of`. Raises AnswerInvalid if the record is not an event."""
    try:
        given = {_TIMES.get(name, name): _us(value) if name in _TIMES else value for name, value in record.items()}
        return msgspec.convert(given, Event)
    except (msgspec.ValidationError, ValueError, TypeError, OverflowError) as error:
        what = f"the server sent an event that cannot be read: {error}"
        raise AnswerInvalid(what, "use the same version of unibus on both sides") from None


def _us(value: object) -> int:
    instant = datetime.fromisoformat(str(value))
    whole = int(instant.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + instant.microsecond
