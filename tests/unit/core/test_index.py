"""The subscription index as its callers see it."""

import random
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from unibus.core.topics.index import SubscriptionIndex
from unibus.core.topics.pattern import Pattern
from unibus.errors import NameInvalid, SubscriptionLimit
from unibus.limits import PREFIXES_PER_PEER_MAX

exact, prefix, wildcard = Pattern.exact, Pattern.prefix, Pattern.wildcard


def index_of(*requests: tuple[int, Pattern]) -> SubscriptionIndex:
    index = SubscriptionIndex()
    for peer, pattern in requests:
        index.subscribe(peer, pattern)
    return index


def test_an_empty_index_wants_nothing() -> None:
    index = SubscriptionIndex()
    assert index.match("a") == ()
    assert index.match(b"") == ()
    assert len(index) == 0


def test_an_exact_pattern_takes_its_name_only() -> None:
    index = index_of((1, exact("a.b")))
    assert index.match("a.b") == (1,)
    for other in ("a", "a.bc", "A.b", "a.b.", ""):
        assert index.match(other) == ()


def test_a_prefix_takes_what_starts_with_its_bytes() -> None:
    index = index_of((1, prefix("BTC")), (2, prefix("BTC/USD")), (3, prefix("B")), (4, prefix("C")))
    assert index.match("BTC/USD") == (1, 2, 3)
    assert index.match("BTC/EUR") == (1, 3)
    assert index.match("BT") == (3,)
    assert index.match("btc") == ()


def test_the_empty_prefix_takes_everything() -> None:
    index = index_of((1, prefix("")))
    assert index.match("") == (1,)
    assert index.match(b"\x00\xff") == (1,)


def test_prefixes_compare_bytes_and_not_characters() -> None:
    # A prefix may end in the middle of a character.
    index = index_of((1, prefix(b"\xc3")), (2, prefix("é")))
    assert index.match("è") == (1,)
    assert index.match("é!") == (1, 2)
    assert index.match(b"\xc3\xa9!") == (1, 2)


