"""Commands on a store that this process opens: as a reader beside its owner where possible, else as the owner.

    entities, query, trace, top, tail, replay, export  ──▶ StoreView: reads beside the owner
    declare, access, import, replay --to               ──▶ Store: this process is the owner
    send, receive, peek, dlq, purge                    ──▶ Queues: the owner, without the other parts of a bus
    relay, a URL with capture=                         ──▶ MessageBus, SyncMessageBus

Each of them is opened at its first use and kept until `close`. A store has one owner, so opening another kind closes
the one before.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from unibus.cli.connection.management import BATCH, Asked, Progress, Relay, WantedEvents
from unibus.cli.local.owned_queues import queues_of
from unibus.cli.local.read_only import owning, reading
from unibus.errors import EntityNotFound, StoreUnavailable

if TYPE_CHECKING:
    from unibus.bus.history.export import Exporting
    from unibus.bus.history.export_lines import Contents
    from unibus.bus.history.trace import MessageTrace
    from unibus.bus.management.settings.declaring import DeclaredPlan
    from unibus.bus.queues.operations import Queues
    from unibus.cli.connection.command_import import CommandImport
    from unibus.cli.connection.entity_rows import TopWatch
    from unibus.cli.local.access import LocalAccess
    from unibus.cli.local.dead_letters import LocalDeadLetters, LocalPurge
    from unibus.cli.local.receiving import LocalReceiver
    from unibus.core.envelope.message import Message
    from unibus.core.lifecycle.commands import SendResult
    from unibus.core.lifecycle.events import Event
    from unibus.stores.query.result import QueryResult
    from unibus.stores.seam.store import EntityInfo, Store
    from unibus.stores.seam.store_view import StoreView

PAGE = 1_000


class LocalManagement:
    """See `Management`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._stack = contextlib.ExitStack()
        self._open: tuple[object, object] = (None, None)

    def close(self) -> None:
        self._open = (None, None)
        self._stack.close()

    def _opened(self, opens: Callable[[], AbstractContextManager[Any]], name: str) -> Any:
        if self._open[0] != name:
            self.close()
            self._open = (name, self._stack.enter_context(opens()))
        return self._open[1]

    def _reader(self) -> "StoreView":
        return cast("StoreView", self._opened(lambda: reading(self.url), "reader"))

    def _store(self) -> "Store":
        return cast("Store", self._opened(lambda: owning(self.url), "store"))

    def _queues(self, strict: bool = True) -> "Queues":
        name = "strict queues" if strict else "queues"
        return cast("Queues", self._opened(lambda: queues_of(self.url, strict), name))

    # Entities and messages

    def entities(self) -> "list[EntityInfo]":
        return self._reader().entities()

    def send(self, entity: str, bodies: Sequence[object], fields: Mapping[str, object]) -> "list[SendResult]":
        queues = self._queues(strict=False)
        if len(bodies) == 1:
            return [queues.send(entity, bodies[0], dict(fields)).wait()]
        return queues.send_many(entity, bodies, dict(fields)).wait()

    def peek(self, entity: str, from_sequence: int, count: int) -> "Iterator[Message]":
        """Reads in pages, so that the memory does not grow with the backlog."""
        queues, left = self._queues(), count
        while page := queues.peek(entity, min(left, BATCH) if count else BATCH, from_sequence).wait():
            yield from page
            from_sequence = int(page[-1].sequence) + 1
            left -= len(page)
            if count and left <= 0:
                return

    @contextlib.asynccontextmanager
    async def receiver(self) -> "AsyncIterator[LocalReceiver]":
        from unibus.cli.local.receiving import LocalReceiver

        yield LocalReceiver(self._queues())

    # Settings

    def declare(self, file: str, dry_run: bool) -> "DeclaredPlan":
        from unibus.bus.entities.file import declare_entities, planned, read_entity_file
        from unibus.bus.management.settings.declaring import plan_record

        wanted = read_entity_file(file)
        if dry_run:
            return plan_record(planned(self._existing(), wanted))
        store = self._store()
        plan = planned(store.entities().wait(), wanted)
        declare_entities(store, plan)
        return plan_record(plan)

    def _existing(self) -> "list[EntityInfo]":
        """The entities, read beside the owner. A missing store has none and is not created."""
        from unibus.cli.connection.bus_option import store_url

        try:
            store_url(self.url)
        except StoreUnavailable:
            return []
        return self.entities()

    def access(self) -> "LocalAccess":
        from unibus.cli.local.access import LocalAccess

        return LocalAccess(self._store())

    # History

    def query(self, asked: Asked) -> "QueryResult":
        """Works beside a process that owns the store. All tables show the same moment."""
        from unibus.stores.query import query as made

        reader = self._reader()
        with reader.moment():
            limits = (asked.time_limit_s, asked.rows, asked.memory_mb)
            return made(reader, asked.sql, list(asked.parameters), *limits).run()

    def trace(self, message_id: str) -> "MessageTrace":
        from unibus.bus.history.trace import trace_of
        from unibus.bus.management.history.traces import not_traced
        from unibus.stores.seam.store_view import find_message

        reader = self._reader()
        with reader.moment():
            entities = reader.entities()
            found = trace_of(message_id, reader.events_of(message_id), partial(find_message, reader), lambda: entities)
        if not found:
            raise not_traced(message_id)
        return found

    def watch(self, once: bool) -> "TopWatch":
        from unibus.cli.connection.entity_rows import TopWatch

        return TopWatch(self._reader())

    def tail(self, wanted: WantedEvents) -> "LocalTail":
        return LocalTail(self._reader(), wanted)

    def replay(self, channel: str, after: int, since_ns: int) -> "Iterator[Message]":
        return replayed(self._reader(), channel, after, since_ns)

    def resending(self, channel: str, target: str, after: int, since_ns: int, count: int) -> "LocalResending":
        return LocalResending(self._store(), channel, target, (after, since_ns), count)

    # The whole bus

    def export(self, put: Callable[[bytes], object], progress: Progress, names: Sequence[str]) -> "Exporting":
        from unibus.bus.history.export import Exporting

        exporting = Exporting(self._reader(), put, progress)
        exporting.run(names)
        return exporting

    def importing(self, contents: "Contents") -> "CommandImport":
        from unibus.bus.history.import_ import StoreTarget
        from unibus.cli.connection.command_import import CommandImport

        return CommandImport(StoreTarget(self._store()), contents)

    @contextlib.asynccontextmanager
    async def relaying(self, file: str) -> "AsyncIterator[Relay]":
        from unibus.bus.api.message_bus import MessageBus

        self.close()
        async with MessageBus(self.url, strict=True) as bus:
            yield lambda again, adopt: bus.relay_outbox(file, again=again, adopt=adopt)

    def dead_letters(self) -> "LocalDeadLetters":
        from unibus.cli.local.dead_letters import LocalDeadLetters

        return LocalDeadLetters(self._queues)

    def purge(self, entity: str, dry_run: bool) -> "LocalPurge":
        from unibus.cli.local.dead_letters import LocalPurge

        return LocalPurge(self._queues(), entity, dry_run)


