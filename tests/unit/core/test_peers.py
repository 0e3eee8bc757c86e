"""Routing ids and epochs on top of the subscription index."""

import pytest

from unibus.core.topics.index import SubscriptionIndex
from unibus.core.topics.pattern import Pattern
from unibus.core.topics.peers import PeerTable
from unibus.errors import SubscriptionLimit
from unibus.limits import PREFIXES_PER_PEER_MAX

A = Pattern.prefix("A")


@pytest.fixture
def index() -> SubscriptionIndex:
    return SubscriptionIndex()


@pytest.fixture
def peers(index: SubscriptionIndex) -> PeerTable:
    return PeerTable(index)


def test_a_peer_is_known_from_up_to_down(peers: PeerTable) -> None:
    peer = peers.up(b"id", 1)
    assert peer is not None
    assert peers.peer_of(b"id") == peer
    assert len(peers) == 1
    assert peers.down(b"id", 1)
    assert peers.peer_of(b"id") is None
    # The map of ids shrinks.
    assert len(peers) == 0


def test_two_ids_are_two_peers(index: SubscriptionIndex, peers: PeerTable) -> None:
    one, other = peers.up(b"one", 1), peers.up(b"other", 1)
    assert one != other
    peers.subscribe(b"other", 1, A)
    assert index.match("A") == (other,)


def test_a_later_epoch_drops_the_subscriptions_of_the_former_first(index: SubscriptionIndex, peers: PeerTable) -> None:
    former = peers.up(b"id", 1)
    peers.subscribe(b"id", 1, A)
    present = peers.up(b"id", 2)
    assert index.match("A") == ()
    assert present is not None
    assert present != former
    peers.subscribe(b"id", 2, A)
    assert index.match("A") == (present,)
    assert len(peers) == 1


@pytest.mark.parametrize("epoch", [1, 2])
def test_up_of_this_or_an_older_epoch_is_ignored(index: SubscriptionIndex, peers: PeerTable, epoch: int) -> None:
    present = peers.up(b"id", 2)
    peers.subscribe(b"id", 2, A)
    assert peers.up(b"id", epoch) is None
    assert index.match("A") == (present,)
    assert peers.peer_of(b"id") == present


@pytest.mark.parametrize("epoch", [1, 3])
def test_down_of_another_epoch_is_ignored(index: SubscriptionIndex, peers: PeerTable, epoch: int) -> None:
    present = peers.up(b"id", 2)
    peers.subscribe(b"id", 2, A)
    assert not peers.down(b"id", epoch)
    assert index.match("A") == (present,)


@pytest.mark.parametrize("epoch", [1, 3])
def test_subscriptions_of_another_epoch_are_ignored(index: SubscriptionIndex, peers: PeerTable, epoch: int) -> None:
    present = peers.up(b"id", 2)
    assert not peers.subscribe(b"id", epoch, A)
    assert index.match("A") == ()
    peers.subscribe(b"id", 2, A)
    assert not peers.unsubscribe(b"id", epoch, A)
    assert index.match("A") == (present,)


def test_nobody_unknown_is_heard(index: SubscriptionIndex, peers: PeerTable) -> None:
    assert not peers.subscribe(b"id", 1, A)
    assert not peers.unsubscribe(b"id", 1, A)
    assert not peers.down(b"id", 1)
    assert len(index) == 0


def test_down_removes_every_subscription(index: SubscriptionIndex, peers: PeerTable) -> None:
    peers.up(b"id", 1)
    peers.subscribe(b"id", 1, A)
    peers.subscribe(b"id", 1, Pattern.prefix(""))
    peers.down(b"id", 1)
    assert index.match("A") == ()
    assert len(index) == 0


def test_subscriptions_are_counted(index: SubscriptionIndex, peers: PeerTable) -> None:
    peer = peers.up(b"id", 1)
    assert peers.subscribe(b"id", 1, A)
    assert not peers.subscribe(b"id", 1, A)
    assert not peers.unsubscribe(b"id", 1, A)
    assert index.match("A") == (peer,)
    assert peers.unsubscribe(b"id", 1, A)
    assert index.match("A") == ()


def test_a_returning_peer_gets_a_new_integer(peers: PeerTable) -> None:
    first = peers.up(b"id", 1)
    peers.down(b"id", 1)
    assert peers.up(b"id", 1) != first


def test_text_and_bytes_are_the_same_id(peers: PeerTable) -> None:
    assert peers.up("id", 1) is not None
    assert peers.up(b"id", 1) is None
    assert peers.down(b"id", 1)


def test_integers_start_where_told(index: SubscriptionIndex) -> None:
    peers = PeerTable(index, 500)
    assert (peers.up(b"one", 1), peers.up(b"other", 1)) == (500, 501)


def test_the_bound_of_patterns_holds_and_goes_with_the_epoch(peers: PeerTable) -> None:
    peers.up(b"id", 1)
    for number in range(PREFIXES_PER_PEER_MAX):
        peers.subscribe(b"id", 1, Pattern.prefix(str(number)))
    with pytest.raises(SubscriptionLimit):
        peers.subscribe(b"id", 1, A)
    peers.up(b"id", 2)
    assert peers.subscribe(b"id", 2, A)
