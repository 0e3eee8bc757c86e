"""Queues that survive a crash, which a Python user would pick instead, and SQLite itself as the limit.

All promise the same here: what was sent or settled is on the disk before the call returns. A lock need not be; where
a peer can be spared that sync, it is. Choices are made in the peer's favour and tried out: a connection for each task
and atomic pipelines for Redis (fewer connections, plain pipelines and a Unix socket were not faster), one caller
where a library has a lock around everything anyway, batches as one transaction where its interface has any.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import redis.asyncio
from litequeue import LiteQueue
from persistqueue import SQLiteAckQueue

from benchmarks import redis_server
from benchmarks.durable_load import BATCH, BODY, QUEUE, TASKS, Opened, Phase, from_many_tasks, switch_interval

GROUP, CONSUMER = "group", "consumer"
SHORT_SWITCH_SECONDS = 0.0005
"""For the limit: beside a thread that computes, it gets the interpreter back sooner than by Python's default."""


class RedisStreams:
    """A stream and a consumer group; `appendfsync always` syncs once for all commands that arrived together."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def opened(cls, folder: Path) -> AsyncIterator["RedisStreams"]:
        with redis_server.running(folder) as port:
            async with redis.asyncio.Redis(host="127.0.0.1", port=port, max_connections=TASKS) as client:
                await client.xgroup_create(QUEUE, GROUP, mkstream=True)
                # All at once, so that the connections are there: a program opens them once, not for each message.
                await asyncio.gather(*(client.ping() for _ in range(TASKS)))
                yield cls(client)

    async def send_each(self, phase: Phase) -> None:
        await from_many_tasks(lambda body: self._client.xadd(QUEUE, {"body": body}), phase)

    async def send_batches(self, phase: Phase) -> None:
        for batch in phase.batches():
            async with self._client.pipeline(transaction=True) as pipeline:
                for body in batch:
                    pipeline.xadd(QUEUE, {"body": body})
                await pipeline.execute()

    async def receive(self, phase: Phase) -> None:
        while phase.goes_on():
            answer = await self._client.xreadgroup(GROUP, CONSUMER, {QUEUE: ">"}, count=BATCH)
            ids = [id for id, _fields in _entries(answer)]
            phase.received(len(ids))
            async with self._client.pipeline(transaction=True) as pipeline:
                pipeline.xack(QUEUE, GROUP, *ids)
                pipeline.xdel(QUEUE, *ids)
                await pipeline.execute()

    async def waiting(self) -> int:
        return int(await self._client.xlen(QUEUE))


def _entries(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of the one stream that was asked for: RESP2 answers with a list, RESP3 with a dict of lists."""
    if isinstance(answer, dict):
        return [entry for part in answer.get(QUEUE.encode(), []) for entry in part]
    return answer[0][1] if answer else []


class Lite:
    """litequeue: a table in SQLite. Its default does not sync; set to do so, it gives the promise that is compared.

    Its pop looks through all that waits, so that receiving slows down with the number of messages sent before.
    """

    def __init__(self, queue: LiteQueue) -> None:
        self._queue = queue
        self._text = BODY.decode()  # It takes text only.

    @classmethod
    @asynccontextmanager
    async def opened(cls, folder: Path) -> AsyncIterator["Lite"]:
        queue = LiteQueue(folder / "queue.db")
        with closing(queue.conn):
            queue.conn.execute("PRAGMA synchronous = FULL")
            yield cls(queue)

    async def send_each(self, phase: Phase) -> None:
        for _ in phase.bodies():
            self._queue.put(self._text)

    async def send_batches(self, phase: Phase) -> None:
        for batch in phase.batches():
            with self._queue.transaction():
                for _ in batch:
                    self._queue.put(self._text)

    async def receive(self, phase: Phase) -> None:
        while phase.goes_on():
            with self._locks_need_no_sync():
                found = [message for message in self._pops() if message is not None]
            phase.received(len(found))
            with self._queue.transaction():
                for message in found:
                    self._queue.done(message.message_id)

    def _pops(self) -> Iterator[Any]:
        """One transaction each: its pop opens one, so that they cannot be put together."""
        return (self._queue.pop() for _ in range(BATCH))

    @contextmanager
    def _locks_need_no_sync(self) -> Iterator[None]:
        self._queue.conn.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._queue.conn.execute("PRAGMA synchronous = FULL")

    async def waiting(self) -> int:
        return int(self._queue.qsize())


class Persist:
    """persist-queue: every put, get and ack is a transaction, synced by SQLite's default. It has no batches."""

    def __init__(self, queue: SQLiteAckQueue) -> None:
        self._queue = queue

    @classmethod
    @asynccontextmanager
    async def opened(cls, folder: Path) -> AsyncIterator["Persist"]:
        with closing(SQLiteAckQueue(str(folder))) as queue:
            yield cls(queue)

    async def send_each(self, phase: Phase) -> None:
        for body in phase.bodies():
            self._queue.put(body)

    async def send_batches(self, phase: Phase) -> None:
        for body in phase.bodies():
            self._queue.put(body)

    async def receive(self, phase: Phase) -> None:
        while phase.goes_on():
            # Raw and by id: it would otherwise look through all that it has handed out.
            self._queue.ack(id=self._queue.get(block=False, raw=True)["pqid"])
            phase.received(1)

    async def waiting(self) -> int:
        return int(self._queue.active_size())


class RawSQLite:
    """The limit: one row per message in groups, nothing but BEGIN, the rows and COMMIT. No locks, no order, no rules.

    One caller at a time, also where others have many: it is given groups where the others have to find them. A store
    that writes many messages as one row can pass it.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def opened(cls, folder: Path) -> AsyncIterator["RawSQLite"]:
        with switch_interval(SHORT_SWITCH_SECONDS), closing(raw_connection(folder)) as connection:
            yield cls(connection)

    async def send_each(self, phase: Phase) -> None:
        await self.send_batches(phase)

    async def send_batches(self, phase: Phase) -> None:
        for batch in phase.batches():
            raw_insert(self._connection, batch)

    async def receive(self, phase: Phase) -> None:
        while phase.goes_on():
            found = self._connection.execute("SELECT id, body FROM queue ORDER BY id LIMIT ?", (BATCH,)).fetchall()
            phase.received(len(found))
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("DELETE FROM queue WHERE id = ?", ((id,) for id, _body in found))
            self._connection.execute("COMMIT")

    async def waiting(self) -> int:
        ((count,),) = self._connection.execute("SELECT count(*) FROM queue")
        return int(count)


def raw_connection(folder: Path) -> apsw.Connection:
    connection = apsw.Connection(str(folder / "raw.db"))
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL").fetchall()
    connection.execute("CREATE TABLE IF NOT EXISTS queue(id INTEGER PRIMARY KEY, body BLOB)")
    return connection


def raw_insert(connection: apsw.Connection, batch: list[bytes]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO queue(body) VALUES (?)", ((body,) for body in batch))
    connection.execute("COMMIT")


PEERS: dict[str, Opened] = {
    "redis": RedisStreams.opened,
    "litequeue": Lite.opened,
    "persist-queue": Persist.opened,
}
LIMIT: Opened = RawSQLite.opened
