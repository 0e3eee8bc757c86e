"""The sync face has the same names and the same rules, without any loop."""

import asyncio
import inspect
import threading

import pytest

from tests.unit.bus.probes import GUARD_S, Collector, bus_threads
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.entities.entities import Entities, SyncEntities
from unibus.bus.settings import BusConfig
from unibus.core.envelope.message import Message
from unibus.sync import MessageBus as Public


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_it_is_the_public_name() -> None:
    assert Public is SyncMessageBus


@pytest.mark.parametrize(("sync_face", "async_face"), [(SyncMessageBus, MessageBus), (SyncEntities, Entities)])
def test_both_faces_have_the_same_names_and_parameters(sync_face: type, async_face: type) -> None:
    assert public(sync_face) == public(async_face)
    for name in public(async_face) - {"degraded", "entities"}:  # Which are no verbs.
        ours = list(inspect.signature(getattr(sync_face, name)).parameters)
        theirs = list(inspect.signature(getattr(async_face, name)).parameters)
        assert ours == theirs, name


def test_it_needs_no_loop_and_makes_none(sync_bus: SyncMessageBus) -> None:
    before = bus_threads()
    got = Collector()
    sync_bus.subscribe("c", got)
    sync_bus.publish("c", 1)
    got.wait(1)
    assert {thread.name for thread in bus_threads() - before} == {"unibus-worker-1"}
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_results_are_values_not_awaitables(sync_bus: SyncMessageBus) -> None:
    assert isinstance(sync_bus.publish("c"), Message)
    assert isinstance(sync_bus.publish_many("c", [1]), list)
    assert isinstance(sync_bus.publish_json("c", 1), Message)
    assert isinstance(sync_bus.publish_from_sync("c"), Message)
    assert sync_bus.drain(1) is True
    assert sync_bus.stop(1) is True


def test_a_config_object_is_accepted() -> None:
    # New(config)
    with SyncMessageBus(BusConfig(worker_count=2, strict=True)) as bus, pytest.raises(LookupError):
        bus.publish("c")


def test_async_and_sync_handlers_side_by_side(sync_bus: SyncMessageBus) -> None:
    one, two = Collector(), Collector()

    async def handler(message: Message) -> None:
        await asyncio.sleep(0)
        two(message)

    sync_bus.subscribe("c", one)
    sync_bus.subscribe("c", handler)
    for number in range(100):
        sync_bus.publish("c", number)
    assert one.wait(100) == list(range(100))
    assert two.wait(100) == list(range(100))


def test_leaving_the_block_after_an_error_still_delivers() -> None:
    got = Collector()

    def program() -> None:
        with SyncMessageBus() as bus:
            bus.subscribe("c", got)
            for number in range(50):
                bus.publish("c", number)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        program()
    assert got.bodies == list(range(50))


def test_drain_says_whether_all_was_handled(sync_bus: SyncMessageBus) -> None:
    release = threading.Event()
    sync_bus.subscribe("c", lambda message: release.wait(GUARD_S) and None)
    sync_bus.publish("c")
    assert sync_bus.drain(0.01) is False
    release.set()
    assert sync_bus.drain(GUARD_S) is True


def test_kept_messages_do_not_keep_the_bus_from_being_drained(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c")
    sync_bus.publish("c")
    assert sync_bus.drain(GUARD_S) is True
