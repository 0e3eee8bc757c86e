"""The wait graph of one bus: which handlers wait for which channels, and whether a wait would close a cycle.

    group ──a handler of it waits for a place, or for a reply──▶ channel ──is taken by──▶ group ──waits──▶ …

Two handlers that publish to each other's full channels would wait for each other until their timeout, or for ever. So a
handler looks before it waits: if its own group can be reached from the channel, the publish is refused at once.

Rules:
- An edge exists exactly as long as its handler waits. So the graph has no more edges than waiting handlers, and the
  usual publish, which finds a free place, does not touch it.
- The search and the new edge are one step under LOCK: of several handlers that would close a cycle, one at least sees
  the edges of all others.
- It is cautious: a group with ten slots counts as waiting when one of them waits, because the others may follow.

A request adds an edge without a search: its timeout ends it. A publisher that waits already finds a cycle that a
request or a new subscription has closed at the next look of the timer (backpressure.py).
"""

from collections import deque
from collections.abc import Callable

from unibus.bus.pubsub.channel import Channel
from unibus.bus.pubsub.exchange import Exchange
from unibus.bus.pubsub.group import INSIDE, Group
from unibus.core.atomic import LOCK


class WaitGraph:
    """The handlers of one bus that wait now. Each wait is one key, so that a handler may wait several times at once."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._waits: dict[Group, dict[object, Channel]] = {}  # Changed and read under LOCK.
        # The groups with a handler in this process that take the messages of a persistent channel out of the store;
        # None for a channel in memory.
        self.stored_takers: Callable[[str], list[Group] | None] = lambda channel: None

    def current_group(self) -> Group | None:
        """The group of the handler that calls this, or None outside of the handlers of this bus."""
        consumer = INSIDE.get()
        return None if consumer is None or consumer.bus is not self._exchange else consumer.group

    def enter(self, group: Group, wait: object, channel: Channel) -> list[str]:
        """A handler of the group is about to wait for the channel. Returns the cycle that it would close, else [].

        Called before each wait of one publish, with the same `wait`: the routes and the other handlers change.
        """
        with LOCK:
            cycle = self.cycle(group, channel)
            if not cycle:
                self._waits.setdefault(group, {})[wait] = channel
            return cycle

    def leave(self, group: Group, wait: object) -> None:
        """The wait has ended. Without effect if it never began."""
        with LOCK:
            waits = self._waits.get(group)
            if waits is not None and waits.pop(wait, None) is not None and not waits:
                del self._waits[group]

    def enter_request(self, group: Group, wait: object, name: str) -> None:
        """A handler of the group is about to wait for the reply of a handler of that channel."""
        channel = self._exchange.channels.get(name)
        if channel is not None:
            with LOCK:
                self._waits.setdefault(group, {})[wait] = channel

    def cycle(self, group: Group, channel: Channel) -> list[str]:
        """The names of the channels on a cycle through this group and this channel: ["a", "b", "a"]; [] without one.

        The first and the last name are the channel whose messages the group takes.
        """
        with LOCK:
            before: dict[Channel, Channel | None] = {channel: None}
            found = deque([channel])
            while found:
                each = found.popleft()
                for taker in self._takers(each):
                    if taker is group:
                        return _path(before, each)
                    for following in self._waits.get(taker, {}).values():
                        if following not in before:
                            before[following] = each
                            found.append(following)
            return []

    def has_cycle_through(self, channel: Channel) -> bool:
        """Whether a handler that waits for this channel waits for itself by now."""
        with LOCK:
            groups = [group for group, waits in self._waits.items() if channel in waits.values()]
            return any(self.cycle(group, channel) for group in groups)

    def _takers(self, channel: Channel) -> list[Group]:
        """The reliable groups of the channel: a lossy one holds up no publisher.

        Listeners of a persistent channel (patterns) hold none up, either: only durable subscriptions count.
        """
        stored = self.stored_takers(channel.name)
        if stored is not None:
            return stored
        if channel.routes_version != self._exchange.version:
            self._exchange.refresh(channel)
        return [group for group in channel.routes if group.bound == 0 and not group.closed]


def _path(before: dict[Channel, Channel | None], last: Channel) -> list[str]:
    names = [last.name]
    step = before[last]
    while step is not None:
        names.append(step.name)
        step = before[step]
    return [last.name, *reversed(names)]
