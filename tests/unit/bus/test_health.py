"""How a bus says that it is well, and what becomes of it and of its file when it is not closed properly."""

import asyncio
import gc
import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, within
from tests.unit.bus.rigs import Rig, breaking_store
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.health import HealthStatus, health_of
from unibus.errors import StoreBusy, StoreFailed
from unibus.stores.seam.store import StoreHealth

# Asking


def test_a_bus_without_a_store_is_healthy(face: type) -> None:
    bus = face()
    health = bus.health_check()
    assert (health.status, health.problem, health.ok, health.store) == ("healthy", "", True, None)
    bus.create_channel("c")
    assert bus.health_check().channels == 1


def test_health_tells_of_the_store(rig: Rig) -> None:
    rig.send_many("q", [1, 2])
    health = rig.bus.health_check()
    assert health.status == "healthy"
    assert (health.store.ok, health.store.problem, health.store.messages) == (True, "", 2)
    assert health.store.durability == ("D2" if rig.durable else "D0")
    assert health.store.url.startswith("sqlite:///" if rig.durable else "memory://")
    assert health.store.last_seq > 0


async def test_health_may_be_awaited_and_need_not(queue_bus: MessageBus) -> None:
    assert await queue_bus.health_check() == queue_bus.health_check()


def test_a_closed_bus_is_unhealthy_and_says_so(rig: Rig) -> None:
    rig.send("q", 1)
    rig.close()
    health = rig.bus.health_check()
    assert (health.status, health.ok) == ("unhealthy", False)
    assert "closed" in health.problem


def test_degraded_is_still_ok() -> None:
    assert health_of(False, False, "memory instead", None, 0) == HealthStatus("degraded", "memory instead")
    assert health_of(False, False, "memory instead", None, 0).ok
    broken = StoreHealth(False, "x://", "D2", "gone")
    assert health_of(False, False, "memory instead", broken, 0).status == "unhealthy"
    assert health_of(False, False, "", broken, 0).problem == "gone"


def test_a_stopped_bus_says_so_until_it_is_started(sync_bus: SyncMessageBus) -> None:
    assert sync_bus.stop(GUARD_S)
    health = sync_bus.health_check()
    assert (health.status, health.ok) == ("stopped", True)  # It takes messages, and hands none over.
    assert "start()" in health.problem
    sync_bus.start()
    assert sync_bus.health_check().status == "healthy"


async def test_a_stopped_async_bus_says_so(async_bus: MessageBus) -> None:
    assert await async_bus.stop(GUARD_S)
    assert (await async_bus.health_check()).status == "stopped"


def test_what_is_broken_counts_for_more_than_a_stop() -> None:
    broken = StoreHealth(False, "x://", "D2", "gone")
    assert health_of(True, True, "", None, 0).problem == "the bus is closed"
    assert health_of(False, True, "", broken, 0).status == "unhealthy"
    assert health_of(False, True, "memory instead", None, 0).status == "stopped"


# A store that stops


async def test_every_waiter_gets_the_failure_and_the_bus_is_unhealthy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, journal = breaking_store(tmp_path / "bus.db")
    bus = MessageBus(store)
    await bus.send("q", "before")
    journal.broken = True
    calls = [bus.send("q", number) for number in range(5)]
    calls += [bus.send_many("q", [1, 2]), bus.publish("c", 1), bus.receive_batch("q", 1, timeout=0)]  # type: ignore[list-item]
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), GUARD_S)
    assert [type(result) for result in results] == [StoreFailed] * 8
    for verb in (lambda: bus.send("q", 1), lambda: bus.publish("c", 1), bus.entities, lambda: bus.peek("q")):
        with pytest.raises(StoreFailed):
            await verb()
    health = bus.health_check()
    assert (health.status, health.ok) == ("unhealthy", False)
    assert "disk is gone" in health.problem
    await bus.close(0.2)
    await bus.close(0.2)
    journal.broken = False
    again = MessageBus(persistence_path=tmp_path / "bus.db")
    assert [message.body for message in await again.receive_batch("q", 9, timeout=0)] == ["before"]
    await again.close()