def replayed(reader: "StoreView", channel: str, after: int, since_ns: int) -> "Iterator[Message]":
    from unibus.core.codec.codec import decode

    for sequence, data in reader.replay_index(channel, after, since_ns).messages():
        message = decode(data)
        message.sequence = sequence
        yield message


class LocalTail:
    def __init__(self, reader: "StoreView", wanted: WantedEvents) -> None:
        from unibus.bus.management.history.events import EventFilter

        def is_known(name: str) -> bool:
            return any(each.name == name for each in reader.entities())

        self._reader = reader
        self._kinds = wanted.kinds
        self._wanted = EventFilter(*wanted, is_known)
        self._seq = 0
        self._since_us = 0

    def last(self, count: int) -> "list[Event]":
        from unibus.stores.seam.store_view import last_events

        with self._reader.moment():
            oldest, self._seq = self._reader.bounds()
            return last_events(self._reader, oldest, self._seq, count, self._wanted)[0]

    def begin(self, after: int, since_us: int) -> None:
        from unibus.stores.seam.store_view import seq_before

        self._since_us = since_us
        with self._reader.moment():
            self._seq = seq_before(self._reader, *self._reader.bounds(), since_us * 1_000) if since_us else after

    def page(self) -> "tuple[list[Event], bool]":
        events, safe_seq = self._reader.events_after(self._seq, PAGE, self._kinds)
        self._seq = events[-1].seq if len(events) == PAGE else max(self._seq, safe_seq)
        found = [event for event in events if event.ts >= self._since_us and self._wanted(event)]
        return found, len(events) == PAGE

    def follow(self) -> None:
        return  # `page` polls the store: it does not notify readers in other processes.


class LocalResending:
    def __init__(self, store: "Store", channel: str, target: str, begin: tuple[int, int], count: int) -> None:
        from unibus.stores.seam.store_view import OpenStoreView

        self.sent = 0
        self.duplicates = 0
        self._store = store
        self._target = target
        reader = OpenStoreView(store)
        if target not in [each.name for each in reader.entities()]:
            raise EntityNotFound(f"there is no queue or subscription {target!r}")
        # In order of time, so messages that are stored meanwhile come after these and are not sent.
        total = len(reader.replay_index(channel, *begin).places())
        self.total = min(total, count or total)
        self._messages = islice(replayed(reader, channel, *begin), self.total)

    def send_next(self) -> bool:
        from unibus.core.lifecycle.commands import SendResult
        from unibus.core.lifecycle.envelope import send_of

        again = [message.fresh() for message in islice(self._messages, BATCH)]
        if not again:
            return False
        for message in again:
            message.channel = self._target
        results = self._store.apply([send_of(message, self._target) for message in again]).wait()
        self.sent += len(again)
        self.duplicates += sum(isinstance(each, SendResult) and each.duplicate for each in results)
        return True
