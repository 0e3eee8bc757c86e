"""The operations on dead-lettered messages, as steps that the async and the sync API share (steps.py).

A move is one change of the store: at every moment, also after a crash, the message is in exactly one of the two
entities. Each operation takes effect at once and cannot be rolled back, so it is refused inside of a transaction.
"""

from collections.abc import Callable, Mapping
from typing import Final

from unibus.bus.dead_letters.dead_message import DeadMessage, dead_message, original_of
from unibus.bus.dead_letters.filters import DeadLetterFilter
from unibus.bus.dead_letters.finding import EntityLookup, entities_of, find
from unibus.bus.dead_letters.ordering import DeadLetterOrder
from unibus.bus.dead_letters.record import RECOVERY_HEADER, dead_lettered_ns, number_in, record_of, source_in, text_in
from unibus.bus.dead_letters.results import DeadGroup, ProcessingResult, RecoveryResult
from unibus.bus.dead_letters.rules import Judge, RecoveryAction, RecoveryRule
from unibus.bus.dead_letters.steps import Steps
from unibus.bus.dead_letters.sweep import STOPPED, Bulk, Decide, Sweep, SweepRefusal, own_ttls, task_for
from unibus.bus.queues.operations import Queues
from unibus.bus.queues.transactions import current
from unibus.core.envelope.message import Message, restored
from unibus.core.envelope.message_properties import HeaderValue
from unibus.core.flow.deadletter import REASON_HEADER
from unibus.core.lifecycle.commands import MOVE_EDIT, Move, Remove, SendResult
from unibus.core.lifecycle.envelope import overrides_of, send_of
from unibus.errors import BusError, EntityNotFound, UsageError
from unibus.stores.seam.message_record import MessageRecord

SAME: Final = object()
"""The placeholder for the body in `edit_and_resend` when the body is not changed: None is a valid body."""

Available = Callable[[str], bool]
Which = DeadMessage | str


