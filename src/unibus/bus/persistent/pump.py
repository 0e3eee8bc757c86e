# mypyc: compiled
"""The pump of one durable subscription: claims messages for free handlers, keeps their locks, and settles them.

    store ──claim──▶ SubscriptionPump ──▶ Group.queue ──▶ slot ──▶ handler
      ▲                                                              │ returned: complete
      │                                                              │ raised: abandon with a delay, or dead-letter
      └─────────────────────────────settle───────────────────────────┘

Delivery is at-least-once. The pump claims a few messages ahead (prefetch) and renews their locks until they are
settled. It delivers in the order of the store (delivery_order.py).

Fencing: a lock can end before its handler is called, and another receiver may have the message then. `admit` checks for
that, so no handler starts under a lost lock; an async handler that runs is cancelled when its lock is lost.

Crashes: no caller waits until a settlement is durable. If the process is killed before that, its locks end when the
store is opened again, and the messages are redelivered at once; `idempotent=True` stores the processed id in the same
batch as the completion. A message that has one delivery left is not claimed ahead (`starts_max`): the end of the
process would dead-letter it although no handler has seen it.

`group.delayed` makes drain() and close() wait for work that is in neither the queue nor a handler: an open claim,
messages that are being released, pending retries (`_mark_busy`).

Slots call the functions of pump_handlers.py. Listeners (patterns, lossy subscriptions) have no durable subscription:
see listeners.py.
"""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from unibus.bus.error_texts import error_text, failure_text
from unibus.bus.execution.outcomes import UNANSWERED, BusDeliveryOutcomes, failed_delivery
from unibus.bus.persistent.dead_letter_place import find_dead_letter
from unibus.bus.persistent.delivery_order import AHEAD, DeliveryOrder
from unibus.bus.persistent.processed_ids import ProcessedIds
from unibus.bus.persistent.store_watch import StoreWatch
from unibus.bus.pubsub.delivery import wants_reply
from unibus.bus.pubsub.group import Consumer, Group, wake_all
from unibus.bus.pubsub.loop_call import notify_loop
from unibus.bus.queues.operations import Queues
from unibus.core.atomic import LOCK
from unibus.core.envelope.message import Message
from unibus.core.flow.deadletter import (
    MAX_DELIVERY_COUNT_EXCEEDED,
    PAYLOAD_MISMATCH,
    TRACEBACK_CHARS_MAX,
    TRACEBACK_HEADER,
    Verdict,
    after_failure,
    encodable,
)
from unibus.core.flow.expiry import is_expired
from unibus.core.flow.metrics import ChannelMetrics
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import ABANDON, COMPLETE, DEAD_LETTER, RELEASE, Settle
from unibus.core.lifecycle.envelope import message_of, overrides_of
from unibus.errors import BusError, LockLost, PayloadMismatch, StoreFailed, StoreUnavailable
from unibus.safe_log import SafeLogger, type_name
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import ClaimRequest

log = SafeLogger("unibus")

RETRY_NS: Final = 1_000_000_000
"""The pause before the next claim after an error of a store that works on."""


