"""The process's own bus, and its set-up from settings."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.bus.probes import Collector
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.process_bus import (
    configure_message_bus,
    get_message_bus,
    messaging_settings,
    setup_message_bus,
    shutdown_message_bus,
)
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import BusClosed, BusError, ConfigInvalid, StoreUnavailable, UsageError


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    shutdown_message_bus()


def test_get_makes_one_lazily_and_only_one() -> None:
    assert get_message_bus() is get_message_bus()
    assert isinstance(get_message_bus(), MessageBus)


def test_configure_sets_and_gives_the_bus() -> None:
    bus = MessageBus()
    assert configure_message_bus(bus) is bus
    assert get_message_bus() is bus
    other = configure_message_bus("memory://")
    assert get_message_bus() is other is not bus
    assert get_message_bus() is not configure_message_bus()


def test_shutdown_without_a_loop_has_happened_when_it_returns() -> None:
    bus = get_message_bus()
    got = Collector()
    bus.subscribe("c", got)
    for number in range(20):
        bus.publish_from_sync("c", number)
    shutdown_message_bus()
    assert got.bodies == list(range(20))
    with pytest.raises(BusClosed):
        bus.publish_from_sync("c")
    assert get_message_bus() is not bus
    shutdown_message_bus()
    shutdown_message_bus()


async def test_shutdown_on_a_loop_is_awaited() -> None:
    bus = get_message_bus()
    await shutdown_message_bus()
    with pytest.raises(BusClosed):
        await bus.publish("c")
    await shutdown_message_bus()
    assert get_message_bus() is not bus
    await shutdown_message_bus()


def test_the_result_of_shutdown_may_be_awaited_later() -> None:
    get_message_bus()
    done = shutdown_message_bus()

    async def later() -> None:
        await done

    asyncio.run(later())


def test_defaults_of_the_messaging_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    assert messaging_settings(None) == {"backend": "in_memory"}
    assert messaging_settings({"messaging": {}}) == {"backend": "in_memory"}
    redis = messaging_settings({"messaging": {"backend": "redis"}})
    assert (redis["redis_url"], redis["stream_prefix"]) == ("redis://localhost:6379/0", "atlas_bus")
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere:1/2")
    assert messaging_settings({"backend": "redis"})["redis_url"] == "redis://elsewhere:1/2"
    with pytest.raises(ConfigInvalid) as caught:
        messaging_settings({"bakend": "redis"})
    assert "backend" in caught.value.hint


def test_setup_makes_the_process_bus() -> None:
    bus = setup_message_bus({"messaging": {"worker_count": 2, "strict": True}}, logging.getLogger("mine"))
    assert get_message_bus() is bus
    with pytest.raises(LookupError):
        bus.publish_from_sync("c")
    assert setup_message_bus() is get_message_bus()


def test_redis_does_not_silently_turn_into_memory() -> None:
    before = get_message_bus()
    with pytest.raises(StoreUnavailable) as caught:
        setup_message_bus({"messaging": {"backend": "redis"}})
    assert caught.value.hint
    assert get_message_bus() is before


def test_degraded_only_when_allowed_and_then_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="mine"):
        bus = setup_message_bus({"backend": "redis", "allow_degraded": True}, logging.getLogger("mine"))
    assert any("memory" in record.getMessage() for record in caplog.records if record.name == "mine")
    assert get_message_bus() is bus
    assert "redis" in bus.degraded
    assert not MessageBus().degraded
    bus.publish_from_sync("c")


@pytest.mark.parametrize(
    "store",
    [
        "redis://localhost",
        "rediss://localhost",
        "postgresql://localhost/x",
        "tidb://localhost/x",
        "http://localhost:5300",
    ],
    ids=str,
)
@pytest.mark.parametrize("face", [MessageBus, SyncMessageBus])
def test_stores_that_are_not_built_are_refused_with_a_hint(face: type, store: object) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        face(store)
    assert caught.value.hint


@pytest.mark.parametrize("store", [None, "memory://", "memory", "in_memory"])
def test_memory_has_several_names(store: object) -> None:
    MessageBus(store)


@pytest.mark.parametrize("store", ["carrier-pigeon://x", 5, object()])
def test_what_is_no_store_is_refused(store: object) -> None:
    with pytest.raises(UsageError):
        MessageBus(store)


def test_persistence_by_the_first_designs_names(tmp_path: Path) -> None:
    for bus in (
        SyncMessageBus(persistence_path=tmp_path / "a.db"),
        SyncMessageBus().with_persistence(tmp_path / "b.db"),
    ):
        assert isinstance(bus, SyncMessageBus)
        bus.create_channel("c", persistent=True)
        bus.publish("c", 1)
        assert [info.name for info in bus.entities()] == ["c"]
        bus.close()
    assert {path.name for path in tmp_path.glob("*.db")} == {"a.db", "b.db"}


def test_persistence_without_a_store_is_refused(sync_bus: SyncMessageBus) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        sync_bus.create_channel("c", persistent=True)
    assert caught.value.hint
    assert isinstance(caught.value, BusError)
    with pytest.raises(UsageError):
        sync_bus.with_persistence(object())
    assert sync_bus.channels() == []
