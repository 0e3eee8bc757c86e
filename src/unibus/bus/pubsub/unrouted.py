"""Unrouted messages, which no subscriber takes: each is counted on its channel, the first of a channel is logged.

`publish` succeeds for them, because a publisher need not know the subscribers. Without the warning a misspelt name, or
a subscriber that comes too late, would only show as missing messages.
"""

from typing import Final

from unibus.core.atomic import LOCK
from unibus.safe_log import SafeLogger

log = SafeLogger("unibus")

CHANNELS_NAMED_MAX: Final = 10
"""The log names this many channels of a bus; one more line says that there are others."""


class UnroutedWarnings:
    """The warnings of one bus."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def report(self, channel: str, is_queue: bool = False) -> None:
        """Log the first unrouted message of the channel; nothing for a channel named before, or beyond the limit.

        `is_queue`: a queue of the store has this name, and a channel in memory of the same name cannot be created.
        """
        with LOCK:  # Not held while logging: a log handler is code of the user, and may publish.
            count = len(self._named)
            if channel in self._named or count > CHANNELS_NAMED_MAX:
                return
            self._named.add(channel)
        if is_queue:
            log.warning(
                "%r is a queue: a message that is published is not stored in it, and not delivered; write send(%r, …)",
                channel,
                channel,
            )
        elif count < CHANNELS_NAMED_MAX:
            log.warning(
                "channel %r has no subscriber, so the message is not delivered: subscribe before you publish, or call "
                "create_channel(%r), which keeps messages for the first subscriber",
                channel,
                channel,
            )
        else:
            log.warning(
                "more channels have messages without a subscriber; no more of them are logged, snapshot() counts such "
                "messages as 'unrouted'"
            )
