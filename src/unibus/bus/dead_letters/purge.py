"""Purge: remove all messages of a queue, a subscription or a dead-letter queue, in batches of the store.

    find_purged   the messages that exist now, in any state; refuses topics, which hold none of their own
    PurgeSweep    one `Remove` for each of them, a batch at a time: history gets one `purged` event for each

Active, scheduled and deferred messages are removed. In-flight messages (locked by a receiver) stay: their receiver
settles them. Messages that are sent later stay, too. A purge that is interrupted between two batches has removed the
batches before; the next purge removes the rest. `bus.purge`, `unibus purge` and the purge jobs of a server use this.
"""

from typing import Final

from unibus.bus.dead_letters.finding import FoundMessages, entities_of, page_until
from unibus.bus.dead_letters.rules import RecoveryAction
from unibus.bus.dead_letters.steps import Steps
from unibus.bus.dead_letters.sweep import Bulk, Decide, Sweep, SweepTask
from unibus.bus.queues.operations import Queues
from unibus.core.flow.deadletter import is_sub_queue
from unibus.core.lifecycle.commands import Remove
from unibus.core.lifecycle.state.entity import KIND_NAMES, TOPIC
from unibus.core.lifecycle.state.states import LOCKED
from unibus.errors import EntityNotFound, UsageError
from unibus.stores.seam.message_record import MessageRecord

PURGED: Final = "purged"
"""The reason in the `purged` event, which a discarded message has as well, with another reason."""


class PurgeSweep(Sweep):
    """Removes messages in any state except locked."""

    def _tasks(self, entries: list[MessageRecord], decide: Decide) -> Steps[list[SweepTask]]:
        yield from ()  # It reads no bodies, so it waits for nothing.
        tasks: list[SweepTask] = []
        for entry in entries:
            if self._bulk.dry_run and entry.state == LOCKED:
                self.result.skipped += 1
                continue
            command = Remove(entry.entity, entry.sequence, PURGED)
            command.raises = False  # A message that was locked or settled meanwhile is skipped.
            tasks.append(SweepTask(entry.who.message_id, RecoveryAction.DISCARD, command))
        return tasks


def find_purged(queues: Queues, name: str) -> Steps[FoundMessages]:
    """The messages that a purge of this entity would remove. Raises EntityNotFound, and UsageError for a topic."""
    found = FoundMessages((yield from entities_of(queues.store)))
    info = found.entities.find(name)
    # A dead-letter queue is created with its first message: its name is valid before that.
    if info is None and not is_sub_queue(name):
        raise EntityNotFound(f"there is no entity {name!r:.80}", "create it first")
    check_purgeable(name, "" if info is None else info.kind)
    if info is None:
        yield queues.store.list_messages(name, 0, 1)  # Raises EntityNotFound if its entity does not exist.
        return found
    until, at = info.last_sequence, 0
    while at <= until and (page := (yield from page_until(queues.store, name, at, until))):
        found.entries += page
        at = page[-1].sequence + 1
    return found


def check_purgeable(name: str, kind: str) -> None:
    if kind == KIND_NAMES[TOPIC]:
        raise UsageError(
            f"{name!r:.80} is a topic, which holds no messages to purge",
            f"purge one of its subscriptions: {name:.80}/Subscriptions/NAME",
        )


def purge_entity(queues: Queues, name: str) -> Steps[int]:
    """Purge to the end. The result is the number of messages that were removed."""
    found = yield from find_purged(queues, name)
    result = yield from PurgeSweep(queues, found, 0, Bulk()).run(_discard)
    return int(result.discarded)


def _discard(entry: MessageRecord) -> tuple[RecoveryAction, str]:
    return RecoveryAction.DISCARD, ""
