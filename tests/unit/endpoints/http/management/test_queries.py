"""SQL and traces over the API give what they give in process; a query ends when its client leaves."""

import asyncio
import threading
from collections.abc import Callable

import msgspec
import pytest

from tests.unit.bus.probes import GUARD_S
from tests.unit.endpoints.http.management.conftest import Api, same_error
from unibus.bus.management.history import queries, traces
from unibus.bus.management.history.queries import QueryAnswer, pieces_of, result_of
from unibus.bus.management.history.traces import TraceRecord, trace_of_record
from unibus.bus.management.threads import begin_in_thread
from unibus.errors import MessageNotFound, MessageTooLarge, QueryInvalid, QueryStopped, RateLimited, UsageError
from unibus.stores.query.result import QueryResult

ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"
LONG = {"sql": ENDLESS, "time_limit_s": 60}


async def test_rows_are_those_of_a_query_in_process(api: Api) -> None:
    for at in range(5):
        await api.bus.send("q", {"n": at}, headers={"h": at})
    sql = "SELECT channel, id, priority, status FROM messages WHERE channel = ? ORDER BY id"
    found = await api.post("query", {"sql": sql, "parameters": ["q"]})
    local = await api.bus.query_messages(sql, ["q"])
    assert found["columns"] == list(local.columns)
    assert [tuple(row) for row in found["rows"]] == [row.as_tuple() for row in local]
    assert found["truncated"] is False


async def test_more_rows_than_asked_for_are_cut(api: Api) -> None:
    for at in range(3):
        await api.bus.send("q", at)
    found = await api.post("query", {"sql": "SELECT id FROM messages", "rows": 2})
    assert (len(found["rows"]), found["truncated"]) == (2, True)


async def test_values_that_json_lacks_are_tagged(api: Api) -> None:
    sql = "SELECT :data, 9e999, -9e999, NULL, 1.5, 'ü', 9223372036854775807"
    answer = await api.client(
        "POST",
        "/unibus/v1/query",
        msgspec.json.encode({"sql": sql, "parameters": {"data": {"$bytes": "/wA="}}}),
    )
    record = msgspec.json.decode(answer.body, type=QueryAnswer)
    assert record.rows[0][:2] == [{"$bytes": "/wA="}, {"$float": "inf"}]
    row = result_of(record)[0].as_tuple()
    assert row == (b"\xff\x00", float("inf"), float("-inf"), None, 1.5, "ü", 2**63 - 1)


def test_a_long_answer_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "ROWS_PER_PIECE", 2)
    for count in range(6):
        result = QueryResult(["a", "b"], [(at, b"x") for at in range(count)], True, 0.5)
        whole = msgspec.json.decode(b"".join(pieces_of(result)), type=QueryAnswer)
        assert [row.as_tuple() for row in result_of(whole)] == [row.as_tuple() for row in result]
        assert (whole.columns, whole.truncated, whole.seconds) == (["a", "b"], True, 0.5)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"sql": "DELETE FROM messages"}, QueryInvalid),
        ({"sql": "SELECT nothing FROM messages"}, QueryInvalid),
        ({"sql": "SELECT 1; SELECT 2"}, QueryInvalid),
        ({"sql": "SELECT ?", "parameters": [2**64]}, QueryInvalid),
        ({"sql": ENDLESS, "time_limit_s": 0.01}, QueryStopped),
        ({"sql": "SELECT ?", "parameters": [{"$bytes": "*"}]}, UsageError),
    ],
)
async def test_errors_are_those_of_a_query_in_process(api: Api, body: object, error: type[UsageError]) -> None:
    assert same_error(await api.error("POST", "query", body), error, 400)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b'{"sql":""}', b'{"sql":1}', b'{"sql":"SELECT 1","rows":0}', b'{"sql":"SELECT 1","more":1}'),
        *(b'{"sql":"SELECT 1","rows":1000001}', b'{"sql":"SELECT 1","time_limit_s":61}'),
        *(b'{"sql":"SELECT 1","memory_mb":513}', b'{"sql":"SELECT 1","time_limit_s":NaN}'),
        *(b'{"sql":"SELECT ?","parameters":[[1]]}', b'{"sql":"SELECT ?","parameters":[{"$text":"a"}]}'),
        b'{"sql":"' + b"x" * 65_537 + b'"}',
    ],
)
async def test_what_cannot_be_read_is_refused(api: Api, body: bytes) -> None:
    assert (await api.error("POST", "query", body))[0] == 400


