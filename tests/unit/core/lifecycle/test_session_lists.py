"""Sessions by their ids: a page costs its size and what has changed since the last one. Comparisons are counted."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unibus.bus.api.broker import Broker
from unibus.bus.api.message_bus import MessageBus
from unibus.core.lifecycle.state.entity import Entity
from unibus.core.lifecycle.state.session_lists import INSTANTS_MAX, SessionLists, SortedIds
from unibus.testing import VirtualClock

MANY = 4_000


class CountedId(str):
    """An id that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: str) -> bool:
        CountedId.compared += 1
        return str.__lt__(self, other)


@pytest.fixture
def ids() -> Iterator[SortedIds]:
    """Many of them, with the comparisons of sorting them not counted."""
    found = SortedIds([CountedId(f"{each * 7919 % MANY:06d}") for each in range(MANY)])
    CountedId.compared = 0
    yield found
    CountedId.compared = 0


def test_a_page_without_changes_compares_nothing(ids: SortedIds) -> None:
    assert ids.page(3_000, 2) == ["003000", "003001"]
    assert (ids.page(MANY, 2), CountedId.compared) == ([], 0)


def test_a_change_costs_one_search(ids: SortedIds) -> None:
    ids.update(CountedId("000000"), False)
    ids.update(CountedId("000001x"), True)
    ids.update(CountedId("000002"), True)  # As it is already.
    ids.update(CountedId("none"), False)
    assert ids.page(0, 3) == ["000001", "000001x", "000002"]
    assert 0 < CountedId.compared <= 4 * (MANY.bit_length() + 1)
    CountedId.compared = 0
    assert (len(ids.page(0, 2 * MANY)), CountedId.compared) == (MANY, 0)


def test_many_changes_are_merged(ids: SortedIds) -> None:
    for each in range(MANY // 2):
        ids.update(CountedId(f"{2 * each:06d}"), False)
    assert ids.page(0, 2) == ["000001", "000003"]
    assert CountedId.compared <= 2 * MANY


def test_changes_that_are_never_read_do_not_pile_up() -> None:
    ids = SortedIds([])
    for each in range(20_000):
        ids.update(str(each), True)
        ids.update(str(each), False)
    assert len(ids._changes) <= 1_025
    assert ids.page(0, 9) == []


@given(st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(0, 5), st.integers(0, 5)), max_size=60))
def test_lists_by_an_instant_show_what_a_walk_would(steps: list[tuple[str, int, int]]) -> None:
    stated: dict[str, int] = {"a": 3, "b": 1}
    lists = SessionLists(stated, dict(stated))
    for session_id, stated_ns, after_ns in steps:  # Also back in time.
        if stated_ns:
            stated[session_id] = stated_ns
        else:
            stated.pop(session_id, None)
        lists.update_state(session_id, stated_ns)
        lists.update(session_id, stated_ns > 0)
        assert lists.page(0, 9) == sorted(stated)
        wanted = sorted([each for each, when in stated.items() if when > after_ns])
        assert lists.page_after(after_ns, 0, 9) == wanted
        assert lists.page_after(after_ns, 1, 2) == wanted[1:3]
        assert len(lists._after) <= INSTANTS_MAX


# In a store


async def filled(bus: MessageBus, sessions: int) -> Broker:
    broker = Broker(bus)
    await broker.create("queue", "q", {"requires_session": True})
    for each in range(sessions):
        message = broker.message("q", b"x", {"session_id": f"s{each:03d}"})
        await broker.send_many("q", [message, broker.message("q", b"y", {"session_id": f"s{each:03d}"})])
    return broker


def orders(entity: Entity) -> list[str]:
    return [session.id for session in entity.sessions.values() if session.order is not None]


async def test_a_peek_orders_the_messages_of_its_session_only() -> None:
    async with MessageBus() as bus:
        broker = await filled(bus, 50)
        found = await broker.peek("q", 0, 9, "s007")
        assert [broker.decode(each).body for each in found] == [b"x", b"y"]
        entity = bus._runtime.queues().store.catalog._state.find("q")  # type: ignore[attr-defined]
        assert (orders(entity), entity.order) == (["s007"], None)
        await broker.send("q", broker.message("q", b"z", {"session_id": "s007"}))
        assert [broker.decode(each).body for each in await broker.peek("q", found[1].sequence, 9, "s007")] == [
            b"y",
            b"z",
        ]
        assert orders(entity) == ["s007"]


async def test_a_scheduled_message_changes_its_sequence_in_its_session() -> None:
    with VirtualClock() as clock:
        async with MessageBus(clock=clock) as bus:
            broker = await filled(bus, 1)
            await broker.send("q", broker.message("q", b"later", {"session_id": "s000", "delay": 5}))
            assert [each.sequence for each in await broker.peek("q", 0, 9, "s000")] == [1, 2, 3]
            await clock.advance_async(6)
            assert [each.sequence for each in await broker.peek("q", 0, 9, "s000")] == [1, 2, 4]


async def test_a_deleted_entity_leaves_nothing_behind() -> None:
    async with MessageBus() as bus:
        broker = await filled(bus, 20)
        lock = await broker.accept_session("q", "s001")
        [first, _] = await broker.receive("q", 2, session=lock)
        await broker.renew(first.token)  # By the index of tokens.
        await broker.sessions("q")
        state = bus._runtime.queues().store.catalog._state  # type: ignore[attr-defined]
        entity = state.find("q")
        assert len(state.tokens) == 2
        await broker.delete("q")
        assert (len(state.tokens), state.held_bytes, entity.entries, entity.session_lists) == (0, 0, {}, None)
        await broker.create("queue", "q", {"requires_session": True})
        assert await broker.sessions("q") == []
