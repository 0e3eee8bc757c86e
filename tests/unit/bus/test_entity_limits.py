"""How many entities a store may have (limits are options of its URL): one more is refused and changes nothing."""

from pathlib import Path

import pytest

from unibus.errors import ConfigInvalid, QuotaExceeded
from unibus.sync import MessageBus


@pytest.fixture(params=["sqlite:///{}/bus.db", "jsonfile:///{}/bus"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(tmp_path)


def names(bus: MessageBus) -> list[str]:
    return sorted(info.name for info in bus.entities())


def send_all(bus: MessageBus, queues: tuple[str, ...]) -> None:
    with bus.transaction():
        for name in queues:
            bus.send(name, 1)


def test_queues(place: str) -> None:
    with MessageBus(f"{place}?max_queues=2") as bus:
        bus.create_queue("a")
        bus.send("b", 1)
        with pytest.raises(QuotaExceeded, match=r"2 queues and may have 2.*max_queues"):
            bus.create_queue("c")
        with pytest.raises(QuotaExceeded):
            bus.send("c", 1)
        bus.create_queue("a")  # The same again makes nothing.
        bus.send("b", 2)
        bus.create_topic("t")  # A kind of its own.
        assert names(bus) == ["a", "b", "t"]
        bus.delete_entity("a")
        bus.send("c", 1)
        assert names(bus) == ["b", "c", "t"]


def test_a_batch_is_counted_as_a_whole(place: str) -> None:
    with MessageBus(f"{place}?max_queues=3") as bus:
        bus.create_queue("a")
        with pytest.raises(QuotaExceeded):
            send_all(bus, ("a", "b", "b", "c", "d"))
        assert names(bus) == ["a"]
        send_all(bus, ("a", "b", "b", "c", "c"))
        assert names(bus) == ["a", "b", "c"]


def test_topics_and_subscriptions(place: str) -> None:
    with MessageBus(f"{place}?max_topics=1&max_subscriptions=2") as bus:
        bus.create_topic("t")
        with pytest.raises(QuotaExceeded, match="1 topics"):
            bus.create_topic("u")
        bus.create_subscription("t", "one")
        bus.create_subscription("t", "two")
        with pytest.raises(QuotaExceeded, match="the topic has 2 subscriptions"):
            bus.create_subscription("t", "three")


def test_what_is_there_stays(place: str) -> None:
    with MessageBus(place) as bus:
        for name in ("a", "b", "c"):
            bus.send(name, name)
    with MessageBus(f"{place}?max_queues=1") as bus:
        assert names(bus) == ["a", "b", "c"]
        bus.send("a", "more")
        bus.delete_entity("b")
        bus.delete_entity("c")
        with pytest.raises(QuotaExceeded):
            bus.create_queue("d")


@pytest.mark.parametrize("given", ["x", "-1", ""])
def test_no_number(place: str, given: str) -> None:
    with pytest.raises(ConfigInvalid, match="max_queues"):
        MessageBus(f"{place}?max_queues={given}")
    MessageBus(place).close()  # No process owns it any more.


def test_a_bus_in_memory_does_not_lose_options_in_silence() -> None:
    with pytest.raises(ConfigInvalid, match="memory"):
        MessageBus("memory://?max_queues=1")
