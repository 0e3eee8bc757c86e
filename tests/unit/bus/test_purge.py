"""`bus.purge` removes the messages of one entity, and history has one `purged` event for each."""

import pytest

from unibus import MessageBus
from unibus.errors import EntityNotFound, TransactionInvalid, UsageError
from unibus.sync import MessageBus as SyncMessageBus


async def test_a_purge_removes_all_but_in_flight_messages() -> None:
    async with MessageBus("memory://") as bus:
        await bus.send_many("q", range(1_203))
        [locked, deferred] = await bus.receive_batch("q", 2, timeout=0)
        await deferred.defer()
        await bus.send("q", "later", delay=60)
        assert await bus.purge("q") == 1_203
        assert [message.body for message in await bus.peek("q", 10)] == [locked.body]
        await locked.complete()
        assert await bus.purge("Q") == 0
        purged = [event for event in bus.events_after(0, 10_000)[0] if event.kind == "purged"]
        assert (len(purged), purged[0].channel, purged[0].reason) == (1_203, "q", "purged")


def test_subscriptions_and_dead_letter_queues() -> None:
    with SyncMessageBus("memory://") as bus:
        bus.create_topic("news")
        bus.create_subscription("news", "all")
        bus.create_subscription("news", "other")
        bus.send_many("news", range(3))
        [message] = bus.receive_batch("news/Subscriptions/all", timeout=0)
        message.dead_letter("Broken")
        assert bus.purge("news/Subscriptions/all") == 2
        assert bus.purge("news/Subscriptions/all/$DeadLetterQueue") == 1
        assert bus.purge("news/Subscriptions/other/$DeadLetterQueue") == 0
        assert len(bus.peek("news/Subscriptions/other", 10)) == 3


def test_what_is_refused() -> None:
    with SyncMessageBus("memory://") as bus:
        bus.create_topic("news")
        bus.send("q", 1)
        with pytest.raises(UsageError, match="'news' is a topic") as refused:
            bus.purge("news")
        assert refused.value.hint == "purge one of its subscriptions: news/Subscriptions/NAME"
        for missing in ("missing", "missing/$DeadLetterQueue"):
            with pytest.raises(EntityNotFound):
                bus.purge(missing)
        with bus.transaction(), pytest.raises(TransactionInvalid, match="purged"):
            bus.purge("q")
        assert bus.purge("q") == 1


def test_a_purge_survives_a_restart(folder: object) -> None:
    with SyncMessageBus(f"{folder}/bus.db") as bus:
        bus.send_many("q", range(700))
        assert bus.purge("q") == 700
    with SyncMessageBus(f"{folder}/bus.db") as bus:
        assert bus.peek("q", 10) == []
        assert bus.send("q", "new").sequence == 701
