"""SQL on both kinds of bus: the event loop keeps running, cancelling ends the query, and a closed bus raises."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bus.probes import GUARD_S
from tests.unit.bus.rigs import Rig, fails
from unibus import QueryInvalid, QueryResult, QueryStopped
from unibus.bus.api.message_bus import MessageBus
from unibus.errors import BusClosed
from unibus.stores.query import run_query

ENDLESS = "WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
COUNT = "SELECT count(*) FROM messages WHERE status = 'pending'"


def test_the_same_on_both_faces(rig: Rig) -> None:
    rig.send_many("q", [{"id": 1}, {"id": 2}])
    for verb in (rig.query_messages, rig.execute_query):
        result = verb("SELECT payload ->> 'id' AS id FROM messages WHERE local_sequence > ? ORDER BY 1", (1,))
        assert isinstance(result, QueryResult)
        assert result.dicts() == [{"id": 2}]
        assert result.seconds >= 0
        assert verb("SELECT id FROM messages", rows_max=1).truncated


def test_the_count_of_a_transaction_that_was_rolled_back(rig: Rig) -> None:
    with fails(ZeroDivisionError):
        rig.do(lambda: _send_two_and_fail(rig.bus))
    for status in ("pending", "delivered"):
        result = rig.query_messages(f"SELECT COUNT(*) FROM messages WHERE status='{status}'")
        assert result[0]["count"] == 0


def _send_two_and_fail(bus: Any) -> Any:
    if isinstance(bus, MessageBus):
        return _send_two_and_fail_async(bus)
    with bus.transaction():
        bus.send("q", 1)
        bus.send("q", 2)
        raise ZeroDivisionError


async def _send_two_and_fail_async(bus: MessageBus) -> None:
    async with bus.transaction():
        await bus.send("q", 1)
        await bus.send("q", 2)
        raise ZeroDivisionError


def test_errors(rig: Rig) -> None:
    for wrong in ("DELETE FROM messages", 7, "SELECT ?"):
        with fails(QueryInvalid):
            rig.query_messages(wrong)
    with fails(QueryStopped, "time limit"):
        rig.query_messages(ENDLESS, time_limit=0.01)
    rig.send("q", 1)
    assert rig.query_messages(COUNT)[0] == (1,)


def test_a_closed_bus(rig: Rig) -> None:
    rig.send("q", 1)
    rig.close()
    for sql in (COUNT, "SELECT 1"):
        with fails(BusClosed):
            rig.query_messages(sql)


async def test_the_loop_goes_on_beside_a_query(queue_bus: MessageBus) -> None:
    """A query that does not end by itself, and messages that are sent and received meanwhile."""
    asked = asyncio.create_task(queue_bus.query_messages(ENDLESS, time_limit=GUARD_S))
    for number in range(20):
        await queue_bus.send("q", number)
        (message,) = await queue_bus.receive_batch("q", 1, timeout=GUARD_S)
        await message.complete()
        await asyncio.sleep(0)
    assert not asked.done()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_cancelling_ends_the_query(queue_bus: MessageBus, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()
    reasons: list[str] = []
    run = run_query.Query.run

    def watched(self: run_query.Query) -> QueryResult:
        begun.set()
        try:
            return run(self)
        finally:
            reasons.append(self.guard.reason)
            ended.set()

    monkeypatch.setattr(run_query.Query, "run", watched)
    asked = asyncio.create_task(queue_bus.query_messages(ENDLESS, time_limit=1_000))
    assert await asyncio.to_thread(begun.wait, GUARD_S)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert await asyncio.to_thread(ended.wait, GUARD_S)
    assert reasons == ["cancelled"]
    assert (await queue_bus.query_messages("SELECT 1")).scalar() == 1


async def test_queries_beside_each_other_and_beside_work(queue_bus: MessageBus) -> None:
    await queue_bus.send_many("q", range(500))
    sql = "SELECT count(*) FROM messages a, messages b WHERE a.status = 'pending' AND b.status = 'pending'"
    results = await asyncio.gather(*[queue_bus.query_messages(sql, time_limit=GUARD_S) for _ in range(4)])
    assert [result.scalar() for result in results] == [250_000] * 4


async def test_what_goes_away_meanwhile_is_not_shown(queue_bus: MessageBus) -> None:
    """Rows are read as they come; states go on changing."""
    await queue_bus.send_many("q", range(2_000))

    async def work() -> None:
        while messages := await queue_bus.receive_batch("q", 100, timeout=0):
            await queue_bus.complete_many(messages)

    working = asyncio.create_task(work())
    states = set[object]()
    while not working.done():
        found = await queue_bus.query_messages("SELECT state, payload FROM messages WHERE status = 'pending'")
        states |= {row["state"] for row in found}
        await asyncio.sleep(0)
    await working
    assert states <= {"active", "locked"}
    assert (await queue_bus.query_messages(COUNT)).scalar() == 0
    assert (await queue_bus.query_messages("SELECT count(*) FROM messages")).scalar() == 2_000


def test_it_is_there_after_a_restart(file_rig: Rig, tmp_path: Path) -> None:
    file_rig.send_many("q", ["a", "b"])
    for message in file_rig.take("q", 1):
        file_rig.do(message.complete)
    file_rig.reopen()
    result = file_rig.query_messages("SELECT status, payload FROM messages ORDER BY status")
    assert [row.as_tuple() for row in result] == [("delivered", None), ("pending", '"b"')]
