"""The first design's own name for a store: `SqlitePersistence`, with the four verbs that it promised.

    persistence = SqlitePersistence.new("bus.db")
    bus.with_persistence(persistence)          # or by hand: persist, replay, delete, prune_before

Underneath is an ordinary store. A message that is persisted by hand is kept by its channel, as messages are that come
while nobody subscribes. Persisting the same id again replaces it, as that design says.
"""

import logging
from typing import Final

from unibus.bus.history import archive
from unibus.bus.names import checked_name
from unibus.bus.pubsub.pattern_names import check_new_entity
from unibus.bus.store_url import sqlite_url
from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.changes import Settings
from unibus.core.lifecycle.state.entity import KIND_NAMES, TOPIC
from unibus.stores.opening import open_store
from unibus.stores.seam.store import Store

log = logging.getLogger("unibus")

_KEEPS: Final[Settings] = {"keeps": True}


class SqlitePersistence:
    """`store` is what a bus stands on. Whoever made this closes it."""

    def __init__(self, url: str) -> None:
        self._timers = ThreadTimers(SYSTEM_CLOCK, _report)
        self.store: Store = open_store(url, SYSTEM_CLOCK, self._timers)

    @classmethod
    def new(cls, path: object) -> "SqlitePersistence":
        """Messages in this file."""
        return cls(sqlite_url(str(path)))

    @classmethod
    def in_memory(cls) -> "SqlitePersistence":
        """For tests: they go with the process."""
        return cls("memory://")

    def persist(self, message: Message) -> None:
        """Keep the message in its channel, instead of one with the same id. It is on disk when this returns."""
        channel = checked_name(message.channel)
        check_new_entity(channel, self.store)
        if all(info.name != channel for info in self.store.entities().wait()):
            self.store.apply([Declare(channel, TOPIC, _KEEPS)]).wait()
        self.store.apply([*archive.deletion(self.store, message.id), send_of(message, channel)]).wait()

    def replay(self, channel: str, after_timestamp: int = 0) -> list[Message]:
        """Those of the channel that were made after that instant (ns since 1970), in the order they were kept."""
        if all(info.name != channel for info in self.store.entities().wait()):
            return []
        found = archive.replay(self.store, channel, 0)
        return [message for message in found if message.timestamp_ns > after_timestamp]

    def delete(self, message_id: str) -> bool:
        """Whether there was one."""
        return archive.delete(self.store, message_id) > 0

    def prune_before(self, timestamp_ns: int) -> int:
        """Delete everything that was made before that instant. Gives how many."""
        count = 0
        for info in self.store.entities().wait():
            if info.kind == KIND_NAMES[TOPIC]:
                for message in list(archive.replay(self.store, info.name, 0)):
                    if message.timestamp_ns < timestamp_ns:
                        count += self.delete(message.id)
        return count

    def close(self) -> None:
        self.store.close()
        self._timers.stop()

    def __enter__(self) -> "SqlitePersistence":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()


def _report(error: BaseException) -> None:
    log.error("a store's timer has failed: %s", error)
