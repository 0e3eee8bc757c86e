"""History: replay, prune and delete, through the bus and through SqlitePersistence."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.compat.persistence import SqlitePersistence
from unibus.core.envelope.message import Message
from unibus.errors import EntityNotFound, StoreFailed, UsageError


@pytest.fixture(params=["memory", "sqlite"])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SyncMessageBus]:
    with SyncMessageBus(tmp_path / "bus.db" if request.param == "sqlite" else None) as bus:
        yield bus


def bodies(bus: SyncMessageBus, channel: str, after: object = 0) -> list[object]:
    return [message.body for message in bus.replay(channel, after)]


def test_replay_gives_what_was_completed_long_ago(bus: SyncMessageBus) -> None:
    bus.send_many("q", [1, 2, 3], headers={"h": "x"})
    bus.complete_many(bus.receive_batch("q", 3, timeout=5))
    found = list(bus.replay("q", 1))
    assert [(message.sequence, message.body, message.headers) for message in found] == [
        (2, 2, {"h": "x"}),
        (3, 3, {"h": "x"}),
    ]


def test_replay_from_an_instant(bus: SyncMessageBus) -> None:
    bus.send("q", "before")
    instant = datetime.now(UTC)
    bus.send("q", "after")
    assert bodies(bus, "q", instant) == ["after"]
    assert bodies(bus, "q", instant + timedelta(hours=1)) == []


def test_the_store_works_during_a_replay(bus: SyncMessageBus) -> None:
    bus.send_many("q", list(range(10)))
    replayed = bus.replay("q")
    assert next(replayed).body == 0
    bus.send("other", "x")
    assert [message.body for message in replayed] == list(range(1, 10))


@pytest.mark.parametrize("after", [-1, True, 1.5, "yesterday", datetime(2026, 1, 1)])
def test_no_place_in_history(bus: SyncMessageBus, after: object) -> None:
    bus.send("q", 1)
    with pytest.raises(UsageError):
        list(bus.replay("q", after))
    with pytest.raises(EntityNotFound):
        list(bus.replay("missing"))


def test_pruning_by_sequence_leaves_what_waits(bus: SyncMessageBus) -> None:
    bus.send_many("q", [1, 2, 3, 4])
    bus.complete_many(bus.receive_batch("q", 1, timeout=5))
    assert bus.prune_before(3, "q") == 2
    assert bodies(bus, "q") == [3, 4]
    assert [message.body for message in bus.receive_batch("q", 9, timeout=5)] == [2, 3, 4]
    assert bus.prune_before(3, "q") == 0


def test_pruning_by_time_takes_what_a_channel_kept(bus: SyncMessageBus) -> None:
    bus.create_topic("kept", keeps=True)
    bus.send_many("kept", [1, 2])
    bus.send("q", "elsewhere")
    instant = datetime.now(UTC)
    bus.send("kept", 3)
    assert bus.prune_before(instant) == 3
    assert (bodies(bus, "kept"), bodies(bus, "q")) == ([3], [])
    assert [info.active for info in bus.entities() if info.name in ("kept", "q")] == [1, 1]
    with pytest.raises(UsageError, match="name the channel"):
        bus.prune_before(5)


def test_deleting_one_message_everywhere(bus: SyncMessageBus) -> None:
    bus.create_topic("t")
    bus.create_subscription("t", "a")
    bus.create_subscription("t", "b")
    bus.send("t", 1, message_id="m1")
    bus.send("t", 2, message_id="m2")
    bus.receive_batch("t/Subscriptions/a", 1, timeout=5)  # In flight.
    assert bus.delete_message("m1") == 3
    assert bodies(bus, "t") == bodies(bus, "t/Subscriptions/a") == [2]
    assert [info.active for info in bus.entities() if info.kind == "subscription"] == [1, 1]
    assert [info.locked for info in bus.entities() if info.kind == "subscription"] == [1, 0]
    assert bus.delete_message("m1") == 0
    assert bus.delete_message("unknown") == 0


def test_the_async_face_has_the_same(tmp_path: Path) -> None:
    async def main() -> tuple[list[object], int, int, str]:
        async with MessageBus(tmp_path / "bus.db") as bus:
            sent = await bus.send_many("q", [1, 2, 3])
            deleted = await bus.delete_message(sent[0].id)
            pruned = await bus.prune_before(3, "q")
            trace = await bus.trace_message(sent[2].id)
            return [message.body async for message in bus.replay("q")], deleted, pruned, trace.status

    assert asyncio.run(main()) == ([3], 1, 1, "waiting")


@pytest.fixture(params=["memory", "sqlite"])
def persistence(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlitePersistence]:
    made = SqlitePersistence.new(tmp_path / "p.db") if request.param == "sqlite" else SqlitePersistence.in_memory()
    with made as kept:
        yield kept


def test_the_four_verbs_of_the_first_design(persistence: SqlitePersistence) -> None:
    messages = [Message.new("c", number) for number in range(4)]
    for message in messages:
        persistence.persist(message)
    persistence.persist(messages[1])  # The same id again replaces it.
    assert sorted(message.id for message in persistence.replay("c")) == sorted(message.id for message in messages)
    after = persistence.replay("c", messages[1].timestamp_ns)
    assert [message.body for message in after] == [2, 3]
    assert persistence.delete(messages[2].id)
    assert not persistence.delete(messages[2].id)
    assert persistence.prune_before(messages[3].timestamp_ns) == 2
    assert [message.id for message in persistence.replay("c")] == [messages[3].id]
    assert persistence.replay("unknown") == []


def test_a_bus_on_a_persistence(tmp_path: Path) -> None:
    with SqlitePersistence.new(tmp_path / "p.db") as persistence:
        bus = SyncMessageBus().with_persistence(persistence)
        bus.create_channel("c", persistent=True)
        bus.publish("c", "kept")
        assert [message.body for message in persistence.replay("c")] == ["kept"]
        bus.close()


def test_a_persistence_whose_store_fails_to_close_ends_its_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    persistence = SqlitePersistence.in_memory()
    store = persistence.store

    class Failing:
        def close(self) -> None:
            store.close()
            raise StoreFailed("the disk is gone")

    monkeypatch.setattr(persistence, "store", Failing())
    with pytest.raises(StoreFailed):
        persistence.close()
    assert persistence._timers._stopped
