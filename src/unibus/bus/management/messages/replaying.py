"""Replays the messages of an entity from history, page by page: to read them, or to send them again to an entity.

Pages are in the order of sequences: `after` is the last one that the caller has. To find the messages in history the
whole log is scanned, so an index is cached between the pages of a client (stores/seam/replay_index.py): at most
KEPT_MAX, each for KEPT_S after its last use. Without the index a page is only slower.

A message that is sent again keeps its id and dedup key, so that an entity with duplicate detection drops it if it is
known. One call sends one atomic batch: a client that was killed continues after the last sequence of its last response.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from unibus.bus.api.broker import Broker
from unibus.bus.management.messages.documents import Document, Int64, document_of
from unibus.bus.management.messages.peeking import PAGE_MAX
from unibus.bus.management.threads import begin_in_thread
from unibus.core.codec.codec import decode
from unibus.core.envelope.message import Message
from unibus.stores.seam.replay_index import ReplayIndex

KEPT_MAX: Final = 2
KEPT_S: Final = 60.0
"""An index of a million messages takes about 150 MB."""

Name = Annotated[str, Meta(min_length=1, max_length=1_000)]


class ReplayedMessage(msgspec.Struct, frozen=True):
    sequence: int
    document: Document


class ReplayedPage(msgspec.Struct, frozen=True):
    """Messages by sequence. `next` is the `after` of the next page, null at the end."""

    messages: list[ReplayedMessage]
    next: int | None


class ReplayCount(msgspec.Struct, frozen=True):
    count: int


class ReplaySendRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Send the messages that `from` stored after a sequence and since an instant to `to`: one atomic batch."""

    source: Name = msgspec.field(name="from")
    to: Name
    after: Int64 = 0
    since_ns: Int64 = 0
    count: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX


class ReplaySent(msgspec.Struct, frozen=True):
    """`last_sequence` is the `after` of the next call. `done`: history has no message after it now."""

    sent: int
    duplicates: int
    last_sequence: int
    done: bool


@dataclass
class _Kept:
    index: ReplayIndex
    used_s: float


class Replays:
    """The replays of one server, with their cached indexes. `clock` gives seconds."""

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker: Final = broker
        self._clock = clock
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._is_armed = False

    def __len__(self) -> int:
        return len(self._kept)

    async def page(self, entity: str, after: int, since_ns: int, top: int) -> ReplayedPage:
        index = self._index(entity, since_ns)
        bytes_max = self._broker.answer_bytes_max
        return await begin_in_thread("unibus-replay", lambda: _page(index, after, top, bytes_max))

    async def count(self, entity: str, after: int, since_ns: int) -> ReplayCount:
        index = self._index(entity, since_ns)
        return ReplayCount(await begin_in_thread("unibus-replay", lambda: index.count(after)))

    async def send(self, request: ReplaySendRequest) -> ReplaySent:
        """EntityNotFound if one of the two entities does not exist, before anything is read."""
        # Both entities are looked up before the thread starts: an error costs no scan of the log.
        target = self._broker.find(request.to).name
        index = self._index(request.source, request.since_ns)
        bytes_max = self._broker.answer_bytes_max
        messages, last, is_end = await begin_in_thread(
            "unibus-replay", lambda: _again(index, request.after, request.count, bytes_max, target)
        )
        # Through the broker: duplicate detection, rate limits and listeners apply as for any send.
        sent = await self._broker.send_many(target, messages)
        return ReplaySent(len(sent), sum(each.duplicate for each in sent), last, is_end)

    def _index(self, entity: str, since_ns: int) -> ReplayIndex:
        """The cached index, unless the entity was deleted and created again (another number)."""
        # Made each time, and cheap: it reads nothing before its first page. Its number shows whether the cached one is
        # of the same entity.
        fresh = self._broker.store.history.replay_index(entity, 0, since_ns)
        key = (fresh.number, since_ns)
        kept = self._kept.pop(key, None) or _Kept(fresh, 0.0)
        kept.used_s = self._clock()
        self._kept[key] = kept  # Inserted again at the end: the dict is in the order of last use.
        while len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._arm()
        return kept.index

    def _arm(self) -> None:
        if not self._is_armed:
            # One timer at a time, whatever the number of requests; `expire` sets the next one while indexes are kept.
            self._is_armed = True
            asyncio.get_running_loop().call_later(KEPT_S, self.expire)

    def expire(self) -> None:
        """Remove the indexes that were not used for KEPT_S."""
        self._is_armed = False
        oldest_s = self._clock() - KEPT_S
        self._kept = {key: kept for key, kept in self._kept.items() if kept.used_s > oldest_s}
        if self._kept:
            self._arm()


def _page(index: ReplayIndex, after: int, top: int, bytes_max: int) -> ReplayedPage:
    page = index.page(after, top, bytes_max)
    found = [ReplayedMessage(sequence, document_of(_message(sequence, data))) for sequence, data in page.messages]
    return ReplayedPage(found, None if page.is_end else page.last)


def _message(sequence: int, data: bytes) -> Message:
    message = decode(data)
    message.sequence = sequence
    return message


def _again(index: ReplayIndex, after: int, count: int, bytes_max: int, target: str) -> tuple[list[Message], int, bool]:
    page = index.page(after, count, bytes_max)
    # As messages that were never stored, with the same id: the old sequence and delivery count belong to the source.
    messages = [decode(data).fresh() for _, data in page.messages]
    for message in messages:
        message.channel = target
    return messages, page.last or after, page.is_end
