"""An inline handler that raises SystemExit or KeyboardInterrupt: the publish finishes its work, then raises it."""

import threading

import pytest

from tests.unit.bus.probes import GUARD_S, Collector
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.envelope.message import Message


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_the_other_groups_get_the_message_and_the_publisher_the_exit(
    sync_bus: SyncMessageBus, kind: type[BaseException]
) -> None:
    heard: list[object] = []

    def leave(message: Message) -> None:
        raise kind

    pooled = Collector()
    sync_bus.subscribe("c", leave, dispatch="inline", retry_attempts=0)
    sync_bus.subscribe("c", lambda message: heard.append(message.body), dispatch="inline")
    sync_bus.subscribe("c", pooled)
    with pytest.raises(kind):
        sync_bus.publish("c", 1)
    assert pooled.wait(1) == [1]
    assert heard == [1]
    with pytest.raises(kind):
        sync_bus.publish_many("c", [2, 3])
    assert pooled.wait(3) == [1, 2, 3]
    assert heard == [1, 2, 3]
    assert sync_bus.drain(GUARD_S)
    assert [letter.body for letter in sync_bus.dead_letters("c")] == [1, 2, 3]


async def test_the_same_for_a_publisher_on_a_loop(async_bus: MessageBus) -> None:
    def leave(message: Message) -> None:
        raise SystemExit

    pooled = Collector()
    async_bus.subscribe("c", leave, dispatch="inline", retry_attempts=0)
    async_bus.subscribe("c", pooled)
    with pytest.raises(SystemExit):
        await async_bus.publish("c", 1)
    assert await async_bus.drain(GUARD_S)
    assert pooled.bodies == [1]


def test_all_that_was_evicted_is_dead_lettered_and_the_new_message_delivered(sync_bus: SyncMessageBus) -> None:
    dead: list[object] = []

    def leave(message: Message) -> None:
        dead.append(message.body)
        raise SystemExit

    sync_bus.create_channel("c", max_queue_size=2, drop_policy="drop_old", dead_letter_channel="dead")
    sync_bus.subscribe("dead", leave, dispatch="inline", retry_attempts=0)
    sync_bus.publish_many("c", [1, 2])
    with pytest.raises(SystemExit):
        sync_bus.publish_many("c", [3, 4])
    assert dead == [1, 2]
    assert [message.body for message in (sync_bus.pop("c"), sync_bus.pop("c")) if message] == [3, 4]


def test_the_timers_outlive_an_action_that_raises_system_exit() -> None:
    # As worker threads do. Without this thread no retry, no lock renewal and no deadline of a store would be made.
    reported: list[BaseException] = []
    ran = threading.Event()

    def leave() -> None:
        raise SystemExit(1)

    timers = ThreadTimers(SYSTEM_CLOCK, reported.append)
    timers.after(0, leave)
    timers.after(0, ran.set)
    assert ran.wait(GUARD_S)
    timers.stop()
    assert [type(error) for error in reported] == [SystemExit]
