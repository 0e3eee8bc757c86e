"""What a store offers to protocol servers beyond its contract: counters, speed, where commits run, and old files."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.commands import BY_TOKEN, COMPLETE, DEAD_LETTER, Declare, Settle
from unibus.core.lifecycle.state.changes import SavedSession
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.inspection.repair import check
from unibus.stores.memory import MemoryJournal
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    with VirtualClock() as clock:
        timers = clock.timers(lambda: True)
        assert timers is not None
        store = EmbeddedStore(MemoryJournal(), clock, timers)
        yield Rig(store, clock)
        store.close()


def test_counters_since_the_store_was_opened(rig: Rig) -> None:
    rig.queue("q", max_delivery_count=2)
    rig.topic("t")
    path = rig.subscription("t", "s")
    rig.fill("q", range(4))
    rig.send("t")
    first, second, third = rig.claim("q", 3)
    rig.complete(first)
    rig.abandon(second)
    rig.settle(DEAD_LETTER, third)
    rig.claim("q", 1, lock=False)
    info = rig.info("q")
    counts = (info.sent, info.delivered, info.completed, info.abandoned, info.dead_lettered)
    assert counts == (4, 4, 2, 1, 1)
    assert (rig.info("t").sent, rig.info(path).sent, rig.info(sub_queue("q")).sent) == (1, 1, 1)


def test_a_replay_counts_nothing(tmp_path: Path) -> None:
    with VirtualClock() as clock:
        timers = clock.timers(lambda: True)
        assert timers is not None
        for _ in range(2):
            store = EmbeddedStore(SqliteJournal(str(tmp_path / "bus.db")), clock, timers)
            rig = Rig(store, clock)
            rig.queue("q")
            assert (rig.info("q").sent, rig.info("q").completed) == (0, 0)
            rig.send("q")
            rig.complete(rig.one("q"))
            assert (rig.info("q").sent, rig.info("q").completed) == (1, 1)
            store.close()


def test_a_token_with_another_first_byte_stays_valid(rig: Rig) -> None:
    """As earlier versions have drawn them."""
    store = rig.store
    assert isinstance(store, EmbeddedStore)
    rig.queue("q")
    rig.send("q")
    store._tokens._left = [b"\xff" * 16]
    assert rig.one("q").token == b"\xff" * 16
    rig.run(Settle(COMPLETE, "", BY_TOKEN, b"\xff" * 16))


def test_a_session_of_an_earlier_version_has_no_instant() -> None:
    earlier = msgspec.msgpack.encode(["s", b"state", None, 0, ""])
    assert msgspec.msgpack.decode(earlier, type=SavedSession) == SavedSession("s", b"state", None, 0)


def best_us(call: Any, rounds: int = 50) -> float:
    """The best of many: what it costs where nothing else runs."""
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter_ns()
        call()
        best = min(best, time.perf_counter_ns() - began)
    return best / 1_000


def test_one_of_many_entities_costs_the_same_as_one_of_few(rig: Rig) -> None:
    catalog = rig.store.catalog
    store = rig.store
    assert isinstance(store, EmbeddedStore)
    store._state.most[QUEUE] = 100_000
    rig.queue("q-0")
    few_us = best_us(lambda: catalog.entity("q-0").wait())
    for number in range(1, 3_000):
        rig.run(Declare(f"q-{number}", QUEUE, {}))
    assert best_us(lambda: catalog.entity("Q-1500").wait()) < 5 * few_us + 50
    catalog.page(QUEUE, "", 0, 1).wait()
    assert best_us(lambda: catalog.page(QUEUE, "", 2_990, 1).wait()) < 5 * few_us + 50


def test_a_peek_and_a_look_at_the_end_of_a_long_queue_are_quick(rig: Rig) -> None:
    rig.queue("q", max_size_mb=1000)
    for sequence in rig.fill("q", range(2_000)):
        assert sequence
    rig.peek("q", 0, 1)
    near = best_us(lambda: rig.peek("q", 0, 1))
    assert best_us(lambda: rig.peek("q", 1_999, 1)) < 5 * near + 50
    rig.drain("q")
    rig.send("q")
    rig.info("q")
    looked = best_us(lambda: rig.store.catalog.entity("q").wait())
    assert looked < 5 * near + 100


async def test_a_servers_commits_run_in_the_stores_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    append = SqliteJournal.append

    def noted(journal: SqliteJournal, *args: Any) -> None:
        threads.append(threading.current_thread().name)
        append(journal, *args)

    monkeypatch.setattr(SqliteJournal, "append", noted)
    async with MessageBus(f"sqlite:///{tmp_path}/bus.db") as bus:
        await bus.create_queue("q")
        broker = Broker(bus)
        threads.clear()
        await asyncio.gather(*[_awaited(broker, n) for n in range(300)])
        await broker.receive("q")
        assert set(threads) == {"unibus-commit"}


async def _awaited(broker: Broker, number: int) -> None:
    await broker.send("q", broker.message("q", number, {}))


@pytest.mark.parametrize("url", ["sqlite:///{0}/bus.db", "jsonfile:///{0}/bus"])
async def test_the_namespace_outlives_the_process_and_a_check_finds_nothing(url: str, tmp_path: Path) -> None:
    rule = AuthorizationRule.generated("one", [Right.LISTEN], bytes(64))
    url = url.format(tmp_path)
    async with MessageBus(url) as bus:
        await bus.create_queue("q")
        await Broker(bus).set_namespace_rules([rule])
    for _ in range(2):
        async with MessageBus(url) as bus:
            assert Broker(bus).namespace_rules() == (rule,)
            assert bus._runtime.queues().store.check() == []
            assert [info.name for info in await bus.entities()] == ["q"]
            found = await bus.query_messages("SELECT channel FROM messages")
            assert list(found.rows) == []
    checked = check(str(tmp_path / ("bus.db" if url.startswith("sqlite") else "bus")))
    assert (checked.findings, checked.entities) == ([], 1)
