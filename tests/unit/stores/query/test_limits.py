"""The guard, the judgement of growth, and our own functions, each alone."""

import itertools
from typing import Any

import apsw
import pytest

from tests.unit.stores.query.conftest import Asked
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import QueryInvalid, QueryStopped, UsageError
from unibus.stores.query import growth
from unibus.stores.query.growth import growth_of
from unibus.stores.query.guard import CANCELLED, GROWTH_BYTES_MAX, MEMORY, SIZE, TIME, UNSEEN_BYTES, Guard
from unibus.stores.query.run_query import Query
from unibus.stores.seam.store_view import OpenStoreView


class World:
    """Time and memory as a test sets them."""

    def __init__(self) -> None:
        self.now = 100.0
        self.used = 5_000_000
        self.guard = Guard(10.0, 1_000, lambda: self.now, lambda: self.used)


def test_time_is_up() -> None:
    world = World()
    world.now += 10
    assert not world.guard.tick()
    world.now += 0.1
    assert world.guard.tick()
    assert (world.guard.reason, world.guard.ticks) == (TIME, 2)
    world.now = 0
    assert world.guard.tick()  # It stays so.


def test_memory_of_sqlite_and_of_ours_is_counted() -> None:
    world = World()
    world.used += 600
    world.guard.keep(400)
    assert not world.guard.tick()
    world.guard.keep(1)
    assert world.guard.tick()
    assert world.guard.reason == MEMORY


def test_memory_that_others_give_back_does_not_hurt() -> None:
    world = World()
    world.used -= 4_000_000
    assert not world.guard.tick()


def test_a_query_nobody_wants_ends() -> None:
    world = World()
    world.guard.cancel()
    assert world.guard.tick()
    assert world.guard.reason == CANCELLED


def test_growth_is_judged_by_what_was_made_since_the_mark() -> None:
    world = World()
    world.guard.memory_bytes = 10**12
    world.used += 10**9
    world.guard.mark()
    world.used += 50_000
    fits = GROWTH_BYTES_MAX // (UNSEEN_BYTES + 50_000)
    assert world.guard.may_grow(fits)
    assert not world.guard.may_grow(fits + 1)
    assert world.guard.reason == SIZE
    world.guard.forgive()
    assert world.guard.may_grow(1)
    world.used -= 10**9
    assert world.guard.may_grow(fits)


def test_a_cancellation_is_not_forgiven() -> None:
    """It may come from another thread, between the growth and the second try."""
    world = World()
    world.guard.cancel()
    world.guard.forgive()
    assert world.guard.tick()


