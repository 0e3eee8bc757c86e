"""Events of history over HTTP: pages, the newest ones, and new ones as server-sent events.

The id of a live event is its seq. A client that reconnects sends it as Last-Event-ID, and resumes after it. An event
`missed` reports how many events the store has pruned meanwhile.
"""

import time
from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

import msgspec

from unibus.bus.api.broker import Broker
from unibus.bus.management.history.event_feed import EventFeed, EventFeedPage
from unibus.bus.management.history.event_search import Search
from unibus.bus.management.history.events import ALL, EventFilter, record_of
from unibus.core.lifecycle.events import Event
from unibus.endpoints.http.live import KEEP_ALIVE_S, RETRY, event, live_response
from unibus.endpoints.http.management.query import WHOLE_MAX, in_thread, whole
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import EntityNotFound, UsageError

EVENTS_MAX: Final = 1_000
EVENTS_DEFAULT: Final = 100
LAST_DEFAULT: Final = 10


async def page(service: Service, request: Request) -> Response:
    after, limit = whole(request, "after", 0), whole(request, "limit", EVENTS_DEFAULT, 1, EVENTS_MAX)
    search = _search(service, request)
    work = partial(search.page, service.broker.store, after, limit)
    found, reached, last = await in_thread(request, work, search.stop)
    return json_response({"events": [record_of(each) for each in found], "next": reached, "last": last})


async def last(service: Service, request: Request) -> Response:
    count = whole(request, "count", LAST_DEFAULT, 1, EVENTS_MAX)
    search = _search(service, request)
    found, reached, is_all = await in_thread(request, partial(search.last, service.broker.store, count), search.stop)
    return json_response({"events": [record_of(each) for each in found], "next": reached, "complete": is_all})


def _search(service: Service, request: Request) -> Search:
    return Search(_filter(service.broker, request), whole(request, "since_ns", 0))


def _filter(broker: Broker, request: Request) -> EventFilter:
    def is_known(name: str) -> bool:
        try:
            return broker.find(name).name == name
        except EntityNotFound:
            return False

    channel = request.query.get("channel", ALL)
    return EventFilter(channel or ALL, request.query_values("kind"), request.query_values("where"), is_known)


# Live


def _encoded(one: Event) -> bytes:
    return event(msgspec.json.encode(record_of(one)), at=one.seq)


def _feed(broker: Broker) -> EventFeed:
    return EventFeed(broker.store.history, _encoded)


async def live(service: Service, request: Request) -> Response:
    """New events, or all events after a position."""
    wanted = _filter(service.broker, request)
    given = request.headers.get("last-event-id")
    if given is not None and not (given.isascii() and given.isdigit() and len(given) <= 19 and int(given) <= WHOLE_MAX):
        raise UsageError(
            f"Last-Event-ID must be a whole number of 0 or more, got {given!r:.40}", "send the id of an earlier event"
        )
    after = int(given) if given is not None else whole(request, "after", -1)
    return live_response(_tail(service.shared(_feed), wanted, after))


async def _tail(feed: EventFeed, wanted: EventFilter, after: int) -> AsyncGenerator[bytes, None]:
    """The pieces of a live answer. `after` -1: new events only."""
    async with feed.tail() as newest:
        yield RETRY
        seq = newest if after < 0 else after
        if seq > newest:  # Another store, or an older copy of it: the position does not exist.
            yield _missed(0, newest)
            seq = newest
        wrote_s = time.monotonic()
        while feed.failure is None:
            found: EventFeedPage | None
            if feed.is_behind(seq):
                found = await feed.catch_up(seq)
                if found.after > seq:
                    yield _missed(found.after - seq, found.after)
            else:
                found = feed.page_after(seq)
            if found is not None:
                for piece in found.pieces_for(wanted, seq):
                    await feed.turn(len(piece))
                    wrote_s = time.monotonic()
                    yield piece
                seq = found.last
            elif await feed.grown.wait(KEEP_ALIVE_S):
                continue
            if time.monotonic() - wrote_s >= KEEP_ALIVE_S:
                # A keep-alive with the position: a client whose filter rarely matches can resume from here.
                wrote_s = time.monotonic()
                yield b": \nid: %d\n\n" % seq
        raise feed.failure


def _missed(count: int, at: int) -> bytes:
    return event(msgspec.json.encode({"missed": count, "after": at}), "missed", at)
