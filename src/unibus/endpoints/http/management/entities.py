"""Entities over HTTP: pages, and live updates. A caller sees the entities on which it has the right Listen."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Final

import msgspec

from unibus.bus.management.history.event_feed import joined
from unibus.bus.management.settings import entities as readings
from unibus.bus.management.settings.entities import DEAD_LETTERS, KINDS, EntityListing, EntityWatch, page_of
from unibus.core.access.rights import Right
from unibus.endpoints.http.live import KEEP_ALIVE, KEEP_ALIVE_S, RETRY, live_response
from unibus.endpoints.http.management.query import flag, whole
from unibus.endpoints.http.request import Request, Response, json_response
from unibus.endpoints.http.service import Service
from unibus.errors import UsageError

TOP_MAX: Final = 1_000
TOP_DEFAULT: Final = 100
EVERY_S_MAX: Final = 60
ALL_KINDS: Final = (*KINDS, DEAD_LETTERS)


async def listed(service: Service, request: Request) -> Response:
    """A page of entities by name. Dead-letter queues are only listed if `kind` names them: their owners count their
    messages."""
    kinds = request.query_values("kind") or KINDS
    for kind in kinds:
        if kind not in ALL_KINDS:
            raise UsageError(f"kind must be one of {', '.join(ALL_KINDS)}, got {kind!r:.40}")
    is_visible = service.authorization.viewer(request, Right.LISTEN)
    top, settings = whole(request, "top", TOP_DEFAULT, 1, TOP_MAX), flag(request, "settings")
    listing = EntityListing(service.broker, dict.fromkeys(kinds), request.query.get("prefix", ""))
    after = request.query.get("after", "")
    return json_response(await asyncio.to_thread(page_of, listing, after, top, settings, is_visible))


async def live(service: Service, request: Request) -> Response:
    every_s = whole(request, "every", 1, 1, EVERY_S_MAX)
    service.authorization.viewer(request, Right.LISTEN)
    return live_response(_rows(service, request, every_s))


async def _rows(service: Service, request: Request, every_s: int) -> AsyncGenerator[bytes, None]:
    """A snapshot, then changes. The caller's rights are read for each event: rules may change meanwhile."""
    watch = service.shared(EntityWatch)
    yield RETRY
    async with watch.watching():
        version = -1
        while True:
            changes = watch.changes_since(version) if version >= 0 else None
            sees = service.authorization.viewer(request, Right.LISTEN)
            if changes is None:
                rows = [row for name, row in watch.rows.items() if sees(name)]
                for piece in joined(_written("snapshot", rows, [])):
                    yield piece
            else:
                rows = [row for name, row in changes.rows.items() if sees(name)]
                removed = [name for name in changes.removed if sees(name)]
                if rows or removed:
                    for piece in joined(_written("changes", rows, removed)):
                        yield piece
            version = watch.version
            # Counted in time, not in readings: those of a very large namespace take longer than a second.
            due_s = time.monotonic() + (every_s - 0.5) * readings.EVERY_S
            keep_alive_s = time.monotonic() + KEEP_ALIVE_S
            while watch.version == version or time.monotonic() < due_s:
                await watch.changed.wait(KEEP_ALIVE_S)
                if watch.failure is not None:
                    raise watch.failure
                if time.monotonic() >= keep_alive_s:
                    break
            if not rows:
                yield KEEP_ALIVE


def _written(name: str, rows: Iterable[bytes], removed: list[str]) -> Iterator[bytes]:
    """One event in parts: a snapshot of thousands of rows is never one text in memory."""
    yield f'event: {name}\ndata: {{"at_ns":{time.time_ns()},"rows":['.encode()
    is_first = True
    for row in rows:
        yield row if is_first else b"," + row
        is_first = False
    yield b'],"removed":' + msgspec.json.encode(removed) + b"}\n\n"
