"""Peers of one interest and interests of one peer, at the sizes where their form changes."""

import random

import pytest

from unibus.core.topics.interest import CROWD_SIZE, Interest, PeerInterests, union


@pytest.mark.parametrize("size", [1, 2, CROWD_SIZE, CROWD_SIZE + 1, 3 * CROWD_SIZE])
def test_peers_are_ascending_at_every_size(size: int) -> None:
    order = random.Random(size)
    peers = order.sample(range(10 * size), size)
    interest = Interest()
    for number, peer in enumerate(peers, 1):
        interest.join((peer,))
        assert interest.peers() == tuple(sorted(peers[:number]))
    order.shuffle(peers)
    for number, peer in enumerate(peers, 1):
        assert interest.leave(peer) == (number == size)
        assert interest.peers() == tuple(sorted(peers[number:]))


def test_a_lone_peer_is_shown_without_a_copy() -> None:
    holder = PeerInterests(7)
    one, other = Interest(), Interest()
    one.join(holder.alone)
    other.join(holder.alone)
    assert one.peers() is other.peers()


def test_an_answer_does_not_change_after_it_was_given() -> None:
    interest = Interest()
    for peer in range(2 * CROWD_SIZE):
        interest.join((peer,))
        shown = interest.peers()
        interest.join((-peer - 1,))
        interest.leave(-peer - 1)
        assert shown == tuple(range(peer + 1))
        assert interest.peers() == shown


def test_union_has_each_peer_once() -> None:
    assert union([]) == ()
    assert union([(3,)]) == (3,)
    assert union([(3,), (1,)]) == (1, 3)
    assert union([(3,), (3,)]) == (3,)
    assert union([(2, 5, 9), (1, 5), (9,)]) == (1, 2, 5, 9)


def test_a_holder_counts_each_interest() -> None:
    holder = PeerInterests(1)
    one, other = Interest(), Interest()
    holder.count_up(one)
    assert holder.interests() == [one]
    assert holder.size() == 1
    holder.count_up(one)
    holder.count_up(other)
    assert holder.size() == 2
    assert not holder.count_down(one)
    assert holder.holds(one)
    assert holder.count_down(one)
    assert not holder.holds(one)
    assert holder.interests() == [other]
    assert holder.count_down(other)
    assert holder.size() == 0
    holder.count_up(one)
    assert holder.interests() == [one]
