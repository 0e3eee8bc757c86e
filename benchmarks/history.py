"""What history gives, and what it costs.

    trace      milliseconds to find one message among ten million events and to put its tree together
    query      seconds for a GROUP BY over a million waiting messages
    redrive    dead letters that go back to their queue, per second, by one call on a filter, at D2
    cost       sending from many tasks, and receiving and completing, against a journal that keeps no index of its
               history and forgets it as soon as it may; the design allows a tenth. In processor time, and by the best
               of many short rounds: a difference of a few percent drowns in what a disk does meanwhile

All through the public interface on SQLite, 200-byte bodies, each in a process of its own. The limit of `trace` and
`query` is reading the same rows out of an ordinary table in SQLite: by an index, and by the same GROUP BY.
"""

import asyncio
import multiprocessing
import random
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from time import perf_counter, process_time

import apsw

from benchmarks.disk import scratch
from benchmarks.durable_bus import FILL_BATCH, RECEIVE_SECONDS_MAX, Ours, filled, url
from benchmarks.durable_load import BODY, QUEUE, TASKS, Phase, in_batches
from benchmarks.measure import Options, check_delivered, rounds_of
from benchmarks.report import Figure, Report
from unibus import MessageBus
from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.lifecycle.state.changes import Change
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.journal import SnapshotSlice
from unibus.stores.sqlite.journal import SqliteJournal

EVENTS = 10_000_000
EVENTS_PER_MESSAGE = 3
LOOKS = 50
HELD = 1_000_000
QUEUES = 10
LETTERS = 100_000
COST_MESSAGES = 4_000
COST_ROUNDS = 40
COST_SECONDS_MAX = 10.0

TRACE_SECONDS, QUERY_SECONDS, REDRIVE_RATE, COST_TIMES = 0.05, 2.0, 20_000.0, 1 / 0.9
GROUPED = "SELECT channel, count(*) AS n, max(size) AS largest FROM messages WHERE status = 'pending' GROUP BY channel"


def run(options: Options) -> Report:
    once = Options(1, options.quick)
    figures = [_trace(once), _query(once), _redrive(once), *_cost(options)]
    return Report("history", tuple(figures))


def _alone(work: Callable[[Path, int], dict[str, float]], count: int) -> dict[str, float]:
    """In a process of its own, so that no heap of another part slows it down."""
    spawn = multiprocessing.get_context("spawn")
    with scratch() as folder, ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool:
        return pool.submit(work, folder, count).result()


# Trace


def _trace(options: Options) -> Figure:
    count = options.count(EVENTS)
    found = _alone(trace_here, count)
    return Figure(f"trace one among {count:,} events, median", "s", found["ours"], TRACE_SECONDS, limit=found["limit"])


def trace_here(folder: Path, count: int) -> dict[str, float]:
    return {"ours": asyncio.run(_trace_ours(folder, count)), "limit": _trace_raw(folder, count)}


