"""Handlers that share a qualified name are still different handlers (decision 0005)."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.bus.probes import GUARD_S
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.subscriptions.default_groups import DefaultGroups
from unibus.core.envelope.message import Message
from unibus.core.topics.pattern import Pattern
from unibus.errors import ConfigInvalid

Handler = Callable[[Message], object]


def named(got: list[object]) -> Handler:
    """Each call makes another function with the same name, as `def _` at the top of a module does."""

    def handler(message: Message) -> None:
        got.append(message.body)

    handler.__qualname__ = "handler"
    return handler


def wrapped(got: list[object]) -> Handler:
    @functools.wraps(plain)
    def wrapper(message: Message) -> object:
        got.append(message.body)
        return plain(message)

    return wrapper


def plain(message: Message) -> object:
    return None


@pytest.mark.parametrize("make", [named, wrapped], ids=["def _", "functools.wraps"])
def test_both_get_every_message(sync_bus: SyncMessageBus, make: Callable[[list[object]], Handler]) -> None:
    got: list[list[object]] = [[], [], []]
    subscriptions = [sync_bus.subscribe("c", make(each)) for each in got]
    for number in range(5):
        sync_bus.publish("c", number)
    assert sync_bus.drain(GUARD_S)
    assert got == [[0, 1, 2, 3, 4]] * 3
    first = subscriptions[0].group
    assert [each.group for each in subscriptions] == [first, f"{first}#2", f"{first}#3"]


def test_the_same_function_twice_is_one_group(sync_bus: SyncMessageBus) -> None:
    got: list[object] = []
    other, handler = named([]), named(got)
    sync_bus.subscribe("c", other)
    first, second = sync_bus.subscribe("c", handler), sync_bus.subscribe("c", handler)
    assert first.group == second.group
    for number in range(6):
        sync_bus.publish("c", number)
    assert sync_bus.drain(GUARD_S)
    assert sorted(got, key=str) == [0, 1, 2, 3, 4, 5]


def test_a_handler_finds_its_group_again_when_the_one_before_it_has_left(sync_bus: SyncMessageBus) -> None:
    got: list[object] = []
    handler = named(got)
    first = sync_bus.subscribe("c", named([]))
    second = sync_bus.subscribe("c", handler)
    first.cancel()
    assert sync_bus.subscribe("c", handler).group == second.group
    sync_bus.publish("c", 1)
    assert sync_bus.drain(GUARD_S)
    assert got == [1]
    assert sync_bus.subscribe("c", named([])).group == first.group  # The name is free again.


def test_the_first_designs_form_tells_them_apart_too(sync_bus: SyncMessageBus) -> None:
    got: list[list[object]] = [[], []]
    for each in got:
        sync_bus.subscribe("c", "module", named(each))
    sync_bus.publish("c", 1)
    assert sync_bus.drain(GUARD_S)
    assert got == [[1], [1]]


def test_an_explicit_group_still_makes_them_compete(sync_bus: SyncMessageBus) -> None:
    got: list[object] = []
    for _ in range(2):
        sync_bus.subscribe("c", named(got), group="g")
    for number in range(4):
        sync_bus.publish("c", number)
    assert sync_bus.drain(GUARD_S)
    assert sorted(got, key=str) == [0, 1, 2, 3]


def test_a_name_that_an_explicit_group_has_is_passed_over() -> None:
    groups, pattern = DefaultGroups(), Pattern.exact("c")
    groups.add(pattern, "h", "h", "first")
    assert groups.name_of(pattern, "h", "second", {(pattern, "h#2"): object()}) == "h#3"
    assert groups.name_of(Pattern.exact("d"), "h", "second", {}) == "h"


def test_nothing_is_remembered_of_a_group_that_has_ended(sync_bus: SyncMessageBus) -> None:
    for _ in range(3):
        sync_bus.subscribe("c", named([])).cancel()
    defaults = sync_bus._runtime.subscriptions._defaults
    assert (defaults._groups, defaults._names) == ({}, {})


def test_a_persistent_channel_refuses_the_second(folder: Path) -> None:
    # Workers in other processes share the name: a group of its own would be another one after a restart.
    bus = SyncMessageBus(str(folder / "bus.db"))
    try:
        bus.subscribe("c", named([]))
        with pytest.raises(ConfigInvalid) as caught:
            bus.subscribe("c", named([]))
        assert "group=" in caught.value.hint
    finally:
        bus.close(1)