class Recovery:
    """The operations on the dead-lettered messages of one store."""

    def __init__(self, queues: Queues, recoveries_max: object) -> None:
        if isinstance(recoveries_max, bool) or not isinstance(recoveries_max, int) or recoveries_max < 0:
            raise UsageError(f"max_recoveries must be a whole number of 0 or more, got {recoveries_max!r}")
        self._queues = queues
        self._store = queues.store
        self._recoveries_max = recoveries_max

    @property
    def store_url(self) -> str:
        return self._store.url

    # Reading

    def listed(
        self, chosen: DeadLetterFilter, limit: object, after: object, order: DeadLetterOrder | None = None
    ) -> Steps[list[DeadMessage]]:
        most = checked_limit(limit)
        if after is not None and not isinstance(after, DeadMessage):
            raise UsageError(
                f"after must be a DeadMessage, got {after!r}", "pass the last message of the previous page"
            )
        # The whole list for each page: it is in memory, and a page by key stays right while messages leave between two
        # pages.
        found = yield from find(self._store, chosen, self._queues.now_ns())
        if order is not None:
            found.entries.sort(key=order.key, reverse=order.is_descending)
        entries = found.entries if after is None else _after(found.entries, after)
        entries = entries[:most]
        data = yield self._store.read_bodies([entry.key for entry in entries])
        # Without messages that were settled since they were found.
        return [dead_message(entry, data[entry.key]) for entry in entries if entry.key in data]

    def groups(self, chosen: DeadLetterFilter) -> Steps[list[DeadGroup]]:
        found = yield from find(self._store, chosen, self._queues.now_ns())
        counted: dict[tuple[str, str], list[int]] = {}
        for entry in found.entries:
            key = entry.entity, text_in(record_of(entry), REASON_HEADER)
            counted.setdefault(key, []).append(dead_lettered_ns(entry))
        groups = [DeadGroup(place, reason, len(at), min(at)) for (place, reason), at in counted.items()]
        return sorted(groups, key=lambda group: (group.entity, -group.count, group.reason))

    def peek(self, which: Which, queue: str | None) -> Steps[DeadMessage | None]:
        entry, _ = yield from self._one(which, queue)
        if entry is None:
            return None
        data = yield self._store.read_bodies([entry.key])
        return dead_message(entry, data[entry.key]) if entry.key in data else None

    def is_available(self, name: str) -> Steps[bool]:
        entities = yield from entities_of(self._store)
        return entities.find(name) is not None

    # One message

    def act(
        self, which: Which, queue: str | None, action: RecoveryAction, target: str, bulk: Bulk
    ) -> Steps[RecoveryResult]:
        """Retry, redirect or discard one message."""
        self._check_alone()
        entry, why = yield from self._one(which, queue)
        if entry is None:
            return RecoveryResult(False, why, _id(which))
        entities = yield from entities_of(self._store)
        ttl_ns = (yield from own_ttls(self._store, [entry])).get(entry.key, 0)
        # Unlike in a sweep the command raises: one message that was settled meanwhile is the answer, not a skipped
        # item.
        task = task_for(entry, ttl_ns, action, target, entities, self._recoveries_max, bulk)
        if isinstance(task, SweepRefusal):
            return RecoveryResult(False, task.why, entry.who.message_id, entry.entity, entry.sequence)
        return (yield from self._apply_command(entry, task.command))

    def edit(
        self,
        which: Which,
        queue: str | None,
        body: object,
        headers: Mapping[str, HeaderValue] | None,
        target: str | None,
    ) -> Steps[RecoveryResult]:
        """Send the message with a new body or additional headers, to its source or to `target`."""
        self._check_alone()
        entry, why = yield from self._one(which, queue)
        if entry is None:
            return RecoveryResult(False, why, _id(which))
        entities = yield from entities_of(self._store)
        place = target or source_in(record_of(entry))
        refusal = entities.why_refused(place) if place else "its record names no source; name a target"
        data = (yield self._store.read_bodies([entry.key])).get(entry.key)
        if refusal or data is None:
            why = refusal or "it was settled meanwhile"
            return RecoveryResult(False, why, entry.who.message_id, entry.entity, entry.sequence)
        return (yield from self._apply_command(entry, _edited(entry, data, place, body, headers or {})))

    def _apply_command(self, entry: MessageRecord, command: Move | Remove) -> Steps[RecoveryResult]:
        message_id = entry.who.message_id
        try:
            (result,) = yield self._store.apply([command])
        except STOPPED:
            # Errors of the store are no property of this message: raise them, or a caller in a loop would try all
            # messages.
            raise
        except BusError as error:
            return RecoveryResult(False, str(error), message_id, entry.entity, entry.sequence)
        # A move gives a SendResult, or None if no subscription of a topic accepted it (then the message stays);
        # a removal gives True.
        if isinstance(result, SendResult):
            return RecoveryResult(True, f"moved to {result.entity}", message_id, result.entity, result.sequence)
        if isinstance(command, Move):
            why = f"no subscription of {command.target} accepts it"
            return RecoveryResult(False, why, message_id, entry.entity, entry.sequence)
        return RecoveryResult(True, "discarded", message_id, entry.entity, entry.sequence)

    def _one(self, which: Which, queue: str | None) -> Steps[tuple[MessageRecord | None, str]]:
        """The one message that the arguments select, or the reason why there is none."""
        if isinstance(which, DeadMessage):
            chosen = DeadLetterFilter(queue=which.entity, ids=(which.id,))
        elif isinstance(which, str):
            chosen = DeadLetterFilter(queue=queue, ids=(which,))
        else:
            raise UsageError(
                f"a dead-lettered message is named by a DeadMessage or by its id, not by a {type(which).__name__}"
            )
        # By id and entity, then by sequence: an id may have been dead-lettered twice in one queue.
        found = (yield from find(self._store, chosen, self._queues.now_ns())).entries
        # An id may be in several dead-letter queues: each subscription has its own copy. A DeadMessage names one.
        if isinstance(which, DeadMessage):
            found = [entry for entry in found if entry.sequence == which.sequence]
        if len(found) == 1:
            return found[0], ""
        if found:
            places = ", ".join(sorted({entry.entity for entry in found}))
            count = f"{len(found)} dead-lettered messages have the id {_id(which)}, in {places}"
            return None, f"{count}: pass one from list_messages"
        return None, f"there is no dead-lettered message {_id(which)}"

    # Many

    def act_on_all(
        self, chosen: DeadLetterFilter, action: RecoveryAction, target: str, bulk: Bulk
    ) -> Steps[ProcessingResult]:
        def decider(entities: EntityLookup) -> Decide:
            if target and entities.find(target) is None:
                raise EntityNotFound(
                    f"there is no queue, topic or subscription {target!r}", "`unibus declare` creates it"
                )
            return lambda entry: (action, target)

        return (yield from self._sweep(chosen, None, bulk, decider))

    def process(
        self,
        rules: tuple[RecoveryRule, ...],
        chosen: DeadLetterFilter,
        limit: int | None,
        available: Available | None,
        bulk: Bulk,
    ) -> Steps[ProcessingResult]:
        """Do with each message what the first matching rule says."""
        return (
            yield from self._sweep(
                chosen, limit, bulk, lambda entities: self._judge(rules, available, entities).verdict
            )
        )

    def tried(
        self, rules: tuple[RecoveryRule, ...], chosen: DeadLetterFilter, available: Available | None
    ) -> Steps[list[int]]:
        """The number of messages that each rule would decide, and last the number that none would. Changes nothing."""
        found = yield from find(self._store, chosen, self._queues.now_ns())
        judge = self._judge(rules, available, found.entities)
        counts = [0] * (len(rules) + 1)
        for entry in found.entries:
            counts[judge.rule_for(entry)] += 1
        return counts

    def _judge(self, rules: tuple[RecoveryRule, ...], available: Available | None, entities: EntityLookup) -> Judge:
        return Judge(rules, self._queues.now_ns(), available or (lambda name: entities.find(name) is not None))

    def _sweep(
        self, chosen: DeadLetterFilter, limit: int | None, bulk: Bulk, decider: Callable[[EntityLookup], Decide]
    ) -> Steps[ProcessingResult]:
        self._check_alone()
        most = checked_limit(limit)
        found = yield from find(self._store, chosen, self._queues.now_ns())
        found.entries = found.entries[:most]
        return (yield from Sweep(self._queues, found, self._recoveries_max, bulk).run(decider(found.entities)))

    def _check_alone(self) -> None:
        if self._queues.exchange.transactions and current(self._store) is not None:
            raise UsageError(
                "dead-lettered messages cannot be recovered or discarded inside of a transaction",
                "do it before or after the transaction",
            )


