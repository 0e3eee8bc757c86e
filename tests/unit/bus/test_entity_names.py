"""The names of entities, at the limits of each rule."""

import pytest

from unibus import MessageBus
from unibus.bus.entity_names import RESERVED_FIRST, checked_path, checked_subscription, reserved_first
from unibus.errors import NameInvalid


@pytest.mark.parametrize("name", ["a", "A1", "a.b", "a-b_c", "a/b/c", "1/2", "a" * 260, "my-health", "a/health"])
def test_paths_that_may_be(name: str) -> None:
    assert checked_path(name) == name


@pytest.mark.parametrize(
    "name",
    ["", " ", ".a", "a.", "_a", "a_", "a b", "a\n", "a//b", "/a", "a/", "ä", "$a", "a/Subscriptions/b", 5],
)
def test_paths_that_may_not(name: object) -> None:
    with pytest.raises(NameInvalid):
        checked_path(name)


def test_the_longest_path() -> None:
    with pytest.raises(NameInvalid, match="260"):
        checked_path("a" * 261)


@pytest.mark.parametrize("first", sorted(RESERVED_FIRST))
def test_reserved_urls_of_the_server_are_valid_names_with_a_warning(
    first: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (first, first.upper(), f"{first}/orders"):
        caplog.clear()
        assert checked_path(name) == name
        assert reserved_first(name) == first
        assert "reserved URL of the server" in caplog.text
    caplog.clear()
    assert checked_path(f"my-{first}") == f"my-{first}"
    assert reserved_first(f"my-{first}") == ""
    assert caplog.text == ""


async def test_both_ways_to_create_a_queue_warn(caplog: pytest.LogCaptureFixture) -> None:
    async with MessageBus("memory://") as bus:
        await bus.create_queue("metrics")
        assert "'metrics' begins with a reserved URL of the server" in caplog.text
        await bus.entities.create_topic("docs/x")
        assert "'docs/x' begins with a reserved URL of the server" in caplog.text
        caplog.clear()
        await bus.create_queue("plain")
        assert caplog.text == ""


@pytest.mark.parametrize("name", ["a", "a.b-c_d", "0", "x" * 50])
def test_subscriptions_that_may_be(name: str) -> None:
    assert checked_subscription(name) == name


@pytest.mark.parametrize("name", ["", "a/b", "x" * 51, "-a", "a-", "a b", "$Default", "Subscriptions", None])
def test_subscriptions_that_may_not(name: object) -> None:
    with pytest.raises(NameInvalid):
        checked_subscription(name)
