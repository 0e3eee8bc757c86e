"""What can be done with dead letters, in the form that both faces share: work in steps.

A letter that is moved is moved in one step of the store: it is in the one place or in the other. Each verb acts at
once, so inside of a transaction it is refused: what could be taken back would have been done.
"""

from collections.abc import Callable, Mapping
from typing import Final

from unibus.bus.dead_letters.dead_message import DeadMessage, dead_message, original_of
from unibus.bus.dead_letters.filters import DeadLetterFilter
from unibus.bus.dead_letters.finding import EntityLookup, entities_of, find
from unibus.bus.dead_letters.ordering import DeadLetterOrder
from unibus.bus.dead_letters.record import RECOVERY_HEADER, died_ns, number_in, record_of, source_in, text_in
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
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.errors import BusError, EntityNotFound, UsageError

SAME: Final = object()
"""The body of a message whose body is not edited."""

Available = Callable[[str], bool]
Which = DeadMessage | str


class Recovery:
    """The dead letters of one store."""

    def __init__(self, queues: Queues, recoveries_max: object) -> None:
        if isinstance(recoveries_max, bool) or not isinstance(recoveries_max, int) or recoveries_max < 0:
            raise UsageError(f"max_recoveries is {recoveries_max!r}", "a whole number from 0 up")
        self._queues = queues
        self._store = queues.store
        self._recoveries_max = recoveries_max

    # Looking

    def listed(
        self, chosen: DeadLetterFilter, limit: object, after: object, order: DeadLetterOrder | None = None
    ) -> Steps[list[DeadMessage]]:
        most = checked_limit(limit)
        if after is not None and not isinstance(after, DeadMessage):
            raise UsageError(f"after is {after!r}", "the last letter of the page before")
        found = yield from find(self._store, chosen, self._queues.now_ns())
        if order is not None:
            found.entries.sort(key=order.key, reverse=order.is_descending)
        entries = found.entries if after is None else _after(found.entries, after)
        entries = entries[:most]
        data = self._store.data_of(entries)
        return [dead_message(entry, data[entry]) for entry in entries if entry in data]

    def groups(self, chosen: DeadLetterFilter) -> Steps[list[DeadGroup]]:
        found = yield from find(self._store, chosen, self._queues.now_ns())
        counted: dict[tuple[str, str], list[int]] = {}
        for entry in found.entries:
            key = entry.entity.name, text_in(record_of(entry), REASON_HEADER)
            counted.setdefault(key, []).append(died_ns(entry))
        groups = [DeadGroup(place, reason, len(at), min(at)) for (place, reason), at in counted.items()]
        return sorted(groups, key=lambda group: (group.entity, -group.count, group.reason))

    def peek(self, which: Which, queue: str | None) -> Steps[DeadMessage | None]:
        entry, _ = yield from self._one(which, queue)
        data = {} if entry is None else self._store.data_of([entry])
        return dead_message(entry, data[entry]) if entry is not None and entry in data else None

    def is_available(self, name: str) -> Steps[bool]:
        entities = yield from entities_of(self._store)
        return entities.find(name) is not None

    # One letter

    def act(
        self, which: Which, queue: str | None, action: RecoveryAction, target: str, bulk: Bulk
    ) -> Steps[RecoveryResult]:
        """Retry, redirect or discard one letter."""
        self._check_alone()
        entry, why = yield from self._one(which, queue)
        if entry is None:
            return RecoveryResult(False, why, _id(which))
        entities = yield from entities_of(self._store)
        ttl_ns = own_ttls(self._store, [entry]).get(entry, 0)
        task = task_for(entry, ttl_ns, action, target, entities, self._recoveries_max, bulk)
        if isinstance(task, SweepRefusal):
            return RecoveryResult(False, task.why, entry.who.message_id, entry.entity.name, int(entry.sequence))
        return (yield from self._carry_out(entry, task.command))

    def edit(
        self,
        which: Which,
        queue: str | None,
        body: object,
        headers: Mapping[str, HeaderValue] | None,
        target: str | None,
    ) -> Steps[RecoveryResult]:
        """The same message with another body, or with headers on top of its own, to where it died or elsewhere."""
        self._check_alone()
        entry, why = yield from self._one(which, queue)
        if entry is None:
            return RecoveryResult(False, why, _id(which))
        entities = yield from entities_of(self._store)
        place = target or source_in(record_of(entry))
        hindrance = entities.hindrance(place) if place else "nothing says where it died; name a target"
        data = self._store.data_of([entry]).get(entry)
        if hindrance or data is None:
            why = hindrance or "it is gone"
            return RecoveryResult(False, why, entry.who.message_id, entry.entity.name, int(entry.sequence))
        return (yield from self._carry_out(entry, _edited(entry, data, place, body, headers or {})))

    def _carry_out(self, entry: StoredMessage, command: Move | Remove) -> Steps[RecoveryResult]:
        message_id = entry.who.message_id
        try:
            (result,) = yield self._store.apply([command])
        except STOPPED:
            raise
        except BusError as error:
            return RecoveryResult(False, str(error), message_id, entry.entity.name, int(entry.sequence))
        if isinstance(result, SendResult):
            return RecoveryResult(True, f"moved to {result.entity}", message_id, result.entity, result.sequence)
        if isinstance(command, Move):
            why = f"no subscription behind {command.target} takes it"
            return RecoveryResult(False, why, message_id, entry.entity.name, int(entry.sequence))
        return RecoveryResult(True, "discarded", message_id, entry.entity.name, int(entry.sequence))

    def _one(self, which: Which, queue: str | None) -> Steps[tuple[StoredMessage | None, str]]:
        """The letter that is meant, or why there is none."""
        if isinstance(which, DeadMessage):
            chosen = DeadLetterFilter(queue=which.entity, ids=(which.id,))
        elif isinstance(which, str):
            chosen = DeadLetterFilter(queue=queue, ids=(which,))
        else:
            raise UsageError(f"a dead letter is a DeadMessage or an id, not {type(which).__name__}")
        found = (yield from find(self._store, chosen, self._queues.now_ns())).entries
        if isinstance(which, DeadMessage):
            found = [entry for entry in found if entry.sequence == which.sequence]
        if len(found) == 1:
            return found[0], ""
        if found:
            places = ", ".join(sorted({entry.entity.name for entry in found}))
            return None, f"{len(found)} dead letters have the id {_id(which)}, in {places}: take one from list_messages"
        return None, f"there is no dead letter {_id(which)}"

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
        """Let rules decide."""
        return (
            yield from self._sweep(
                chosen, limit, bulk, lambda entities: self._judge(rules, available, entities).verdict
            )
        )

    def tried(
        self, rules: tuple[RecoveryRule, ...], chosen: DeadLetterFilter, available: Available | None
    ) -> Steps[list[int]]:
        """How many letters each rule would decide, and at the end how many none would. No effect."""
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
            raise UsageError("dead letters are moved at once, and a transaction is open", "do it before or after")


