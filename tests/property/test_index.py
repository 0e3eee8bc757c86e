"""The subscription index against a scan of all subscriptions, with every result checked after random changes."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from unibus.core.topics.index import SubscriptionIndex
from unibus.core.topics.pattern import EXACT, PREFIX, Pattern, name_text
from unibus.core.topics.peers import PeerTable
from unibus.core.topics.prefixes import Prefix, PrefixTable

# Few letters and short texts, so that most patterns overlap, are asked for twice and are taken back.
TOPICS = st.text("ab.", max_size=6)
PEERS = st.integers(0, 4)
FEW = bytes(b"ab\xff"[byte % 3] for byte in range(256))
"""Folds all bytes into three, the greatest among them."""


def is_wildcard(text: str) -> bool:
    return "" not in text.split(".")


WILDCARDS = st.lists(st.sampled_from(["a", "b", "*"]), max_size=4).flatmap(
    lambda tokens: st.sampled_from([[], ["#"], [">"]]).map(lambda tail: ".".join(tokens + tail))
)
PATTERNS = st.one_of(
    TOPICS.filter(bool).map(Pattern.exact),
    TOPICS.map(Pattern.prefix),
    WILDCARDS.filter(is_wildcard).map(Pattern.wildcard),
)


def fits(pattern: Pattern, topic: str) -> bool:
    """The rule of each kind, in the plainest words."""
    if pattern.kind == PREFIX:
        return topic.encode()[: len(pattern.text)] == pattern.text
    text = name_text(pattern.text)
    if pattern.kind == EXACT:
        return topic == text
    return tokens_fit(text.split("."), topic.split("."))


def tokens_fit(pattern: list[str], topic: list[str]) -> bool:
    if not pattern:
        return not topic
    first, *rest = pattern
    if first == "#":
        return True
    if first == ">":
        return bool(topic)
    return bool(topic) and first in ("*", topic[0]) and tokens_fit(rest, topic[1:])


class IndexAgainstScan(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.index = SubscriptionIndex()
        self.requests: Counter[tuple[int, Pattern]] = Counter()
        self.kept: dict[str, tuple[int, tuple[int, ...]]] = {}

    @rule(peer=PEERS, pattern=PATTERNS)
    def subscribe(self, peer: int, pattern: Pattern) -> None:
        assert self.index.subscribe(peer, pattern) == (self.requests[peer, pattern] == 0)
        self.requests[peer, pattern] += 1

    @rule(peer=PEERS, pattern=PATTERNS)
    def unsubscribe_anything(self, peer: int, pattern: Pattern) -> None:
        self.take_back(peer, pattern)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def unsubscribe_what_is_there(self, data: st.DataObject) -> None:
        requests = sorted(self.requests, key=repr)
        self.take_back(*data.draw(st.sampled_from(requests)))

    def take_back(self, peer: int, pattern: Pattern) -> None:
        count = self.requests[peer, pattern]
        assert self.index.unsubscribe(peer, pattern) == (count == 1)
        self.requests[peer, pattern] = max(count - 1, 0)
        self.requests = +self.requests

    @rule(peer=PEERS)
    def remove_peer(self, peer: int) -> None:
        held = [request for request in self.requests if request[0] == peer]
        assert self.index.remove_peer(peer) == len(held)
        for request in held:
            del self.requests[request]

    @rule(topic=TOPICS)
    def match(self, topic: str) -> None:
        scanned = tuple(sorted({peer for peer, pattern in self.requests if fits(pattern, topic)}))
        assert self.index.match(topic) == self.index.match(topic.encode()) == scanned
        # Who keeps an answer until the version changes never has a wrong one.
        version, answer = self.kept.get(topic, (-1, ()))
        if version == self.index.version:
            assert answer == scanned
        self.kept[topic] = (self.index.version, scanned)

    @invariant()
    def sizes_agree(self) -> None:
        assert len(self.index) == len(self.requests)
        for peer in range(5):
            assert self.index.patterns_of(peer) == sum(request[0] == peer for request in self.requests)


TestIndexAgainstScan = IndexAgainstScan.TestCase
TestIndexAgainstScan.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(
    run_size_max=st.integers(1, 3),
    steps=st.lists(st.tuples(st.booleans(), st.binary(max_size=4).map(lambda raw: raw.translate(FEW)))),
    topics=st.lists(st.binary(max_size=6).map(lambda raw: raw.translate(FEW)), max_size=5),
)
def test_small_runs_answer_as_a_scan_does_at_every_step(
    run_size_max: int, steps: list[tuple[bool, bytes]], topics: list[bytes]
) -> None:
    table = PrefixTable(run_size_max)
    stored: dict[bytes, Prefix] = {}
    for number, (adding, key) in enumerate(steps):
        assert table.find(key) is stored.get(key)
        if adding and key not in stored:
            stored[key] = table.insert(key)
            stored[key].join((number,))
        elif not adding and key in stored:
            table.remove(stored.pop(key))
        # The keys themselves as topics walk every link there is.
        for topic in [*topics, *stored]:
            check_walk(table, stored, topic)
    assert table.size == len(stored)


def check_walk(table: PrefixTable, stored: dict[bytes, Prefix], topic: bytes) -> None:
    """Longest first: the order of the answers shows that every link is the nearest one."""
    parts: list[tuple[int, ...]] = []
    table.match(topic, parts)
    fitting = [topic[:size] for size in range(len(topic), -1, -1) if topic[:size] in stored]
    assert parts == [stored[key].peers() for key in fitting]


IDS = st.sampled_from([b"x", b"y"])
EPOCHS = st.integers(1, 4)
NEWS = st.one_of(
    st.tuples(st.sampled_from(["up", "down"]), IDS, EPOCHS, st.just(Pattern.prefix(""))),
    st.tuples(st.sampled_from(["subscribe", "unsubscribe"]), IDS, EPOCHS, TOPICS.map(Pattern.prefix)),
)


@given(news=st.lists(NEWS, max_size=60), topic=TOPICS)
def test_only_the_present_epoch_is_heard_in_whatever_order_news_comes(
    news: list[tuple[str, bytes, int, Pattern]], topic: str
) -> None:
    index = SubscriptionIndex()
    peers = PeerTable(index)
    present: dict[bytes, tuple[int, Counter[Pattern]]] = {}
    for what, name, epoch, pattern in news:
        known, requests = present.get(name, (0, Counter()))
        if what == "up":
            assert (peers.up(name, epoch) is not None) == (epoch > known)
            if epoch > known:
                present[name] = (epoch, Counter())
        elif what == "down":
            assert peers.down(name, epoch) == (epoch == known)
            if epoch == known:
                del present[name]
        elif what == "subscribe":
            assert peers.subscribe(name, epoch, pattern) == (epoch == known and not requests[pattern])
            if epoch == known:
                requests[pattern] += 1
        else:
            assert peers.unsubscribe(name, epoch, pattern) == (epoch == known and requests[pattern] == 1)
            if epoch == known and requests[pattern]:
                requests[pattern] -= 1
    wanting = [name for name, (_, requests) in present.items() if any(fits(pattern, topic) for pattern in +requests)]
    assert set(index.match(topic)) == {peers.peer_of(name) for name in wanting}
    assert len(peers) == len(present)