async def test_each_waiter_gets_an_error_of_its_own(tmp_path: Path) -> None:
    store, journal = breaking_store(tmp_path / "bus.db")
    bus = MessageBus(store)
    journal.broken = True
    results = await asyncio.gather(*(bus.send("q", number) for number in range(5)), return_exceptions=True)
    await bus.close(0.2)
    assert len({id(result) for result in results}) == 5


def test_threads_that_wait_for_the_commit_get_the_failure(tmp_path: Path) -> None:
    store, journal = breaking_store(tmp_path / "bus.db")
    bus = SyncMessageBus(store)
    journal.broken = True
    errors: list[BaseException] = []

    def send(number: int) -> None:
        try:
            bus.send("q", number)
        except StoreFailed as error:
            errors.append(error)

    threads = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD_S)
    assert len(errors) == 4
    within(lambda: bus.close(0.2))


async def test_who_waits_for_messages_gets_the_failure_too(tmp_path: Path) -> None:
    store, journal = breaking_store(tmp_path / "bus.db")
    bus = MessageBus(store)
    await bus.create_queue("q")
    waiting = asyncio.ensure_future(bus.receive_batch("q", 1))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    journal.broken = True
    with pytest.raises(StoreFailed):
        await bus.send("other", 1)
    try:
        with pytest.raises(StoreFailed):
            await asyncio.wait_for(waiting, 0.5)
    finally:
        await bus.close(0.2)


# Closing, and not closing


def test_closing_twice_and_at_once_is_closing(file_rig: Rig) -> None:
    file_rig.send("q", 1)
    threads = [threading.Thread(target=file_rig.close, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD_S)
    assert not any(thread.is_alive() for thread in threads)
    file_rig.reopen()
    assert file_rig.one("q").body == 1


def test_a_file_has_one_owner(file_rig: Rig, face: type) -> None:
    with pytest.raises(StoreBusy) as caught:
        face(persistence_path=file_rig.path)
    assert "process" in str(caught.value)
    assert caught.value.hint


def test_a_dropped_bus_lets_go_of_its_file(tmp_path: Path, face: type) -> None:
    bus = face(persistence_path=tmp_path / "bus.db")
    if isinstance(bus, SyncMessageBus):
        bus.create_channel("c", persistent=True)
        bus.subscribe("c", print, group="g")
        bus.send("q", 1)
    del bus
    gc.collect()
    again = SyncMessageBus(persistence_path=tmp_path / "bus.db")
    if face is SyncMessageBus:
        assert again.receive_batch("q", timeout=0)[0].body == 1
    again.close()


SCRIPT = """
import asyncio, os, sys, threading
from unibus import MessageBus
from unibus.sync import MessageBus as SyncBus

async def on_a_loop():
    bus = MessageBus(sys.argv[1])
    await bus.send_many("q", list(range(100)))
    bus.create_channel("c")
    await bus.publish("c", "published")

def in_a_thread():
    bus = SyncBus(sys.argv[1])
    bus.send_many("q", list(range(100)))
    bus.create_channel("c")
    bus.publish("c", "published")

asyncio.run(on_a_loop()) if sys.argv[2] == "async" else in_a_thread()
if sys.argv[3] == "at once":
    os._exit(0)
"""


@pytest.mark.processes
@pytest.mark.parametrize("how", ["at the end", "at once"])
def test_a_process_that_ends_without_close_loses_nothing_it_was_promised(tmp_path: Path, face: type, how: str) -> None:
    name = "async" if face is MessageBus else "sync"
    command = [sys.executable, "-c", SCRIPT, f"sqlite:///{tmp_path}/bus.db", name, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    bus = SyncMessageBus(tmp_path / "bus.db")
    assert [message.body for message in bus.receive_batch("q", 200, timeout=0)] == list(range(100))
    rows, _ = bus.events_after(0)
    assert "c" in [row.channel for row in rows if row.kind == "sent"]
    bus.close()


def test_a_stopped_store_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, journal = breaking_store(tmp_path / "bus.db")
    bus = SyncMessageBus(store)
    journal.broken = True
    with caplog.at_level(logging.ERROR, logger="unibus"):
        for _ in range(3):
            with pytest.raises(StoreFailed):
                bus.send("q", 1)
    assert len([record for record in caplog.records if "has stopped" in record.getMessage()]) == 1
    bus.close(0.2)
