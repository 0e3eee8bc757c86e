"""What may be delivered while claims come and go: each step by itself."""

import pytest

from unibus.bus.persistent.delivery_order import DeliveryOrder
from unibus.bus.pubsub.group import Group
from unibus.core.envelope.message import Message
from unibus.core.flow.queue import PriorityQueue
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.entity import QUEUE, Entity, StoredMessage

FIRST, SECOND, THIRD = (50, 1), (50, 2), (50, 3)
URGENT = (0, 9)


class Waits:
    """What a catalog says of the messages in the store: `places` are theirs."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []

    def count_before(self, entity: str, priority: int, sequence: int, at_most: int) -> int:
        return min(at_most, sum(place < (priority, sequence) for place in self.places))


@pytest.fixture
def store() -> Waits:
    return Waits()


@pytest.fixture
def group() -> Group:
    return Group(1, "g", 0)


@pytest.fixture
def queue(group: Group) -> PriorityQueue[Message]:
    return group.queue


@pytest.fixture
def order(store: Waits, group: Group) -> DeliveryOrder:
    return DeliveryOrder(store, "q", group)  # type: ignore[arg-type]


def at(place: tuple[int, int]) -> Message:
    message = Message.new("q", place, place[0])
    message.sequence = place[1]
    return message


def claim_of(*places: tuple[int, int]) -> list[Claimed]:
    entity = Entity(1, "q", QUEUE, {})
    return [
        Claimed(StoredMessage(entity, place[1], MessageRef("m", 1), place[0], b""), b"token", 1, 1) for place in places
    ]


def bodies(queue: PriorityQueue[Message]) -> list[object]:
    return [message.body for message in queue.drain()]


def taken(queue: PriorityQueue[Message]) -> Message:
    message = queue.pop()
    assert message is not None
    return message


def fill(queue: PriorityQueue[Message], *places: tuple[int, int]) -> None:
    for place in places:
        queue.restore(at(place), *place)


def test_the_first_of_all_is_delivered(order: DeliveryOrder, store: Waits, queue: PriorityQueue[Message]) -> None:
    store.places = [THIRD]
    fill(queue, SECOND)
    assert order.admits(at(FIRST))
    assert order.missing == 0
    assert len(queue) == 1


def test_what_arrived_after_a_message_was_taken_goes_first(order: DeliveryOrder, queue: PriorityQueue[Message]) -> None:
    fill(queue, URGENT)
    assert not order.admits(at(FIRST))
    assert order.missing == 0
    assert bodies(queue) == [URGENT, FIRST]


def test_what_the_store_has_first_holds_back_the_rest(
    order: DeliveryOrder, store: Waits, queue: PriorityQueue[Message]
) -> None:
    fill(queue, SECOND, THIRD)
    store.places = [URGENT]
    assert not order.admits(at(FIRST))
    assert (order.missing, len(queue)) == (1, 0)
    order.begin_claim()
    store.places = []
    order.claim_decided(claim_of(URGENT))
    assert len(queue) == 0
    order.end_claim([at(URGENT)])
    assert order.missing == 0
    assert bodies(queue) == [URGENT, FIRST, SECOND, THIRD]


def test_a_message_that_may_go_leaves_the_others_their_claim(
    order: DeliveryOrder, store: Waits, queue: PriorityQueue[Message]
) -> None:
    # Of two slots: one holds its message back, and before it claims what precedes that, the other begins an urgent one.
    fill(queue, THIRD)
    store.places = [FIRST]
    assert not order.admits(at(SECOND))
    assert order.admits(at(URGENT))
    assert order.missing == 1  # Else a feed that holds many messages would not claim, and none would be delivered.
    order.begin_claim()
    store.places = []
    order.claim_decided(claim_of(FIRST))
    order.end_claim([at(FIRST)])
    assert (order.missing, bodies(queue)) == (0, [FIRST, SECOND, THIRD])


def test_until_a_claim_is_decided_it_may_have_taken_anything(
    order: DeliveryOrder, queue: PriorityQueue[Message]
) -> None:
    order.begin_claim()
    assert not order.admits(at(FIRST))
    assert order.missing == 0  # The claim is on its way: none is needed.
    order.claim_decided(claim_of(SECOND))
    assert bodies(queue) == [FIRST]
    assert order.admits(at(FIRST))


def test_what_precedes_a_claim_need_not_wait_for_it(order: DeliveryOrder, queue: PriorityQueue[Message]) -> None:
    order.begin_claim()
    order.claim_decided(claim_of(SECOND, THIRD))
    fill(queue, (50, 5), URGENT)
    assert not order.admits(at((50, 4)))  # The urgent one is in the queue.
    assert taken(queue).body == URGENT
    assert order.admits(at(FIRST))
    assert not order.admits(taken(queue))
    assert len(queue) == 0
    fill(queue, (50, 6), FIRST)
    assert not order.admits(at((50, 7)))
    assert order.admits(taken(queue))
    assert not order.admits(taken(queue))
    order.end_claim([at(SECOND), at(THIRD)])
    assert bodies(queue) == [SECOND, THIRD, *((50, number) for number in range(4, 8))]


def test_a_claim_in_vain_lets_one_message_pass(
    order: DeliveryOrder, store: Waits, queue: PriorityQueue[Message]
) -> None:
    store.places = [URGENT]
    for expected in (FIRST, SECOND):
        assert not order.admits(at(expected))
        order.begin_claim()
        order.end_claim([])
        assert order.admits(taken(queue))


def test_an_empty_claim_that_nothing_waits_for_trusts_nothing(order: DeliveryOrder, store: Waits) -> None:
    order.begin_claim()
    order.claim_decided([])
    order.end_claim([])
    store.places = [URGENT]
    assert not order.admits(at(FIRST))


def test_all_of_it_can_be_taken(order: DeliveryOrder, queue: PriorityQueue[Message]) -> None:
    order.begin_claim()
    assert not order.admits(at(FIRST))
    fill(queue, SECOND)
    assert sorted(message.body for message in order.take_all()) == [FIRST, SECOND]  # type: ignore[type-var]
    order.end_claim([])
    assert len(queue) == 0


def test_a_claim_that_began_before_a_message_was_missed_says_nothing_of_it(
    order: DeliveryOrder, store: Waits, queue: PriorityQueue[Message]
) -> None:
    order.begin_claim()
    order.claim_decided([])
    store.places = [FIRST]  # It has failed since, and is in the store again.
    assert not order.admits(at(SECOND))
    order.end_claim([])
    assert not order.admits(taken(queue))
    order.begin_claim()
    order.claim_decided([])
    order.end_claim([])  # In vain: another receiver has it.
    assert order.admits(taken(queue))
