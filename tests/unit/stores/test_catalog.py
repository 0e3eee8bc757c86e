"""What a store says about a batch before it is sent: how many of its messages would be stored."""

from collections.abc import Iterator

import pytest

from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.envelope import send_of
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    clock = VirtualClock()
    store = EmbeddedStore(MemoryJournal(), clock, clock.timers(lambda: True))
    yield Rig(store, clock)
    store.close()


def keyed(entity: str, *keys: str | None) -> list[Send]:
    return [
        send_of(Message.new(entity, "x").with_fields({} if key is None else {"dedup_key": key}), entity) for key in keys
    ]


def test_keys_that_the_entity_or_the_batch_knows_are_not_new(rig: Rig) -> None:
    rig.queue("q", dedup_window=60)
    rig.run(*keyed("q", "known"))
    assert rig.store.catalog.count_new(keyed("q", "known", "new", "new", "other")) == 2
    assert rig.store.catalog.count_new(keyed("q", "known")) == 0
    assert rig.store.catalog.count_new([]) == 0
    assert rig.info("q").active == 1  # Nothing was stored by asking.


def test_without_a_key_each_is_new_where_ids_are_not_compared(rig: Rig) -> None:
    rig.queue("q")
    assert rig.store.catalog.count_new(keyed("q", None, None)) == 2
    assert rig.store.catalog.count_new(keyed("missing", None, "a", "a")) == 2


def test_ids_are_keys_where_the_entity_detects_duplicates(rig: Rig) -> None:
    rig.queue("q", dedup_window=60)
    message = Message.new("q", "x")
    assert rig.store.catalog.count_new([send_of(message, "q"), send_of(message.fresh(), "q")]) == 1


def test_a_key_is_new_again_after_its_window(rig: Rig) -> None:
    rig.queue("q", dedup_window=60)
    rig.run(*keyed("q", "known"))
    rig.advance(61)
    assert rig.store.catalog.count_new(keyed("q", "known")) == 1


@pytest.mark.parametrize("exists", [True, False])
def test_names_that_differ_by_case_are_one_entity(rig: Rig, exists: bool) -> None:
    if exists:
        rig.queue("Orders", dedup_window=60)
    batch = [*keyed("Orders", "a"), *keyed("orders", "a")]
    assert rig.store.catalog.count_new(batch) == 1


def test_the_same_key_in_two_entities_is_new_in_each(rig: Rig) -> None:
    rig.queue("p")
    rig.queue("q")
    assert rig.store.catalog.count_new([*keyed("p", "a"), *keyed("q", "a")]) == 2
