"""SqlitePersistence: a store with four methods, persist, replay, delete and prune_before.

    persistence = SqlitePersistence.new("bus.db")
    bus.with_persistence(persistence)          # or directly: persist, replay, delete, prune_before

It wraps an ordinary store. A message that is persisted directly is kept by its channel, as a message that is published
while there is no subscriber. Persisting a message with the same id again replaces the first one.
"""

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
from unibus.display import described, without_secrets
from unibus.safe_log import SafeLogger
from unibus.stores.opening import open_store
from unibus.stores.seam.store import Store

log = SafeLogger("unibus")

_KEEPS: Final[Settings] = {"keeps": True}


class SqlitePersistence:
    """`store` is the store that a bus uses. The code that creates the object also closes it."""

    def __init__(self, url: str) -> None:
        self._timers = ThreadTimers(SYSTEM_CLOCK, _report)
        self.store: Store = open_store(url, SYSTEM_CLOCK, self._timers)

    def __repr__(self) -> str:
        return described(self, lambda: without_secrets(self.store.url))

    @classmethod
    def new(cls, path: object) -> "SqlitePersistence":
        """Keep messages in this file."""
        return cls(sqlite_url(str(path)))

    @classmethod
    def in_memory(cls) -> "SqlitePersistence":
        """Keep messages in memory, for tests."""
        return cls("memory://")

    def persist(self, message: Message) -> None:
        """Store the message in its channel; it replaces one with the same id. It is on disk when this returns."""
        channel = checked_name(message.channel)
        # As for a channel that a bus creates: a name with wildcards would be read as a pattern later.
        check_new_entity(channel, self.store)
        # A topic that keeps messages while it has no subscription: the form in which a bus stores a channel, so that
        # one opened on this file delivers them to its first group.
        if all(info.name != channel for info in self.store.entities().wait()):
            self.store.apply([Declare(channel, TOPIC, _KEEPS)]).wait()
        # One batch: after a crash there is the old message or the new one, never both or none.
        self.store.apply([*archive.deletion(self.store, message.id), send_of(message, channel)]).wait()

    def replay(self, channel: str, after_timestamp: int = 0) -> list[Message]:
        """The channel's messages with a timestamp after that instant (ns since 1970), in the order of storing."""
        if all(info.name != channel for info in self.store.entities().wait()):
            return []
        found = archive.replay(self.store, channel, 0)
        return [message for message in found if message.timestamp_ns > after_timestamp]

    def delete(self, message_id: str) -> bool:
        """Delete a message. Gives whether it existed."""
        return archive.delete(self.store, message_id) > 0

    def prune_before(self, timestamp_ns: int) -> int:
        """Delete all messages with a timestamp before that instant (ns since 1970). Gives their number."""
        count = 0
        for info in self.store.entities().wait():
            if info.kind == KIND_NAMES[TOPIC]:
                # A list, because `delete` changes the history that the iterator reads.
                for message in list(archive.replay(self.store, info.name, 0)):
                    if message.timestamp_ns < timestamp_ns:
                        count += self.delete(message.id)
        return count

    def close(self) -> None:
        try:
            self.store.close()
        finally:
            self._timers.stop()  # After the store, whose close may still wait for a timer; also after its error.

    def __enter__(self) -> "SqlitePersistence":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()


def _report(error: BaseException) -> None:
    log.error("a timer of the store has failed: %s", error)
