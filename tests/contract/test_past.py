"""A subscription that begins in the past: each message of its topic once, whatever way it took."""

from collections.abc import Iterator

import pytest

from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION
from unibus.errors import NameInvalid
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import SECOND, Rig

PATH = "t/Subscriptions/s"


@pytest.fixture
def rig() -> Iterator[Rig]:
    clock = VirtualClock()
    store = EmbeddedStore(MemoryJournal(), clock, clock.timers(lambda: True))
    yield Rig(store, clock)
    store.close()


def begin(rig: Rig, after: int = 0) -> int:
    return rig.store.subscribe_from(Declare(PATH, SUBSCRIPTION, {}), after, 0).wait()


def test_a_scheduled_publication_is_copied_once_after_its_time(rig: Rig) -> None:
    rig.topic("t")
    rig.send("t", "scheduled", visible_ns=rig.now_ns() + SECOND)
    rig.send("t", "now")
    rig.advance(100)
    assert begin(rig) == 2
    assert sorted(rig.drain(PATH)) == ["now", "scheduled"]


def test_one_that_is_still_scheduled_comes_in_its_own_time(rig: Rig) -> None:
    rig.topic("t")
    rig.send("t", "scheduled", visible_ns=rig.now_ns() + 10 * SECOND)
    assert begin(rig) == 0
    assert rig.drain(PATH) == []
    rig.advance(10)
    assert rig.drain(PATH) == ["scheduled"]


def test_what_a_topic_kept_goes_to_the_first_subscription_once(rig: Rig) -> None:
    rig.topic("t", keeps=True)
    rig.send("t", "a")
    rig.send("t", "b")
    assert begin(rig) == 0, "these were kept, and are not of the past"
    assert rig.drain(PATH) == ["a", "b"]
    rig.store.subscribe_from(Declare("t/Subscriptions/later", SUBSCRIPTION, {}), 0, 0).wait()
    assert rig.drain("t/Subscriptions/later") == ["a", "b"], "the past of a second one has them"


def test_a_message_whose_own_time_is_over_does_not_come_back(rig: Rig) -> None:
    rig.topic("t")
    rig.store.apply([send_of(Message.new("t", "brief").with_fields({"ttl": 5}), "t")]).wait()
    rig.send("t", "lasting")
    rig.advance(100)
    assert begin(rig) == 1
    assert rig.drain(PATH) == ["lasting"]


def test_it_may_begin_after_a_sequence(rig: Rig) -> None:
    rig.topic("t")
    for body in ("a", "b", "c"):
        rig.send("t", body)
    assert begin(rig, after=2) == 1
    assert rig.drain(PATH) == ["c"]


def test_nobody_declares_a_dead_letter_queue_by_hand(rig: Rig) -> None:
    rig.queue("q")
    with pytest.raises(NameInvalid):
        rig.store.apply([Declare("q/$DeadLetterQueue", QUEUE, {})])