class SubscriptionPump:
    """One durable subscription on this bus. `entity` is its path in the store."""

    def __init__(self, queues: Queues, entity: str, group: Group, outcomes: BusDeliveryOutcomes) -> None:
        self.entity = entity
        self.group = group
        self.idempotent = False
        self.is_alone: Callable[[], bool] = lambda: True  # Whether no other group of its channel has a handler.
        self._queues = queues
        self._outcomes = outcomes
        # Protects the flags and counters below and `_order`. Never held while a claim, a settlement or a callback runs:
        # a store answers in any thread, also in this one, and calls `pull` and `_arrived` again.
        # The dicts by message and by token change without it: each change is one atomic operation of a dict.
        self._lock = threading.Lock()
        # Claimed messages that are not settled, with their locks. The key is the envelope object, not the sequence: a
        # message whose lock was lost may be claimed again while its first envelope is still queued, under another lock.
        self._held: dict[Message, Claimed] = {}
        self._lost: dict[bytes, LockLost] = {}  # By lock token: the same message may be held again under a new lock.
        # Running async handlers by lock token: the loop and the task.
        self._running: dict[bytes, tuple[asyncio.AbstractEventLoop, asyncio.Task[object]]] = {}
        self._cancelled: set[bytes] = set()  # Those of them whose lock is lost: they were cancelled for that.
        self._order = DeliveryOrder(queues.store.catalog, entity, group)
        self._watch = StoreWatch(queues.store, entity, self.pull)
        self._pulling = False  # A claim is open; there is at most one.
        self._again = False  # `pull` was called while a claim was open: claim again after it.
        self._more = False  # A claim may bring messages: the group is not idle.
        self._releasing = 0  # Threads that are releasing messages, which are neither held here nor ready in the store.
        self._processed = ProcessedIds()
        self._settling = 0  # Settlements that the store has not decided yet.
        self._retrying: dict[bytes, int] = {}  # Lock token of a message that waits for its retry -> number in retries.
        self.stopped = False
        self.inner: dict[int, Consumer] = {}  # The consumers with the users' handlers, by subscription id.
        group.on_no_runnable_consumer = partial(self.stop, True)

    # Filling the group

    def pull(self) -> None:
        """Claim as many messages as slots and prefetch allow; beyond that, those that precede held ones.

        May be called from any thread. A call during an open claim is remembered in `_again`.
        """
        with self._lock:
            slots = self._slots()
            # Without a consumer nothing is claimed: its locks would only keep the messages from other receivers.
            count = max(slots + AHEAD - len(self._held), self._order.missing) if slots else 0
            if self._pulling or self.stopped or count <= 0:
                self._again = self._again or count > 0
                return
            self._pulling = True
            self._again = False
            # From here until `_arrived` the group counts as busy. Messages of an open claim are in no queue yet, and
            # drain() must not return before they are handled.
            self._more = True
            starts_max = self._order.starts_max(slots, len(self._held))
            self._order.begin_claim()
            self._mark_busy()
        try:
            # Watch before the claim: a message that arrives between the two would otherwise wake no pump.
            self._watch.start()
            pending = self._queues.store.claim(
                ClaimRequest(
                    self.entity,
                    count,
                    True,
                    self.group.name,
                    asks_processed=self.idempotent,
                    ends_with_process=True,
                    starts_max=starts_max,
                )
            )
            pending.on_decided(partial(_claim_decided, self))
            pending.on_done(self._arrived)
        except BusError as error:
            self._failed_pull(error)

    def _slots(self) -> int:
        return sum([consumer.concurrency for consumer in self.group.consumers if not consumer.unrunnable])

    def _arrived(self, pending: Pending[list[Claimed]]) -> None:
        if pending.error is not None:
            self._failed_pull(pending.error)
            return
        # Usually runs in the thread that commits. The claim is durable: if the process is killed from here on, the
        # messages are redelivered after the next opening of the store, with a higher delivery count.
        claimed = pending.value
        messages = [message_of(each) for each in claimed]
        for message in messages:
            message.expires_ns = 0  # The slot must not expire a locked message; `_is_late` decides about it.
        for each in claimed:
            # Before the message is queued: a handler may settle it at once, and nothing would stop a later renewal.
            self._queues.renewals.start(each, self._on_lost(each))
        with self._lock:
            # One step: the messages are held, queued, and the claim is over. In between `stop` would release only a
            # part of them, and another `pull` would claim too many.
            self._pulling = False
            self._more = bool(claimed) or self._again
            self._held.update(zip(messages, claimed, strict=True))
            self._processed.claim_arrived(self._held.values())
            self._order.end_claim(messages)
            self._mark_busy()
            again = self._again
        wake_all(self.group)
        # The last consumer was cancelled, or the bus closes, while the claim was open: no handler will take the
        # messages.
        if self.stopped:
            self._release_unseen()
        elif again or claimed:
            self.pull()
        else:
            self._outcomes.on_idle(self.group)

    def _failed_pull(self, error: BaseException) -> None:
        with self._lock:
            self._pulling = False
            self._more = False
            self._order.end_claim([])
            self._mark_busy()
        # `end_claim` has queued what was held back for this claim: the handlers continue with the messages they have.
        wake_all(self.group)
        if not self.stopped:
            log.error("group %r cannot receive from %r: %s", self.group.name, self.entity, error)
            # A store that works on is asked again: no settlement and no wake-up may follow. What a lost answer has
            # claimed is redelivered when its locks expire.
            if isinstance(error, (StoreFailed, StoreUnavailable)) and not self._queues.store.health().stopped:
                self._queues.timers.after(RETRY_NS, self.pull)
        self._outcomes.on_idle(self.group)

    def _mark_busy(self) -> None:
        """Count what drain() and close() have to wait for. The caller holds the lock."""
        self.group.delayed = len(self._retrying) + self._releasing + self._settling + (1 if self._more else 0)

    def resume(self) -> None:
        """Claim again, for a consumer that has just joined the group."""
        with self._lock:
            self.stopped = False
        self.pull()

    def stop(self, only_if_unrunnable: bool = False) -> None:
        """Claim no more messages, and release those that no handler has seen.

        `only_if_unrunnable`: not if a consumer can run. The check and the stop are one locked step: a consumer that
        joins after it calls `resume`, and none can join unseen in between.
        """
        with self._lock:
            if only_if_unrunnable and not self.group.has_no_runnable_consumer():
                return
            self.stopped = True
        self._release_unseen()

    def _release_unseen(self) -> None:
        with self._lock:
            if not self.stopped:
                return  # A consumer has joined meanwhile and gets the messages.
            # Only what no slot has popped. A running handler finishes and settles its message under the lock it has.
            unseen = self._order.take_all()
            unseen_locks = [self._held.pop(message) for message in unseen if message in self._held]
            # The store would reject the whole batch for one lost lock.
            released = [each for each in unseen_locks if self._lost.pop(each.token, None) is None]
            self._more = self._pulling  # An open claim may bring messages, which are released before the group is idle.
            self._forget_retries()
            self._releasing += 1
            self._mark_busy()
            stop_watching = self._watch.end()  # Under the lock: a consumer that joins later starts a new watch.
        # If the process is killed before the release is written, the next opening redelivers the messages.
        try:
            stop_watching()
            for claimed in released:
                self._queues.renewals.stop(claimed)
            if released:
                commands = [_command(RELEASE, each) for each in released]
                pending = self._queues.store.apply(commands)
                if not pending.is_accepted:
                    pending.on_done(partial(_released, self))  # The group is busy until then.
                    return
                pending.on_done(_ignore)
        except BusError as error:
            _end_release(self, error)
            return
        except BaseException:
            _end_release(self, None)
            raise
        _end_release(self, None)

    def _forget_retries(self) -> None:
        for number in self._retrying.values():
            self._outcomes.retries.discard(number)
        self._retrying.clear()

    def _on_lost(self, claimed: Claimed) -> Callable[[LockLost], None]:
        def lost(error: LockLost) -> None:
            # Called in the timer's thread. Record first, then look for a running task: `begin` does the same two steps
            # in the opposite order, so that one of the two sees the other.
            self._lost[claimed.token] = error
            running = self._running.get(claimed.token)
            if running is not None:
                notify_loop(running[0], partial(self._cancel, claimed.token, running[1]))

        return lost

    # Delivering

    def admit(self, message: Message) -> Claimed | None:
        """The lock under which the handler may be called now. None: the slot takes the next message, or is idle."""
        claimed = self._held.get(message)
        if claimed is not None and self._may_start(message) and not self._is_done_with(claimed, message):
            return claimed
        # The slot will count this call as dispatched although no handler runs.
        _uncount(self.group.metrics)
        return None

    def _may_start(self, message: Message) -> bool:
        """Whether no message precedes this one. Else the slot takes another message, or none until a claim arrives."""
        with self._lock:
            if self.stopped or self._order.admits(message):
                return True
            missing = self._order.missing
        # Without the lock, as `pull` takes it. The message is held back meanwhile, and this slot becomes idle.
        if missing:
            self.pull()
        return False

    def begin(self, claimed: Claimed, message: Message, task: "asyncio.Task[object]") -> bool:
        """Register the task that is about to call the handler: it is cancelled if the lock is lost.

        False if the lock was lost between `admit` and now, when no registered task could be cancelled. Register first
        and check then: in the other order a loss in between would be missed.
        """
        self._running[claimed.token] = (task.get_loop(), task)
        if claimed.token not in self._lost:
            return True
        self.end(claimed, task)
        self._dropped(claimed, message)
        _uncount(self.group.metrics)
        return False

    def end(self, claimed: Claimed, task: "asyncio.Task[object]") -> None:
        """The handler has returned or raised. What cancelled it for its lost lock does not concern the next one."""
        self._running.pop(claimed.token, None)
        # The task runs the next message after this one: a cancellation that was meant for this message must not stay.
        if claimed.token in self._cancelled:
            self._cancelled.discard(claimed.token)
            task.uncancel()

    def _cancel(self, token: bytes, task: "asyncio.Task[object]") -> None:
        """On the handler's loop: cancel it, unless it has returned and its task handles another message by now."""
        if token in self._running:
            self._cancelled.add(token)
            task.cancel()

    def takes_back(self, claimed: Claimed, message: Message) -> bool:
        """Whether the message of a cancelled handler is finished here: its lock is lost, or the pump has stopped."""
        if claimed.token in self._lost:
            self._dropped(claimed, message)
        elif self.stopped:
            # The handler has neither returned nor failed, and no consumer reads the group's queue any more.
            self._settle(claimed, message, _command(RELEASE, claimed))
        else:
            return False
        _uncount(self.group.metrics)
        return True

    def _is_late(self, claimed: Claimed, message: Message) -> bool:
        """Whether the message waited here until its lock was lost or its TTL was over. The store redelivers it in the
        first case, and expires it in the second."""
        now_ns = self._queues.now_ns()
        if claimed.token in self._lost:
            self._dropped(claimed, message)
        elif claimed.until_ns <= now_ns or is_expired(claimed.expires_ns, now_ns):
            # The lock can expire before its renewal reports that. The release is fenced by the token: the store rejects
            # it if another receiver has the message.
            self._settle(claimed, message, _command(RELEASE, claimed))
        else:
            message.expires_ns = claimed.expires_ns
            message.delivery_count = claimed.delivery_count
            return False
        return True

    def returned(self, claimed: Claimed, message: Message, result: object) -> object:
        """Complete the message. Returns the reply to a request; of several groups, one that returns None sends none."""
        command = _command(COMPLETE, claimed)
        # The processed id is written in the same batch as the completion: after a crash either both exist or none, so a
        # redelivery is recognised exactly if the handler's effect was acknowledged.
        if self.idempotent:
            command.processed_key = claimed.who.message_id
            with self._lock:
                self._processed.add(claimed.who.message_id)
        self._settle(claimed, message, command)
        return UNANSWERED if result is None and wants_reply(message) and not self.is_alone() else result

    def _is_done_with(self, claimed: Claimed, message: Message) -> bool:
        """Whether the message needs no handler: it is late, filtered out, or was processed before (idempotent)."""
        if self._is_late(claimed, message):
            return True
        known = False
        if self.idempotent:
            with self._lock:
                known = claimed.was_processed or self._processed.has(claimed.who.message_id)
        if not known and _is_accepted(self.group, self.entity, message):
            return False
        self._settle(claimed, message, _command(COMPLETE, claimed))
        return True

    def failed(
        self, inner: Consumer, claimed: Claimed, message: Message, error: BaseException, is_raised: bool = False
    ) -> None:
        """The handler raised: abandon the message with the delay of its retry, or dead-letter it.

        `is_raised`: the slot gets the exception, too, and so does not count the message as dispatched.
        """
        metrics = self.group.metrics or ChannelMetrics()
        metrics.count("errors")
        if not is_raised:
            _uncount(metrics)
        unfit = issubclass(type(error), PayloadMismatch)
        if after_failure(claimed.delivery_count, inner.retry.deliveries_max, unfit) is Verdict.RETRY:
            metrics.count("retried")
            delay_ns = inner.retry.delay_ns(claimed.delivery_count, self._queues.chance())
            try:
                self._outcomes.failures.retried(failed_delivery(inner, message, error), delay_ns)
            finally:  # Also if Ctrl-C interrupts the log.
                self._abandon(claimed, message, delay_ns)
        else:
            metrics.count("dead_lettered")
            reason = PAYLOAD_MISMATCH if unfit else MAX_DELIVERY_COUNT_EXCEEDED
            self._outcomes.reply_failure(message, reason, error)
            command = _command(DEAD_LETTER, claimed)
            command.reason = reason
            command.description = encodable(error_text(error))
            command.signature = type_name(error)
            trace = failure_text(error)[-TRACEBACK_CHARS_MAX:]
            command.overlay = overrides_of({TRACEBACK_HEADER: trace.encode("utf-8", "replace").decode()})
            self._settle(claimed, message, command)
            place, shown_by = find_dead_letter(self._queues.store, self.entity, message)
            self._outcomes.failures.dead_lettered(failed_delivery(inner, message, error), reason, place, shown_by)

    def _abandon(self, claimed: Claimed, message: Message, delay_ns: int) -> None:
        """Abandon the message. The group is not idle until the retry is due; after that the claim of `due` counts."""
        command = _command(ABANDON, claimed)
        command.delay_ns = delay_ns
        if delay_ns <= 0:
            self._settle(claimed, message, command)
            return

        def due() -> None:
            self.pull()
            with self._lock:
                self._outcomes.retries.discard(self._retrying.pop(claimed.token, 0))
                self._mark_busy()
            self._outcomes.on_idle(self.group)

        with self._lock:
            # Counted before the settlement: in between the message would be neither held nor delayed, and drain() could
            # return.
            self._retrying[claimed.token] = self._outcomes.retries.add(self.group, delay_ns)
            self._mark_busy()
        # Started after the settlement, so the store's own timer has made the message ready when `due` claims.
        self._settle(claimed, message, command, lambda: self._queues.timers.after(delay_ns, due))

    def _settle(
        self, claimed: Claimed, message: Message, command: Settle, then: Callable[[], None] | None = None
    ) -> None:
        # First: a renewal after the settlement would find the lock gone, and report a loss that is none.
        self._queues.renewals.stop(claimed)
        error: BaseException | None = None
        try:
            pending = self._queues.settle(claimed, command)
            if not pending.is_accepted:
                # Until the answer the message stays in `_held`, and the group is busy: drain() returns when the store
                # has decided, as it does with a store that decides at once.
                with self._lock:
                    self._settling += 1
                    self._mark_busy()
                pending.on_done(partial(_answered, self, claimed, message, command, then))
                return
            pending.on_done(_ignore)
        except BusError as refused:
            error = refused
        _settled(self, claimed, message, command, error, then)

    def _dropped(self, claimed: Claimed, message: Message) -> None:
        """The message is settled, or its lock is lost: then the store redelivers it, here or to another receiver."""
        lost = self._lost.pop(claimed.token, None)
        if lost is not None:
            if self.group.metrics is not None:
                self.group.metrics.count("locks_lost")
            log.error("%s #%d lost its lock and is redelivered: %s", self.entity, claimed.sequence, lost)
        self._held.pop(message, None)
        if len(self._held) <= self._slots() + AHEAD // 2:  # Claim in batches, when half of the prefetch is used up.
            self.pull()


