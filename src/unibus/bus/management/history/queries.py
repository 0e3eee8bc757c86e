"""SQL queries over the store of a server, with the engine and the limits of `MessageBus.query_messages`.

At most AT_ONCE_MAX queries run at once, each in its own thread. If the client disconnects, its query ends at the next
check of the guard, after about a hundred steps of SQLite. Until then it still counts as running.

In JSON a value of a row is a number, text or null; what JSON lacks is tagged: {"$bytes": base64}, {"$float": "inf"}.
"""

import asyncio
import base64
import binascii
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from unibus.bus.management.threads import begin_in_thread
from unibus.errors import DecodeError, RateLimited, UsageError
from unibus.limits import QUERY_MEMORY_MB_DEFAULT, QUERY_ROWS_DEFAULT, QUERY_ROWS_MAX, QUERY_TIME_S_DEFAULT
from unibus.stores.query import query
from unibus.stores.query.result import QueryResult, Value
from unibus.stores.seam.store_view import OpenStoreView

if TYPE_CHECKING:
    from unibus.bus.api.broker import Broker

AT_ONCE_MAX: Final = 4
WAITING_MAX: Final = 32
"""The maximum numbers of running and of waiting queries. More are refused with RateLimited."""

TIME_S_MAX: Final = 60.0
MEMORY_MB_MAX: Final = 512.0
SQL_CHARS_MAX: Final = 65_536
ROWS_PER_PIECE: Final = 2_000


class BytesValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes as a parameter."""

    data: Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})] = msgspec.field(name="$bytes")


Parameter = int | float | str | bool | BytesValue | None


class QueryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`parameters` are the values for ? in their order, or for :name by name."""

    sql: Annotated[str, Meta(min_length=1, max_length=SQL_CHARS_MAX)]
    parameters: list[Parameter] | dict[str, Parameter] = msgspec.field(default_factory=list)
    rows: Annotated[int, Meta(ge=1, le=QUERY_ROWS_MAX)] = QUERY_ROWS_DEFAULT
    time_limit_s: Annotated[float, Meta(gt=0, le=TIME_S_MAX)] = QUERY_TIME_S_DEFAULT
    memory_mb: Annotated[float, Meta(gt=0, le=MEMORY_MB_MAX)] = QUERY_MEMORY_MB_DEFAULT


Cell = int | float | str | dict[str, str] | None


class QueryAnswer(msgspec.Struct, frozen=True):
    """`truncated`: there were more rows than requested. `seconds` is the duration of the query."""

    columns: list[str]
    truncated: bool
    seconds: float
    rows: list[list[Cell]]


class Queries:
    """The queries of one server."""

    def __init__(self, broker: "Broker") -> None:
        self._broker: Final = broker
        # Released when the thread ends, and not when the request ends: a cancelled query still computes until its next
        # check.
        self._slots: Final = asyncio.Semaphore(AT_ONCE_MAX)
        self._waiting = 0

    async def run(self, request: QueryRequest) -> QueryResult:
        """Raises QueryInvalid or QueryStopped as in process. A cancellation ends the query."""
        view = OpenStoreView(self._broker.store)
        asked = query(view, request.sql, _parameters(request), request.time_limit_s, request.rows, request.memory_mb)
        await self._acquire_slot()
        try:
            running = begin_in_thread("unibus-query", asked.run)
        except BaseException:
            self._slots.release()  # No thread was started, so none releases it.
            raise
        running.add_done_callback(self._release_slot)
        try:
            # The future belongs to the thread: a cancelled request must not cancel it, or its slot would be free too
            # early.
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            asked.cancel()
            raise

    async def _acquire_slot(self) -> None:
        if self._waiting >= WAITING_MAX:
            raise RateLimited(f"too many queries: {AT_ONCE_MAX} run and {WAITING_MAX} wait", "retry in a second", 1.0)
        # Checked and counted without an await in between, so the limit holds for any number of requests.
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1

    def _release_slot(self, running: "asyncio.Future[QueryResult]") -> None:
        self._slots.release()
        if not running.cancelled():
            running.exception()  # Marks it as retrieved: no other code does so for an abandoned query.


def _parameters(request: QueryRequest) -> object:
    given = request.parameters
    if isinstance(given, dict):
        return {name: _parameter(value) for name, value in given.items()}
    return [_parameter(value) for value in given]


def _parameter(value: Parameter) -> Value:
    if not isinstance(value, BytesValue):
        return value
    try:
        # Strict: without it characters that are not base64 are skipped, and other bytes are found than were meant.
        return base64.b64decode(value.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"a parameter is not valid base64: {error}", "encode the value of $bytes in base64") from error


# Rows in JSON


def pieces_of(result: QueryResult) -> Iterator[bytes]:
    """The JSON of a QueryAnswer in pieces of some rows: the JSON of a million rows is never in memory as a whole."""
    head = QueryAnswer(list(result.columns), result.truncated, result.seconds, [])
    # `rows` is the last field, and empty here: what is left ends with its opening bracket.
    yield msgspec.json.encode(head).removesuffix(b"]}")
    for start in range(0, len(result), ROWS_PER_PIECE):
        rows = [[_cell(value) for value in row] for row in result.rows[start : start + ROWS_PER_PIECE]]
        # Without its own brackets: the pieces together are one list.
        piece = msgspec.json.encode(rows)[1:-1]
        yield b"," + piece if start else piece
    yield b"]}"


def _cell(value: Value) -> Cell:
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    # JSON has no infinity and no NaN; msgspec would write null.
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    return value


def result_of(answer: QueryAnswer) -> QueryResult:
    """For clients: the result as `query_messages` returns it."""
    rows = [tuple([_value(cell) for cell in row]) for row in answer.rows]
    return QueryResult(answer.columns, rows, answer.truncated, answer.seconds)


def _value(cell: Cell) -> Value:
    if not isinstance(cell, dict):
        return cell
    try:
        return base64.b64decode(cell["$bytes"], validate=True) if "$bytes" in cell else float(cell["$float"])
    except (KeyError, ValueError) as error:
        raise DecodeError(
            "a value of a row cannot be decoded", "use the same version of unibus on server and client"
        ) from error
