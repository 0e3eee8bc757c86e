"""Messages that no subscriber takes: each is counted on its channel, and the first one of a channel is a warning.

`publish` returns for them as for any other, because a publisher does not know who is subscribed. Without a word a name
that is misspelled, or a subscriber that comes too late, would only show as messages that are missing.
"""

import logging
from typing import Final

from unibus.core.atomic import LOCK

log = logging.getLogger("unibus")

CHANNELS_NAMED_MAX: Final = 10
"""So many channels of a bus are named in the log; one more line says that there are others."""


class UnroutedWarnings:
    """The warnings of one bus."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def report(self, channel: str) -> None:
        """Log the first message of the channel; nothing for one that was named before, or beyond the limit."""
        with LOCK:  # Not while logging: a handler of the log is code of the user's.
            count = len(self._named)
            if channel in self._named or count > CHANNELS_NAMED_MAX:
                return
            self._named.add(channel)
        if count < CHANNELS_NAMED_MAX:
            log.warning(
                "no subscriber takes the message that was published to %r, so it is not delivered: subscribe before "
                "you publish, or let create_channel(%r) keep messages for the first subscriber",
                channel,
                channel,
            )
        else:
            log.warning(
                "other channels have messages that no subscriber takes, too; snapshot() counts them as 'unrouted', "
                "and no more of them are logged"
            )