def checked_limit(limit: object) -> int | None:
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit >= 1):
        return limit
    raise UsageError(f"limit must be a whole number of 1 or more, got {limit!r}", "use None for no limit")


def _id(which: Which) -> str:
    return which if isinstance(which, str) else which.id


def _after(entries: list[MessageRecord], last: DeadMessage) -> list[MessageRecord]:
    """The entries after the last message of a page, by their key: the message itself may be settled meanwhile."""
    place = last.failure_ns, last.entity, last.sequence
    return [entry for entry in entries if (dead_lettered_ns(entry), entry.entity, entry.sequence) > place]


def _edited(entry: MessageRecord, data: bytes, target: str, body: object, headers: Mapping[str, HeaderValue]) -> Move:
    overlay = record_of(entry)
    old = original_of(data, overlay, 0)
    message: Message = restored(
        old.id, old.channel, old.body if body is SAME else body, old.timestamp_ns, old.properties
    )
    message.priority = old.priority
    before = max(number_in(overlay, RECOVERY_HEADER), number_in(dict(old.headers), RECOVERY_HEADER))
    # The headers of settlements, and the count of recoveries, become headers of the edited message itself: its overlay
    # starts empty but for the count.
    counted: dict[str, HeaderValue] = {**headers, RECOVERY_HEADER: before + 1}
    send = send_of(message.with_headers(counted), target)
    command = Move(entry.entity, entry.sequence, target)
    command.action = MOVE_EDIT
    command.overlay = overrides_of({RECOVERY_HEADER: before + 1})
    command.ttl_ns = send.ttl_ns
    command.data = send.data
    command.who = send.who
    return command
