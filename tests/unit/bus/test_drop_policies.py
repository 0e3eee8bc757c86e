"""What a full queue does: drop_new, drop_old."""

from pathlib import Path
from typing import cast

import pytest

from tests.unit.bus.probes import Collector, Gate
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.settings import DROP_POLICIES, ChannelConfig, DropPolicy
from unibus.errors import ConfigInvalid, QueueFull


def filled(bus: SyncMessageBus, policy: str, *waiting: tuple[str, int], **settings: object) -> None:
    bus.create_channel("c", max_queue_size=len(waiting), drop_policy=policy, **settings)
    for body, priority in waiting:
        bus.publish("c", body, priority)


def rest(bus: SyncMessageBus) -> list[object]:
    bodies: list[object] = []
    while (message := bus.pop("c")) is not None:
        bodies.append(message.body)
    return bodies


def test_drop_new_refuses_and_gives_the_message_back(sync_bus: SyncMessageBus) -> None:
    filled(sync_bus, "drop_new", ("a", 100))
    with pytest.raises(QueueFull) as caught:
        sync_bus.publish("c", "b", 0)
    assert caught.value.item.body == "b"  # type: ignore[attr-defined]
    assert caught.value.retryable
    assert isinstance(caught.value, RuntimeError)
    assert rest(sync_bus) == ["a"]


def test_drop_old_evicts_the_least_urgent_class_oldest_first(sync_bus: SyncMessageBus) -> None:
    filled(sync_bus, "drop_old", ("low1", 75), ("critical", 0), ("low2", 75), ("normal", 50))
    sync_bus.publish("c", "new1", 50)
    sync_bus.publish("c", "new2", 50)
    assert rest(sync_bus) == ["critical", "normal", "new1", "new2"]
    assert sync_bus.snapshot("c").channels[0].evicted == 2


def test_drop_old_makes_room_within_the_same_class(sync_bus: SyncMessageBus) -> None:
    # Equally urgent is not more urgent.
    filled(sync_bus, "drop_old", ("a", 50), ("b", 50))
    sync_bus.publish("c", "c", 50)
    assert rest(sync_bus) == ["b", "c"]


def test_drop_old_never_evicts_something_more_urgent(sync_bus: SyncMessageBus) -> None:
    filled(sync_bus, "drop_old", ("a", 50), ("b", 25))
    with pytest.raises(QueueFull):
        sync_bus.publish("c", "late", 51)
    assert rest(sync_bus) == ["b", "a"]
    assert sync_bus.snapshot("c").channels[0].evicted == 0


def test_an_eviction_is_a_dead_letter_where_a_channel_is_named(sync_bus: SyncMessageBus) -> None:
    filled(sync_bus, "drop_old", ("a", 50), dead_letter_channel="dlq")
    sync_bus.publish("c", "b", 50)
    letter = sync_bus.pop("dlq")
    assert letter is not None
    assert letter.body == "a"
    assert letter.headers["DeadLetterReason"] == "QueueOverflow"


def test_an_eviction_is_not_kept_where_none_is_named(sync_bus: SyncMessageBus) -> None:
    filled(sync_bus, "drop_old", ("a", 50))
    sync_bus.publish("c", "b", 50)
    assert sync_bus.dead_letters("c") == []
    assert sync_bus.metrics("c")["dropped"] == 1


def test_drop_old_works_on_the_backlog_of_a_slow_group(sync_bus: SyncMessageBus) -> None:
    sync_bus.create_channel("c", max_queue_size=2, drop_policy="drop_old")
    slow, quick = Gate(), Collector()
    sync_bus.subscribe("c", slow)
    sync_bus.subscribe("c", quick)
    sync_bus.publish("c", 0)
    slow.wait_entered()
    for number in range(1, 6):
        sync_bus.publish("c", number)
        quick.wait(number + 1)
    slow.open()
    assert sync_bus.drain(10)
    assert [message.body for message in slow.messages] == [0, 4, 5]
    assert quick.bodies == [0, 1, 2, 3, 4, 5]
    assert sync_bus.snapshot("c").channels[0].evicted == 3


def test_drop_old_for_many_at_once_is_all_or_none(sync_bus: SyncMessageBus) -> None:
    filled(sync_bus, "drop_old", ("a", 0), ("b", 50), ("c", 75))
    with pytest.raises(QueueFull):
        sync_bus.publish_many("c", ["x", "y", "z"], priority=50)
    sync_bus.publish_many("c", ["x", "y"], priority=50)
    assert rest(sync_bus) == ["a", "x", "y"]


def test_an_unknown_drop_policy_is_refused(sync_bus: SyncMessageBus) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        sync_bus.create_channel("c", drop_policy="drop_random")
    assert "drop_old" in caught.value.hint
    assert sync_bus.channels() == []


def test_one_row_makes_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DROP_POLICIES, "newest_wins", DropPolicy(evicts=True, waits=False, is_for_stores=False))
    with SyncMessageBus(f"sqlite:///{tmp_path}/a.db") as bus:
        bus.create_channel("c", max_queue_size=1, drop_policy="newest_wins", persistent=False)
        bus.publish("c", 1)
        bus.publish("c", 2)
        assert bus.queue_size("c") == 1
        with pytest.raises(ConfigInvalid, match="persistent") as refused:
            bus.create_channel("d", persistent=True, drop_policy="newest_wins")
        assert "use 'drop_new' or 'block'" in str(refused.value.hint)
        with pytest.raises(ConfigInvalid) as unknown:
            bus.create_channel("e", drop_policy="oldest_wins", persistent=False)
        assert "newest_wins" in str(unknown.value.hint)


@pytest.mark.parametrize("value", [["block"], {"block"}, {"drop_new": 1}, None, 1, b"block"])
def test_a_drop_policy_that_is_no_text_is_refused_by_name(value: object) -> None:
    with pytest.raises(ConfigInvalid, match="unknown drop_policy"):
        ChannelConfig(drop_policy=cast(str, value))