@pytest.mark.parametrize(
    ("pattern", "takes", "leaves"),
    [
        ("a.*", ["a.b", "a."], ["a", "a.b.c", "b.b"]),
        ("*.b", ["a.b", ".b"], ["b", "a.b.b", "a.c"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["b", "ab", "ab.c"]),
        ("a.>", ["a.b", "a.b.c", "a."], ["a", "b.a"]),
        ("#", ["", "a", "a.b"], []),
        (">", ["", "a", "a.b"], []),
        ("*", ["", "a"], ["a.b"]),
        ("a.*.c.#", ["a.b.c", "a.b.c.d", "a..c"], ["a.c", "a.b", "a.b.d"]),
        ("*.>", ["a.b", "a.b.c"], ["a"]),
        ("a.b", ["a.b"], ["a", "a.b.c"]),
    ],
)
def test_wildcards(pattern: str, takes: list[str], leaves: list[str]) -> None:
    index = index_of((1, wildcard(pattern)))
    for topic in takes:
        assert index.match(topic) == (1,), topic
        assert index.match(topic.encode()) == (1,), topic
    for topic in leaves:
        assert index.match(topic) == (), topic


def test_a_name_that_holds_wildcard_signs_is_a_name() -> None:
    index = index_of((1, exact("a.*")), (2, wildcard("a.*")), (3, prefix("a.*")))
    assert index.match("a.*") == (1, 2, 3)
    assert index.match("a.b") == (2,)


def test_a_peer_is_named_once_whatever_fits() -> None:
    index = index_of((5, prefix("A")), (5, prefix("AB")), (2, prefix("AB")), (5, exact("ABC")), (5, wildcard("*")))
    assert index.match("ABC") == (2, 5)


def test_peers_are_ascending_in_whatever_order_they_came() -> None:
    peers = random.Random(3).sample(range(1000), 200)
    index = index_of(*((peer, prefix("a")) for peer in peers), (1001, prefix("ab")), (-1, exact("abc")))
    assert index.match("abc") == (-1, *sorted(peers), 1001)


def test_text_and_bytes_are_the_same_topic() -> None:
    for pattern in (exact("zürich"), prefix("zü"), wildcard("*")):
        index = index_of((1, pattern))
        assert index.match("zürich") == index.match("zürich".encode()) == (1,)


def test_bytes_that_are_no_utf8_are_names_too() -> None:
    index = index_of((1, exact(b"\xff")), (2, wildcard(b"\xff.#")), (3, prefix(b"\xff")))
    assert index.match(b"\xff") == (1, 2, 3)
    assert index.match(b"\xfe") == ()


def test_a_topic_that_has_no_bytes_is_refused_by_name() -> None:
    with pytest.raises(NameInvalid):
        index_of((1, prefix("a"))).match("\ud800")


@pytest.mark.parametrize("make", [exact, prefix, wildcard])
def test_subscriptions_are_counted_per_peer_and_pattern(make: Callable[[str], Pattern]) -> None:
    # Two SUB need two UNSUB.
    index = SubscriptionIndex()
    assert index.subscribe(1, make("A"))
    assert not index.subscribe(1, make("A"))
    assert index.subscribe(2, make("A"))
    assert len(index) == 2
    assert not index.unsubscribe(1, make("A"))
    assert index.match("A") == (1, 2)
    assert index.unsubscribe(1, make("A"))
    assert index.match("A") == (2,)
    assert not index.unsubscribe(1, make("A"))
    assert index.unsubscribe(2, make("A"))
    assert index.match("A") == ()
    assert len(index) == 0


def test_what_was_never_asked_for_cannot_be_taken_back() -> None:
    index = index_of((1, prefix("a")), (2, prefix("b")))
    assert not index.unsubscribe(1, prefix("b"))
    assert not index.unsubscribe(1, exact("a"))
    assert not index.unsubscribe(3, prefix("a"))
    assert index.match("b") == (2,)


def test_a_removed_peer_takes_all_its_patterns_along() -> None:
    # No ghost peers.
    index = index_of((1, exact("a")), (1, prefix("a")), (1, prefix("")), (1, wildcard("#")), (2, prefix("a")))
    index.subscribe(1, prefix("a"))
    assert index.patterns_of(1) == 4
    assert index.remove_peer(1) == 4
    assert index.match("a") == (2,)
    assert index.patterns_of(1) == 0
    assert index.remove_peer(1) == 0
    assert len(index) == 1


def test_nothing_is_kept_of_what_nobody_wants_any_more() -> None:
    # Otherwise memory grows silently.
    patterns = [exact("a"), prefix("a"), prefix("ab"), wildcard("a.*"), wildcard("a.#")]
    index = index_of(*((peer, pattern) for peer in (1, 2) for pattern in patterns))
    for pattern in patterns:
        index.unsubscribe(1, pattern)
    index.remove_peer(2)
    assert not index._exact
    assert not index._holders
    assert index._prefixes.size == 0
    assert index._wildcards.size == 0


def test_a_peer_that_comes_back_starts_from_nothing() -> None:
    index = index_of((1, prefix("a")), (1, prefix("a")))
    index.remove_peer(1)
    index.subscribe(1, prefix("a"))
    assert index.unsubscribe(1, prefix("a"))
    assert index.match("a") == ()


def test_the_version_grows_when_an_answer_may_change_and_only_then() -> None:
    index = SubscriptionIndex()
    seen = [index.version]

    def changed() -> bool:
        seen.append(index.version)
        return seen[-1] > seen[-2]

    index.subscribe(1, prefix("a"))
    assert changed()
    index.subscribe(1, prefix("a"))
    assert not changed()
    index.match("ab")
    assert not changed()
    index.unsubscribe(1, prefix("a"))
    assert not changed()
    index.unsubscribe(1, prefix("b"))
    assert not changed()
    index.unsubscribe(1, prefix("a"))
    assert changed()
    index.remove_peer(1)
    assert not changed()
    index.subscribe(2, exact("a"))
    assert changed()
    index.remove_peer(2)
    assert changed()


def test_a_peer_holds_a_bounded_number_of_patterns() -> None:
    index = SubscriptionIndex()
    for number in range(PREFIXES_PER_PEER_MAX):
        index.subscribe(1, prefix(f"{number:05}"))
    version = index.version
    for one_more in (prefix("x"), exact("x"), wildcard("x.*")):
        with pytest.raises(SubscriptionLimit, match="shorter prefix"):
            index.subscribe(1, one_more)
    assert (index.version, len(index)) == (version, PREFIXES_PER_PEER_MAX)
    assert index.match("x") == ()
    # It may subscribe again to its own patterns, another peer is not limited, and unsubscribing frees a pattern.
    assert not index.subscribe(1, prefix("00000"))
    assert index.subscribe(2, prefix("x"))
    assert index.unsubscribe(1, prefix("00001"))
    assert index.subscribe(1, prefix("x"))


def test_a_large_table_answers_as_a_scan_does() -> None:
    # Overlapping prefixes and churn, over several runs of the table.
    order = random.Random(11)
    wanted: dict[bytes, set[int]] = {}
    index = SubscriptionIndex()

    def some_key() -> bytes:
        return bytes(order.choices(b"abc/", k=order.randint(0, 9)))

    for step in range(12_000):
        key, peer = some_key(), order.randrange(40)
        if step > 6_000 and order.random() < 0.6:
            key = order.choice(list(wanted)) if step % 50 == 0 else key
            index.unsubscribe(peer, prefix(key))
            wanted.get(key, set()).discard(peer)
        elif peer not in wanted.get(key, ()):
            index.subscribe(peer, prefix(key))
            wanted.setdefault(key, set()).add(peer)
        if step % 60 == 0:
            topic = some_key() + some_key()
            starts = (topic[:size] for size in range(len(topic) + 1))
            assert index.match(topic) == tuple(sorted(set().union(*(wanted.get(start, set()) for start in starts))))
    assert len(index) == sum(len(peers) for peers in wanted.values())


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_a_match_beside_changes_of_other_threads_misses_nobody_who_stays() -> None:
    names = [f"{number:03}" for number in range(40)]
    index = index_of((0, prefix("")), *((1, prefix(name)) for name in names))

    def come_and_go(peer: int) -> None:
        for name in names * 10:
            # "!" sorts before all that stays, so it shifts the places that a match has just found.
            for pattern in (prefix(name[:2]), prefix("!" + name), wildcard(f"*.{name}")):
                index.subscribe(peer, pattern)
            index.remove_peer(peer)

    threads = [threading.Thread(target=come_and_go, args=(peer,)) for peer in (2, 3)]
    for thread in threads:
        thread.start()
    while any([thread.is_alive() for thread in threads]):
        for name in names:
            assert index.match(name + "/x")[:2] == (0, 1)
    assert index.match("000/x") == (0, 1)
    assert len(index) == 1 + len(names)
