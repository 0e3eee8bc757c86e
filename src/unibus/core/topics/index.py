"""The subscription index of one bus or endpoint: which peers match a topic.

    subscribe(peer, pattern) ──▶ exact      dict
                                 prefix     sorted table    prefixes.py
                                 wildcard   tree of tokens  wildcards.py
    match(topic) ──▶ peers, ascending, each once, however many of its patterns match

Peers are integers here. What is not used costs nothing: with exact patterns alone a match is one dict lookup. A
subscription is counted for each peer and pattern, as ZMTP requires: a peer that subscribes twice must unsubscribe
twice.

Changes take the lock of the package, because they allocate between check and change. Compiled, `match` takes no lock:
it may run concurrently with a change, and then returns, for each pattern, the result of before or of after the change.
"""

from typing import final

from unibus.core.atomic import LOCK, atomic
from unibus.core.topics.interest import Interest, PeerInterests, union
from unibus.core.topics.pattern import EXACT, Pattern, name_bytes, name_text
from unibus.core.topics.prefixes import Prefix, PrefixTable
from unibus.core.topics.wildcards import Wildcard, WildcardTree
from unibus.errors import SubscriptionLimit
from unibus.limits import PREFIXES_PER_PEER_MAX


@final
class Exact(Interest):
    """The subscribers of one exact name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


@final
class SubscriptionIndex:
    """Counted subscriptions of integer peers to patterns.

    `version` is incremented when a result of `match` may have changed, and only then. So a result may be cached with
    the version that was read before it, and is valid while the version is the same. `len()` counts distinct pairs of
    peer and pattern.
    """

    __slots__ = ("_exact", "_holders", "_prefixes", "_size", "_wildcards", "version")

    def __init__(self) -> None:
        self.version = 0
        self._size = 0
        self._holders: dict[int, PeerInterests] = {}
        self._exact: dict[str, Exact] = {}
        self._prefixes = PrefixTable()
        self._wildcards = WildcardTree()

    def __len__(self) -> int:
        return self._size

    def subscribe(self, peer: int, pattern: Pattern) -> bool:
        """Subscribe the peer once more to the pattern; True if it was not subscribed to it before.

        Raises SubscriptionLimit, and changes nothing, if the peer would have more than PREFIXES_PER_PEER_MAX patterns.
        """
        with LOCK:
            return self._subscribe(peer, pattern)

    def unsubscribe(self, peer: int, pattern: Pattern) -> bool:
        """Undo one subscription of the peer to the pattern; True if that was the last one."""
        with LOCK:
            return self._unsubscribe(peer, pattern)

    def remove_peer(self, peer: int) -> int:
        """Remove a peer and all its subscriptions; returns the number of its patterns. The cost grows with these
        only."""
        with LOCK:
            return self._remove_peer(peer)

    def patterns_of(self, peer: int) -> int:
        """How many patterns the peer is subscribed to."""
        holder = self._holders.get(peer)
        return 0 if holder is None else holder.size()

    def match(self, topic: str | bytes) -> tuple[int, ...]:
        """The peers that match a topic, ascending, each once. Text and its UTF-8 bytes are the same topic."""
        if not self._prefixes.size and not self._wildcards.size:
            exact = self._exact.get(topic if isinstance(topic, str) else name_text(topic))
            return () if exact is None else exact.peers()
        return self._match_all_kinds(topic)

    def _subscribe(self, peer: int, pattern: Pattern) -> bool:
        holder = self._holders.get(peer)
        interest = self._find(pattern)
        if holder is not None:
            if interest is not None and holder.holds(interest):
                holder.count_up(interest)
                return False
            if holder.size() >= PREFIXES_PER_PEER_MAX:
                raise SubscriptionLimit(
                    f"peer {peer} already has {PREFIXES_PER_PEER_MAX} patterns", "use a shorter prefix or a wildcard"
                )
        else:
            holder = PeerInterests(peer)
            self._holders[peer] = holder
        if interest is None:
            interest = self._insert(pattern)
        interest.join(holder.alone)
        holder.count_up(interest)
        self._size += 1
        self.version += 1
        return True

    def _unsubscribe(self, peer: int, pattern: Pattern) -> bool:
        holder = self._holders.get(peer)
        interest = self._find(pattern)
        if holder is None or interest is None or not holder.holds(interest):
            return False
        if not holder.count_down(interest):
            return False
        self._leave(peer, interest)
        if not holder.size():
            del self._holders[peer]
        self._size -= 1
        self.version += 1
        return True

    def _remove_peer(self, peer: int) -> int:
        holder = self._holders.pop(peer, None)
        if holder is None:
            return 0
        for interest in holder.interests():
            self._leave(peer, interest)
        count = holder.size()
        self._size -= count
        self.version += 1
        return count

    def _match_all_kinds(self, topic: str | bytes) -> tuple[int, ...]:
        parts: list[tuple[int, ...]] = []
        if self._prefixes.size:
            self._prefixes.match(name_bytes(topic), parts)
        if self._exact or self._wildcards.size:
            name = name_text(topic)
            exact = self._exact.get(name)
            if exact is not None:
                parts.append(exact.peers())
            if self._wildcards.size:
                self._wildcards.match(name, parts)
        return union(parts)

    def _find(self, pattern: Pattern) -> Interest | None:
        text = pattern.text
        if isinstance(text, bytes):
            return self._prefixes.find(text)
        return self._exact.get(text) if pattern.kind == EXACT else self._wildcards.find(text)

    def _insert(self, pattern: Pattern) -> Interest:
        text = pattern.text
        if isinstance(text, bytes):
            return self._prefixes.insert(text)
        if pattern.kind != EXACT:
            return self._wildcards.insert(text)
        exact = Exact(text)
        self._exact[text] = exact
        return exact

    def _leave(self, peer: int, interest: Interest) -> None:
        """Remove a peer from an interest, and the interest from the index if it has no other peer."""
        if not interest.leave(peer):
            return
        if isinstance(interest, Prefix):
            self._prefixes.remove(interest)
        elif isinstance(interest, Wildcard):
            self._wildcards.remove(interest)
        elif isinstance(interest, Exact):
            del self._exact[interest.name]


atomic(SubscriptionIndex, "match", "patterns_of")