class Begun:
    """The threads of queries, as they begin; `all_begun` is set with the one that fills the server."""

    def __init__(self, count: int) -> None:
        self.threads: list[threading.Thread] = []
        self.all_begun = asyncio.Event()
        self._count = count

    def __call__(self, name: str, call: Callable[[], QueryResult]) -> "asyncio.Future[QueryResult]":
        before = set(threading.enumerate())
        future = begin_in_thread(name, call)
        self.threads += [each for each in threading.enumerate() if each not in before and each.name == name]
        if len(self.threads) == self._count:
            self.all_begun.set()
        return future


async def test_a_query_ends_when_its_client_leaves(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Begun(1)
    monkeypatch.setattr(queries, "begin_in_thread", begun)
    connection, running = api.begin("POST", "query", LONG)
    await begun.all_begun.wait()
    connection.leave()
    await running
    begun.threads[0].join(30)
    assert not begun.threads[0].is_alive()
    assert api.observer.answers[-1] == ("query_store", 499, "disconnected")


async def test_a_few_queries_at_once_then_they_wait_then_they_are_refused(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Begun(queries.AT_ONCE_MAX)
    monkeypatch.setattr(queries, "begin_in_thread", begun)
    monkeypatch.setattr(queries, "WAITING_MAX", 1)
    clients = [api.begin("POST", "query", LONG) for _ in range(queries.AT_ONCE_MAX + 1)]
    await begun.all_begun.wait()
    await clients[-1][0].waits.wait()
    assert same_error(await api.error("POST", "query", {"sql": "SELECT 1"}), RateLimited, 429)
    assert len(begun.threads) == queries.AT_ONCE_MAX
    for connection, running in clients:
        connection.leave()
        await running
    assert (await api.post("query", {"sql": "SELECT 1"}))["rows"] == [[1]]


# Traces


async def test_a_trace_is_that_of_the_bus_in_process(api: Api) -> None:
    await api.broker.create("topic", "t", {})
    for name in ("a", "b"):
        await api.broker.create("subscription", f"t/Subscriptions/{name}", {})
    sent = await api.bus.send("t", {"n": 1})
    (claimed,) = await api.broker.receive("t/Subscriptions/a")
    await api.broker.settle("dead_letter", claimed.token, reason="why")
    answer = await api.client("GET", f"/unibus/v1/trace?id={sent.id}")
    found = trace_of_record(msgspec.json.decode(answer.body, type=TraceRecord))
    local = await api.bus.trace_message(sent.id)
    assert (found.events, found.roots, found.status) == (local.events, local.roots, local.status)
    assert len(found.copies()) == 4


async def test_a_message_without_history_is_not_found(api: Api) -> None:
    assert same_error(await api.error("GET", "trace?id=none"), MessageNotFound, 404)
    assert same_error(await api.error("GET", "trace"), UsageError, 400)
    assert same_error(await api.error("GET", "trace?id="), UsageError, 400)


async def test_an_id_with_too_many_events_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "EVENTS_MAX", 1)
    for _ in range(2):
        await api.bus.send("q", 1, message_id="same")
    assert same_error(await api.error("GET", "trace?id=same"), MessageTooLarge, 413)


async def test_a_query_whose_thread_cannot_be_started_leaves_its_slot_free(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, call: Callable[[], object]) -> object:
        raise RuntimeError("can't start new thread")

    running = queries.Queries(api.broker)
    monkeypatch.setattr(queries, "begin_in_thread", refuse)
    for _ in range(queries.AT_ONCE_MAX + 1):
        with pytest.raises(RuntimeError, match="new thread"):
            await asyncio.wait_for(running.run(queries.QueryRequest("SELECT 1")), GUARD_S)