@pytest.mark.parametrize(
    ("sql", "factor"),
    [
        ("SELECT 1", 1),
        ("SELECT id, id, id FROM messages", 3),
        ('SELECT ID, "id", [id], `id` FROM messages', 4),
        ("SELECT m.id, m.id FROM messages m", 2),
        ("SELECT length(a), length(b) FROM t", 1),
        ("SELECT y, y, y, y FROM (SELECT 1 AS y)", 25),
        ("SELECT y FROM (SELECT y FROM (SELECT 1 AS y))", 9),
        ("SELECT y, y FROM (SELECT y, y, y, y, y, y FROM (SELECT y, y AS y))", 11**3 // 8),
        ("SELECT plan, plan FROM t", 2),
        ("SELECT größe, größe FROM t", 2),
        ("SELECT case when a then b else c end AND 1 AND 2 AND 3 AND 4", 1),
    ],
)
def test_how_much_a_query_may_grow(sql: str, factor: int) -> None:
    assert growth_of(sql) == factor


def test_a_text_of_too_many_words() -> None:
    assert growth_of("a " * growth.WORDS_MAX)
    with pytest.raises(QueryInvalid, match="1001 words"):
        growth_of("a " * (growth.WORDS_MAX + 1))


@pytest.mark.parametrize("doubts", [2, 3])
def test_a_growth_that_was_not_ours_is_forgiven_twice(
    doubts: int, sync_bus: SyncMessageBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others allocate in the same library: at every third look there is more than before."""
    looks = itertools.count()
    monkeypatch.setattr(apsw, "memory_used", lambda: min(next(looks) // 3, doubts) * 70_000_000)
    query = Query(
        OpenStoreView(sync_bus._runtime.queues().store), "SELECT y FROM (SELECT id AS y FROM messages)", (), 10, 10, 256
    )
    if doubts == 2:
        assert len(query.run()) == 0
    else:
        with pytest.raises(QueryStopped, match="grows too large"):
            query.run()


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": float("inf")}, "time_limit"),
        ({"time_limit": "5"}, "time_limit"),
        ({"time_limit": True}, "time_limit"),
        ({"rows_max": 0}, "rows_max"),
        ({"rows_max": 1_000_001}, "rows_max"),
        ({"rows_max": None}, "rows_max"),
        ({"memory_mb": -1}, "memory_mb"),
        ({"memory_mb": float("nan")}, "memory_mb"),
    ],
)
def test_limits_are_checked(limits: dict[str, Any], told: str, bus: SyncMessageBus) -> None:
    with pytest.raises(UsageError, match=told):
        bus.query_messages("SELECT 1", **limits)


def test_rows_beyond_the_limit_are_left_out(bus: SyncMessageBus) -> None:
    bus.send_many("q", range(5))
    for rows_max, truncated in [(4, True), (5, False), (6, False)]:
        result = bus.query_messages("SELECT id FROM messages", rows_max=rows_max)
        assert (len(result), result.truncated) == (min(5, rows_max), truncated)


def test_a_result_that_is_too_large(bus: SyncMessageBus) -> None:
    bus.send_many("q", ["x" * 10_000] * 40)
    assert len(bus.query_messages("SELECT payload FROM messages", memory_mb=2)) == 40
    with pytest.raises(QueryStopped, match="memory"):
        bus.query_messages("SELECT a.payload FROM messages a, messages b", memory_mb=2)


def test_a_value_that_is_too_long(bus: SyncMessageBus, ask: Asked) -> None:
    bus.send("q", "x" * 9_000_000)
    bus.send("q", "short")
    with pytest.raises(QueryStopped, match="too large"):
        ask("SELECT payload FROM messages")
    assert ask("SELECT payload FROM messages WHERE size < 1000") == [('"short"',)]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("trim('  a b ')", "a b"),
        ("ltrim('  a ')", "a "),
        ("rtrim('  a ')", "  a"),
        ("trim('xyaxy', 'yx')", "a"),
        ("trim('a', '')", "a"),
        ("trim('', 'a')", ""),
        ("trim('aaa', 'a')", ""),
        ("trim(NULL)", None),
        ("trim('a', NULL)", None),
        ("trim(7)", "7"),
        ("instr('hello', 'l')", 3),
        ("instr('hello', '')", 1),
        ("instr('hello', 'x')", 0),
        ("instr('zoë!', '!')", 4),
        ("instr(x'0102', x'02')", 2),
        ("instr(123, 2)", 2),
        ("instr(NULL, 'a')", None),
        ("replace('aaa', 'a', 'bb')", "bbbbbb"),
        ("replace('aaa', '', 'b')", "aaa"),
        ("replace('abc', 'b', '')", "ac"),
        ("replace('abc', NULL, '')", None),
        ("replace(101, 1, 2)", "202"),
    ],
)
def test_our_functions_give_what_sqlite_gives(expression: str, value: object, sync_bus: SyncMessageBus) -> None:
    assert apsw.Connection(":memory:").execute(f"SELECT {expression}").get == value
    assert sync_bus.query_messages(f"SELECT {expression}").scalar() == value


@pytest.mark.parametrize(
    "parameters", [7, "text", b"bytes", {1, 2}, [object()], [2**70], {"a": [1]}, [1], [1, 2, 3], {"a": 1}]
)
def test_parameters_that_do_not_fit(parameters: Any, sync_bus: SyncMessageBus) -> None:
    with pytest.raises(QueryInvalid):
        sync_bus.query_messages("SELECT ?, ?", parameters)


def test_parameters_by_place_and_by_name(sync_bus: SyncMessageBus) -> None:
    for sql, parameters in [
        ("SELECT ?, ?", (1, "a")),
        ("SELECT :x, :y", {"x": 1, "y": "a"}),
        ("SELECT ?2, ?1", ["a", 1]),
    ]:
        assert sync_bus.query_messages(sql, parameters)[0] == (1, "a")
