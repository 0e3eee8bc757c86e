"""Events of a server's history: pages, and with `follow` those that come, as server-sent events.

While a command follows, a thread reads the stream into a short queue. A pause lets the queue fill, the thread waits,
and the server stops sending: it goes on from the same place, so that nothing is missed while history has it.
"""

import queue
import threading
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
        EventFilter(*wanted)  # What could never match is refused here, as it is on a file.
        self._client = client
        self._query = {"channel": wanted.channel, "kind": wanted.kinds, "where": wanted.where}
        self._seq = 0
        self._since_ns = 0
        self._coming: queue.Queue[ServerEvent | BaseException] | None = None

    def last(self, count: int) -> list[Event]:
        if not count:
            self._seq = self._client.get("events/last", EventsPage, {**self._query, "count": 1}).next
            return []
        found: list[dict[str, object]] = []
        page = self._client.get("events/last", EventsPage, {**self._query, "count": min(count, PAGE)})
        found = page.events
        self._seq = page.next
        return [event_of(each) for each in found]

    def begin(self, after: int, since_us: int) -> None:
        self._seq, self._since_ns = after, since_us * 1_000

    def page(self) -> tuple[list[Event], bool]:
        if self._coming is not None:
            return self._come(self._coming), False
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
        except BaseException as error:  # Raised by the next page, in the thread of the command.
            coming.put(error)

    def _come(self, coming: "queue.Queue[ServerEvent | BaseException]") -> list[Event]:
        found: list[Event] = []
        while len(found) < PAGE:
            try:
                each = coming.get_nowait()
            except queue.Empty:
                break
            if isinstance(each, BaseException):
                raise each
            if each.kind == "missed":
                aside(f"{record_of(each.data, Missed).missed:,} events were missed: history has forgotten them")
                continue
            found.append(event_of(record_of(each.data, dict[str, object])))
        return found


def event_of(record: dict[str, object]) -> Event:
    """The event that `record_of` made this record of. AnswerInvalid for what is none."""
    try:
        given = {_TIMES.get(name, name): _us(value) if name in _TIMES else value for name, value in record.items()}
        return msgspec.convert(given, Event)
    except (msgspec.ValidationError, ValueError, TypeError, OverflowError) as error:
        raise AnswerInvalid(f"an event of the server cannot be read: {error}", "compare the versions") from None


def _us(value: object) -> int:
    instant = datetime.fromisoformat(str(value))
    whole = int(instant.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + instant.microsecond