def checked_limit(limit: object) -> int | None:
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit >= 1):
        return limit
    raise UsageError(f"limit is {limit!r}", "a whole number from 1 up, or None for all")


def _id(which: Which) -> str:
    return which if isinstance(which, str) else which.id


def _after(entries: list[StoredMessage], last: DeadMessage) -> list[StoredMessage]:
    """The next page: what comes after the last letter of the one before, also when that is gone meanwhile."""
    place = last.failure_ns, last.entity, last.sequence
    return [entry for entry in entries if (died_ns(entry), entry.entity.name, int(entry.sequence)) > place]


def _edited(entry: StoredMessage, data: bytes, target: str, body: object, headers: Mapping[str, HeaderValue]) -> Move:
    overlay = record_of(entry)
    old = original_of(data, overlay, 0)
    message: Message = restored(
        old.id, old.channel, old.body if body is SAME else body, old.timestamp_ns, old.properties
    )
    message.priority = old.priority
    before = max(number_in(overlay, RECOVERY_HEADER), number_in(dict(old.headers), RECOVERY_HEADER))
    # What settlements wrote is in the envelope now, and so is the count: it has no overlay of its own yet.
    counted: dict[str, HeaderValue] = {**headers, RECOVERY_HEADER: before + 1}
    send = send_of(message.with_headers(counted), target)
    command = Move(entry.entity.name, int(entry.sequence), target)
    command.action = MOVE_EDIT
    command.overlay = overrides_of({RECOVERY_HEADER: before + 1})
    command.ttl_ns = send.ttl_ns
    command.data = send.data
    command.who = send.who
    return command