async def _trace_ours(folder: Path, count: int) -> float:
    ids: list[str] = []
    async with MessageBus(f"{url(folder / 'bus.db')}?history_bytes=1e15") as bus:
        await bus.create_queue(QUEUE)
        for batch in in_batches(count // EVENTS_PER_MESSAGE, FILL_BATCH):
            ids.append((await bus.send_many(QUEUE, batch, durability="D1"))[0].id)
            await bus.complete_many(await bus.receive_batch(QUEUE, FILL_BATCH, timeout=RECEIVE_SECONDS_MAX))
        seconds = []
        for _ in range(LOOKS):
            wanted = random.choice(ids)
            start = perf_counter()
            trace = await bus.trace_message(wanted)
            seconds.append(perf_counter() - start)
            check_delivered(len(trace.events), EVENTS_PER_MESSAGE)
            if trace.status != "completed":
                raise RuntimeError(f"{wanted} is {trace.status}")
    return sorted(seconds)[LOOKS // 2]


def _trace_raw(folder: Path, count: int) -> float:
    with closing(apsw.Connection(str(folder / "raw.db"))) as connection:
        for statement in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "CREATE TABLE e (id TEXT, body BLOB)",
        ):
            connection.execute(statement).fetchall()
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1)"
            " INSERT INTO e SELECT format('%026x', i / ?), ? FROM n",
            (count, EVENTS_PER_MESSAGE, BODY[:60]),
        )
        connection.execute("CREATE INDEX by_id ON e (id)")
        seconds = []
        for _ in range(LOOKS):
            wanted = format(random.randrange(count // EVENTS_PER_MESSAGE), "026x")
            start = perf_counter()
            rows = connection.execute("SELECT * FROM e WHERE id = ?", (wanted,)).fetchall()
            seconds.append(perf_counter() - start)
            check_delivered(len(rows), EVENTS_PER_MESSAGE)
    return sorted(seconds)[LOOKS // 2]


# Query


def _query(options: Options) -> Figure:
    count = options.count(HELD)
    found = _alone(query_here, count)
    return Figure(f"GROUP BY over {count:,} messages", "s", found["ours"], QUERY_SECONDS, limit=found["limit"])


def query_here(folder: Path, count: int) -> dict[str, float]:
    return {"ours": asyncio.run(_query_ours(folder, count)), "limit": _query_raw(count)}


async def _query_ours(folder: Path, count: int) -> float:
    async with MessageBus(url(folder / "bus.db")) as bus:
        for number in range(QUEUES):
            for batch in in_batches(count // QUEUES, FILL_BATCH):
                await bus.send_many(f"{QUEUE}{number}", batch, durability="D1")
        best = float("inf")
        for _ in range(3):
            start = perf_counter()
            result = await bus.query_messages(GROUPED)
            best = min(best, perf_counter() - start)
            check_delivered(sum(int(str(row["n"])) for row in result), count // QUEUES * QUEUES)
    return best


def _query_raw(count: int) -> float:
    with closing(apsw.Connection(":memory:")) as connection:
        connection.execute("CREATE TABLE messages (channel TEXT, size INTEGER, status TEXT)")
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1)"
            " INSERT INTO messages SELECT ? || (i % ?), ?, 'pending' FROM n",
            (count, QUEUE, QUEUES, len(BODY)),
        )
        start = perf_counter()
        check_delivered(len(connection.execute(GROUPED).fetchall()), QUEUES)
        return perf_counter() - start


# Redrive


def _redrive(options: Options) -> Figure:
    count = options.count(LETTERS)
    found = _alone(redrive_here, count)
    return Figure(f"redrive of {count:,} dead letters", "msg/s", found["ours"], REDRIVE_RATE)


def redrive_here(folder: Path, count: int) -> dict[str, float]:
    return {"ours": asyncio.run(_redrive_ours(folder, count))}


async def _redrive_ours(folder: Path, count: int) -> float:
    bus = await filled(folder / "bus.db", count)
    async with bus:
        for _ in in_batches(count, FILL_BATCH):
            async with bus.transaction():
                for message in await bus.receive_batch(QUEUE, FILL_BATCH, timeout=RECEIVE_SECONDS_MAX):
                    await message.dead_letter("Broken")
        start = perf_counter()
        result = await bus.dead_letter_queue().retry_all()
        elapsed = perf_counter() - start
        check_delivered(result.retried, count)
    return count / elapsed


# Cost


class Forgetful(SqliteJournal):
    """A journal that keeps only what recovery needs, and no index of it."""

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        self._groups.index = None
        super().append(first_seq, changes, sync, part)


@asynccontextmanager
async def _without(folder: Path) -> AsyncIterator[Ours]:
    timers = ThreadTimers(SYSTEM_CLOCK, _raised)
    store = EmbeddedStore(Forgetful(str(folder / "bus.db"), history_bytes=0), SYSTEM_CLOCK, timers)
    async with MessageBus(store) as bus:
        await bus.create_queue(QUEUE)
        yield Ours(bus)
    timers.stop()


def _raised(error: BaseException) -> None:
    raise error


def _cost(options: Options) -> list[Figure]:
    trials = {"with": lambda count: _costs(Ours.on_sqlite, count), "without": lambda count: _costs(_without, count)}
    many = Options(max(options.rounds, options.count(COST_ROUNDS)), options.quick)
    rounds = rounds_of(trials, many.count(COST_MESSAGES), many)
    figures = []
    for index, name in enumerate((f"send, {TASKS} tasks", "receive and complete")):
        kept, forgotten = (min(times[index] for times in rounds[which]) for which in ("with", "without"))
        figures.append(Figure(f"{name}: with history over without", "times", kept / forgotten, COST_TIMES))
    return figures


def _costs(opened: Callable[..., object], count: int) -> tuple[float, float]:
    return asyncio.run(_work(opened, count))


async def _work(opened: Callable[..., object], count: int) -> tuple[float, float]:
    """Seconds of the processor per message, sent and received."""
    with scratch() as folder:
        async with opened(folder) as ours:  # type: ignore[attr-defined]
            seconds = []
            for work in (ours.send_each, ours.receive):
                phase = Phase(count, COST_SECONDS_MAX)
                start = process_time()
                await work(phase)
                seconds.append((process_time() - start) / phase.done)
                check_delivered(phase.done, count)
    return seconds[0], seconds[1]