# The answers of the store


def _claim_decided(pump: SubscriptionPump, pending: Pending[list[Claimed]]) -> None:
    """What the claim brings is known. An embedded store writes it now; another one has answered."""
    with pump._lock:
        pump._order.claim_decided([] if pending.error is not None else pending.value)
    wake_all(pump.group)  # For messages that were held back until the claim was decided.


def _released(pump: SubscriptionPump, pending: Pending[list[object]]) -> None:
    _end_release(pump, pending.error)


def _end_release(pump: SubscriptionPump, error: BaseException | None) -> None:
    if error is not None:
        log.warning("messages of %r were not released, they stay locked until that expires: %s", pump.entity, error)
    with pump._lock:
        pump._releasing -= 1
        pump._mark_busy()
    pump._outcomes.on_idle(pump.group)


def _answered(
    pump: SubscriptionPump,
    claimed: Claimed,
    message: Message,
    command: Settle,
    then: Callable[[], None] | None,
    pending: Pending[list[object]],
) -> None:
    """A store that decides elsewhere has settled the message, or refused to."""
    _settled(pump, claimed, message, command, pending.error, then)
    with pump._lock:
        pump._settling -= 1
        pump._mark_busy()
    pump._outcomes.on_idle(pump.group)


def _settled(
    pump: SubscriptionPump,
    claimed: Claimed,
    message: Message,
    command: Settle,
    error: BaseException | None,
    then: Callable[[], None] | None,
) -> None:
    if command.processed_key:
        with pump._lock:
            # Added again: a claim that is open now may not show it. A refused completion has processed nothing.
            if error is None:
                pump._processed.add(command.processed_key)
            else:
                pump._processed.discard(command.processed_key)
    if isinstance(error, LockLost):
        pump._lost.setdefault(claimed.token, error)
    elif isinstance(error, StoreFailed):
        # The outcome is unknown. The handler is done, so there is no caller to raise to: a message that was not settled
        # is redelivered when its lock expires, or after the next start.
        log.error("%s #%d could not be settled: %s", pump.entity, claimed.sequence, error)
    elif error is not None:
        log.warning("%s #%d was not settled and is redelivered: %s", pump.entity, claimed.sequence, error)
    pump._queues.renewals.settled(pump.entity)
    pump._dropped(claimed, message)
    if then is not None:
        then()


def _command(verb: int, claimed: Claimed) -> Settle:
    return Settle(verb, claimed.entity, claimed.sequence, claimed.token)


def _is_accepted(group: Group, entity: str, message: Message) -> bool:
    accepts = group.filter
    if accepts is None:
        return True
    try:
        return bool(accepts(message))
    except Exception as error:
        log.warning("the filter of group %r on %r raised, the message is skipped: %r", group.name, entity, error)
        return False


def _uncount(metrics: ChannelMetrics | None) -> None:
    """The slot counts every call that returns, also one in which the pump called no handler: undo that."""
    if metrics is not None:
        with LOCK:
            metrics.dispatched -= 1


def _ignore(pending: Pending[list[object]]) -> None:
    """Nothing to do: a store that fails logs it itself."""
