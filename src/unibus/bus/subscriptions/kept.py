"""What a created channel kept, offered to the first group: its filter is asked for each kept message, as for a new one.

The filter is code of the user, so it must not run under LOCK: it may wait for another thread that needs LOCK. But the
new group has to take over all kept messages in one step, or a publish in between would be delivered before them. So:

    read the kept messages ──▶ ask the filter, without LOCK ──▶ LOCK: all asked? ──yes──▶ open the group, deliver
             ▲                                                        │ no: one was published meanwhile
             └────────────────────────────────────────────────────────┘

Each round asks only for the new messages. A filter that is slower than the publishers would never end; after
`ROUNDS_MAX` rounds the rest is asked under LOCK, which stops the publishers.
"""

from collections.abc import Callable, Iterable
from typing import Final

from unibus.bus.pubsub.channel import Channel
from unibus.bus.pubsub.exchange import Exchange, is_internal
from unibus.core.envelope.message import Message
from unibus.core.flow.deadletter import SUB_QUEUE
from unibus.core.topics.index import SubscriptionIndex
from unibus.core.topics.pattern import EXACT, Pattern, name_text

ROUNDS_MAX: Final = 20


def takes_internal(pattern: Pattern) -> bool:
    """Whether a pattern names dead-letter queues: only then it matches them."""
    return SUB_QUEUE in name_text(pattern.text)


def keeping_channels(exchange: Exchange, pattern: Pattern) -> list[Channel]:
    """The created channels of this pattern: they keep messages while they have no group."""
    if pattern.kind == EXACT:
        named = exchange.channels.get(str(pattern.text))
        return [named] if named is not None and named.declared else []
    # An index with this one pattern: it matches names by exactly the rules of a publish.
    index = SubscriptionIndex()
    index.subscribe(0, pattern)
    internal = takes_internal(pattern)
    return [
        channel
        # A copy: other threads may create channels meanwhile.
        for channel in list(exchange.channels.values())
        if channel.declared and (internal or not is_internal(channel.name)) and index.match(channel.name)
    ]


class KeptFilter:
    """The answers of one filter about kept messages. A filter that raises rejects the message, as in a publish."""

    def __init__(self, exchange: Exchange, pattern: Pattern, group: str, accepts: Callable[[Message], object]) -> None:
        self._exchange = exchange
        self._pattern = pattern
        self._group = group
        self._accepts = accepts
        self._asked: dict[int, Message] = {}  # By identity: a message id may be used twice. Keeps the object alive.
        self._rounds = 0
        self.rejected: set[int] = set()  # By identity, too.

    def ask(self) -> None:
        """Ask the filter for every kept message that it was not asked for. Without LOCK, but in the last round."""
        self._rounds += 1
        for channel, message in self._unasked():
            # Before the call: a filter that raises is not asked again for the same message.
            self._asked[id(message)] = message
            if not self._is_accepted(channel, message):
                self.rejected.add(id(message))

    def is_complete(self) -> bool:
        """Whether the filter was asked for all kept messages. Under LOCK, so that none is published meanwhile."""
        if self._rounds >= ROUNDS_MAX:
            self.ask()
        return not any(True for _ in self._unasked())

    def _unasked(self) -> Iterable[tuple[Channel, Message]]:
        for channel in keeping_channels(self._exchange, self._pattern):
            for message in channel.kept.items():
                if id(message) not in self._asked:
                    yield channel, message

    def _is_accepted(self, channel: Channel, message: Message) -> bool:
        try:
            return bool(self._accepts(message))
        except Exception as error:
            self._exchange.provider.filter_failed(channel, self._group, error)
            return False
