"""Names that read as patterns: `subscribe` takes them so, and no new channel gets one."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S, Collector
from tests.unit.bus.rigs import FACES, Rig
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.compat.backends import InMemoryQueueBackend
from unibus.bus.compat.persistence import SqlitePersistence
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.state.entity import QUEUE, TOPIC
from unibus.core.topics.pattern import EXACT, WILDCARD, Pattern
from unibus.errors import BusClosed, ConfigInvalid, EntityExists, NameInvalid

PATTERNS = ["*", "#", ">", "orders.*", "*.orders", "orders.*.eu", "orders.#", "orders.>"]
PLAIN = ["C#", "a>b", "a*", "*a", "orders.C#", "#.orders", ">.orders", "orders.#.eu", "a..b", "orders*"]


@pytest.fixture
def old_file(folder: Path) -> Path:
    """A store of the time when any printable name was a channel name."""
    path = folder / "old.db"
    with SqlitePersistence.new(path) as persistence:
        persistence.store.apply([Declare("orders.*", TOPIC, {"keeps": True})]).wait()
        persistence.store.apply([Declare("jobs.#", QUEUE, {})]).wait()
    return path


@pytest.fixture
def old_bus(old_file: Path) -> Iterator[SyncMessageBus]:
    """On a durable URL: every channel is persistent."""
    bus = SyncMessageBus(old_file)
    yield bus
    bus.close(drain_timeout=0.2)


@pytest.fixture(params=FACES, ids=["async", "sync"])
def durable_rig(request: pytest.FixtureRequest, folder: Path) -> Iterator[Rig]:
    made = DurableRig(request.param, folder / "durable.db")
    yield made
    made.end()


class DurableRig(Rig):
    """On a durable URL."""

    def _made(self) -> object:
        return self.do(lambda: self._face(self.path))


# Subscribing


@pytest.mark.parametrize("name", PATTERNS)
def test_a_name_with_a_whole_token_that_is_a_wildcard_is_a_pattern(sync_bus: SyncMessageBus, name: str) -> None:
    subscription = sync_bus.subscribe(name, Collector())
    assert subscription.pattern == Pattern.wildcard(name)
    assert sync_bus.channels() == []


@pytest.mark.parametrize("name", PLAIN)
def test_any_other_name_is_a_channel(sync_bus: SyncMessageBus, name: str) -> None:
    seen = Collector()
    assert sync_bus.subscribe(name, seen).pattern == Pattern.exact(name)
    sync_bus.publish(name, 1)
    assert seen.wait(1) == [1]


def test_a_pattern_without_match_gets_what_it_matches(rig: Rig) -> None:
    one, tail, some = Collector(), Collector(), Collector()
    rig.subscribe("a.*", one)
    rig.subscribe("a.#", tail)
    rig.subscribe("a.>", some)
    for name in ("a", "a.b", "a.b.c", "ab"):
        rig.publish(name, name)
    assert rig.drain(GUARD_S)
    assert one.bodies == ["a.b"]
    assert tail.bodies == ["a", "a.b", "a.b.c"]
    assert some.bodies == ["a.b", "a.b.c"]


def test_a_decorator_and_the_form_with_a_module_take_patterns(sync_bus: SyncMessageBus) -> None:
    seen: list[object] = []

    @sync_bus.subscribe("a.*")
    def handler(message: Message) -> None:
        seen.append(("decorated", message.body))

    sync_bus.subscribe("a.*", "module", lambda message: seen.append(("module", message.body)))
    sync_bus.publish("a.b", 1)
    assert sync_bus.drain(GUARD_S)
    assert sorted(seen) == [("decorated", 1), ("module", 1)]


def test_a_pattern_that_mixes_letters_and_wildcards_is_refused(sync_bus: SyncMessageBus) -> None:
    with pytest.raises(NameInvalid, match="mixes letters"):
        sync_bus.subscribe("a.*.b*", Collector())


def test_match_is_what_it_says(sync_bus: SyncMessageBus) -> None:
    assert sync_bus.subscribe("a.*", Collector(), match="prefix").pattern == Pattern.prefix("a.*")
    with pytest.raises(NameInvalid, match="is a wildcard pattern"):
        sync_bus.subscribe("a.*", Collector(), match="exact")
    with pytest.raises(NameInvalid, match="is a wildcard pattern"):
        sync_bus.subscribe(Pattern.exact("a.*"), Collector())


def test_a_strict_bus_takes_patterns() -> None:
    with SyncMessageBus(strict=True) as bus:
        bus.create_channel("a.b")
        seen = Collector()
        bus.subscribe("a.*", seen)
        bus.publish("a.b", 1)
        assert seen.wait(1) == [1]


def test_a_closed_bus_says_so(durable_rig: Rig) -> None:
    durable_rig.close(1)
    with pytest.raises(BusClosed):
        durable_rig.subscribe("a.*", Collector())


# Unsubscribing


@pytest.mark.parametrize("name", ["a.*", "a.b"])
def test_unsubscribing_by_the_same_text_ends_all_its_subscriptions(durable_rig: Rig, rig: Rig, name: str) -> None:
    for each in (durable_rig, rig):
        ended, other = Collector(), Collector()
        each.subscribe(name, ended, group="one")
        each.subscribe(name, ended, group="two")
        each.subscribe("a.#", other)
        assert each.unsubscribe(name) is True
        assert each.unsubscribe(name) is False
        each.publish("a.b", 1)
        assert other.wait(1) == [1]
        assert each.drain(GUARD_S)
        assert ended.bodies == []


# New channels


@pytest.mark.parametrize("name", PATTERNS)
def test_no_channel_is_created_under_a_pattern(rig: Rig, name: str) -> None:
    with pytest.raises(NameInvalid, match="is a wildcard pattern") as refused:
        rig.create_channel(name)
    assert "match=" in str(refused.value.hint)
    for call in (
        lambda: rig.create_channel(name, persistent=True),
        lambda: rig.publish(name, 1),
        lambda: rig.publish_many(name, [1]),
        lambda: rig.publish(Message.new(name, 1)),
        lambda: rig.create_topic(name),
        lambda: rig.create_queue(name),
        lambda: rig.send(name, 1),
        lambda: rig.send(Message.new(name, 1)),
        lambda: rig.send_many(name, [1]),
        lambda: rig.schedule(name, 1, 60),
    ):
        with pytest.raises(NameInvalid, match="is a wildcard pattern"):
            call()
    assert rig.channels() == []
    assert rig.entities() == []


def test_a_refused_publish_is_counted(sync_bus: SyncMessageBus) -> None:
    with pytest.raises(NameInvalid):
        sync_bus.publish("a.*", 1)
    assert sync_bus.metrics()["dropped"] == 1


def test_a_dead_letter_channel_is_refused_before_anything_is_created(rig: Rig) -> None:
    with pytest.raises(NameInvalid, match="is a wildcard pattern"):
        rig.create_channel("a", persistent=True, dead_letter_channel="dead.*")
    assert rig.channels() == []
    assert rig.entities() == []


def test_persisting_by_hand_creates_no_such_channel() -> None:
    with SqlitePersistence.in_memory() as persistence:
        with pytest.raises(NameInvalid, match="is a wildcard pattern"):
            persistence.persist(Message.new("a.*", 1))
        assert persistence.store.entities().wait() == []


@pytest.mark.parametrize("name", PLAIN)
def test_other_names_are_created(rig: Rig, name: str) -> None:
    rig.create_channel(name, persistent=True)
    rig.create_queue(f"queue/{name}")
    rig.send(f"sent/{name}", 1)
    assert rig.channels() == [name]


# Channels that a store already has


def test_an_existing_channel_wins_over_the_pattern(old_bus: SyncMessageBus) -> None:
    plain, exact = Collector(), Collector()
    assert old_bus.subscribe("orders.*", plain, group="plain").pattern.kind == EXACT
    assert old_bus.subscribe("orders.*", exact, group="exact", match="exact").pattern.kind == EXACT
    old_bus.publish("orders.*", 1)
    old_bus.publish("orders.eu", 2)
    assert old_bus.drain(GUARD_S)
    assert plain.bodies == exact.bodies == [1]


def test_an_existing_channel_is_created_again_without_a_change(old_bus: SyncMessageBus) -> None:
    old_bus.create_channel("orders.*")
    old_bus.create_topic("orders.*")
    assert old_bus.channels() == ["orders.*"]


def test_an_existing_channel_keeps_its_groups_and_its_dead_letters(old_file: Path) -> None:
    def decline(message: Message) -> None:
        raise ValueError(message.body)

    with SyncMessageBus(old_file) as bus:
        bus.subscribe("orders.*", Collector(), group="billing").cancel()
        bus.publish("orders.*", 1)
    with SyncMessageBus(old_file) as bus:
        bus.subscribe("orders.*", decline, group="billing", retry_attempts=0)
        assert bus.drain(GUARD_S)
        assert [letter.body for letter in bus.dead_letters("orders.*")] == [1]


def test_an_existing_queue_keeps_working(old_bus: SyncMessageBus) -> None:
    old_bus.send("jobs.#", 1)
    old_bus.send(Message.new("jobs.#", 2))
    assert [message.body for message in old_bus.receive_batch("jobs.#", 5, 0)] == [1, 2]


def test_a_deleted_queue_is_not_created_again(old_bus: SyncMessageBus) -> None:
    old_bus.send("jobs.#", 1)
    old_bus.delete_entity("jobs.#")
    with pytest.raises(NameInvalid, match="is a wildcard pattern"):
        old_bus.send("jobs.#", 2)


def test_explicit_wildcards_are_not_taken_for_the_existing_channel(old_bus: SyncMessageBus) -> None:
    seen = Collector()
    assert old_bus.subscribe("orders.*", seen, match="wildcard").pattern.kind == WILDCARD
    old_bus.publish("orders.eu", 1)
    assert seen.wait(1) == [1]


def test_dead_letters_of_a_channel_that_looks_like_a_pattern_are_kept(old_file: Path) -> None:
    """A dead letter may not be lost because of how it is called."""
    with SqlitePersistence.new(old_file) as persistence:
        persistence.store.apply([Declare("*.orders", TOPIC, {})]).wait()

    def decline(message: Message) -> None:
        raise ValueError(message.body)

    with SyncMessageBus(f"sqlite:///{old_file}") as bus:
        bus.subscribe("*.orders", decline, retry_attempts=0)
        bus.publish("*.orders", 1)
        assert bus.drain(GUARD_S)
        assert [letter.body for letter in bus.dead_letters("*.orders")] == [1]


def test_a_channel_in_memory_cannot_have_the_name_of_a_topic_that_looks_like_a_pattern(old_file: Path) -> None:
    with SqlitePersistence.new(old_file) as persistence:
        persistence.store.apply([Declare("*.orders", TOPIC, {})]).wait()
    with SyncMessageBus(persistence_path=old_file) as bus:
        with pytest.raises(EntityExists):
            bus.subscribe("*.orders", Collector())
        bus.create_channel("*.orders", persistent=True)
        bus.subscribe("*.orders", Collector())


# What a durable URL says


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "is not durable" in record.getMessage()]


def test_the_first_pattern_on_a_durable_url_is_logged_once(durable_rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    durable_rig.subscribe("plain", Collector())
    durable_rig.subscribe("said.*", Collector(), match="wildcard")
    assert warnings(caplog) == []
    durable_rig.subscribe("a.*", Collector())
    durable_rig.subscribe("b.*", Collector())
    (text,) = warnings(caplog)
    assert "'a.*'" in text
    assert "match='wildcard'" in text


def test_a_bus_in_memory_logs_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="unibus"):
        rig.subscribe("a.*", Collector())
    assert warnings(caplog) == []


# Backends


async def test_a_backend_has_no_patterns() -> None:
    async with MessageBus(InMemoryQueueBackend()) as bus:
        with pytest.raises(ConfigInvalid, match="a pattern"):
            bus.subscribe("a.*", Collector())
        with pytest.raises(NameInvalid, match="is a wildcard pattern"):
            await bus.publish("a.*", 1)


async def test_a_backend_that_has_such_a_topic_is_read_by_its_exact_name() -> None:
    backend = InMemoryQueueBackend()
    async with MessageBus(backend) as bus:
        subscription = bus.subscribe("a.*", Collector(), match="exact")
        assert subscription.channel == "a.*"
        assert bus.unsubscribe("a.*") is True
