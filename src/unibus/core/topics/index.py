"""Who wants this topic? The index of subscriptions of one bus, hub or endpoint.

It knows peers only as integers and does nothing with them but to name them: each peer once, in ascending order, however
many of its patterns fit. What is not used costs nothing: with exact patterns alone a match is one dict lookup.
The three kinds of pattern (`unibus.core.topics.pattern`) live in a dict, a sorted table (`unibus.core.topics.prefixes`)
and a tree of tokens (`unibus.core.topics.wildcards`). A subscription is counted per peer and pattern, as ZMTP asks: who
subscribes twice must unsubscribe twice.

Changes take the package's lock, since they make objects between looking and changing. `match` takes none where the
code is compiled: it may run beside a change, and then answers as before it or as after it for each pattern.
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
    """The interest in one name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


@final
class SubscriptionIndex:
    """Counted subscriptions of integer peers to patterns.

    `version` grows when an answer of `match` may have changed, and only then: an answer may be kept together with the
    version that was read before it, as long as that is the version. `len()` counts distinct pairs of peer and pattern.
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
        """Count the peer's wish for a pattern up; True if the peer did not have it before.

        SubscriptionLimit, with nothing changed, if the peer would hold more than PREFIXES_PER_PEER_MAX patterns.
        """
        with LOCK:
            return self._subscribe(peer, pattern)

    def unsubscribe(self, peer: int, pattern: Pattern) -> bool:
        """Count the peer's wish for a pattern down; True if the peer had it and has it no more."""
        with LOCK:
            return self._unsubscribe(peer, pattern)

    def remove_peer(self, peer: int) -> int:
        """Forget a peer and all that it wished for; how many patterns that were. Costs what the peer held."""
        with LOCK:
            return self._remove_peer(peer)

    def patterns_of(self, peer: int) -> int:
        """How many patterns the peer holds."""
        holder = self._holders.get(peer)
        return 0 if holder is None else holder.size()

    def match(self, topic: str | bytes) -> tuple[int, ...]:
        """The peers that want a topic, ascending, each once. Text and its UTF-8 bytes are the same topic."""
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
                    f"peer {peer} already holds {PREFIXES_PER_PEER_MAX} patterns", "use a shorter prefix or a wildcard"
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
        """Take a peer off an interest, and an interest that nobody has any more out of its place."""
        if not interest.leave(peer):
            return
        if isinstance(interest, Prefix):
            self._prefixes.remove(interest)
        elif isinstance(interest, Wildcard):
            self._wildcards.remove(interest)
        elif isinstance(interest, Exact):
            del self._exact[interest.name]


atomic(SubscriptionIndex, "match", "patterns_of")
