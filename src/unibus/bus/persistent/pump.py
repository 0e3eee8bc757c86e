# mypyc: compiled
"""From a durable subscription into a group of the bus: claims messages for handlers that are free, and settles them.

    store ──claim──▶ Feed ──▶ Group.queue ──▶ slot ──▶ handler
      ▲                                                   │ returned: complete   raised: abandon with delay,
      └───────────────────────settle──────────────────────┘                     or dead letter

A feed claims a few messages ahead and keeps their locks until they are settled. It delivers in the order of the store,
also where that has a message which precedes what the feed holds (delivery_order.py). A lock that ends before a handler
was called is noticed at the hand-over: no handler starts on a message that another receiver may have by now. No caller
waits until a settlement is durable: if the process dies before that, the message is redelivered.

What a slot calls is in feed_handlers.py. Those who only listen, by pattern or with a lossy queue, have no subscription:
see echoes.py.
"""

import asyncio
import logging
import threading
import traceback
from collections.abc import Callable
from functools import partial

from unibus.bus.dead_letter_copy import described, error_text
from unibus.bus.execution.outcomes import UNANSWERED, BusDeliveryOutcomes
from unibus.bus.persistent.delivery_order import AHEAD, DeliveryOrder
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
from unibus.errors import BusError, LockLost, PayloadMismatch, StoreFailed
from unibus.stores.seam.pending import Pending
from unibus.stores.seam.store import ClaimRequest

log = logging.getLogger("unibus")


class SubscriptionPump:
    """One durable subscription on this bus. `entity` is its path in the store."""

    def __init__(self, queues: Queues, entity: str, group: Group, outcomes: BusDeliveryOutcomes) -> None:
        self.entity = entity
        self.group = group
        self.idempotent = False
        self.is_alone: Callable[[], bool] = lambda: True  # Whether no other group of its channel has a handler.
        self._queues = queues
        self._outcomes = outcomes
        self._lock = threading.Lock()
        # By the envelope, not by the sequence: a message whose lock was lost may be claimed again while its first
        # envelope is still queued. Each belongs to its own lock.
        self._held: dict[Message, Claimed] = {}
        self._lost: dict[bytes, LockLost] = {}  # By the token of the lock: the message may be here again by now.
        # Handlers that run, by the token of the lock: the task, and its loop.
        self._running: dict[bytes, tuple[asyncio.AbstractEventLoop, asyncio.Task[object]]] = {}
        self._order = DeliveryOrder(queues.store.catalog, entity, group)
        self._watch = StoreWatch(queues.store, entity, self.pull)
        self._pulling = False
        self._again = False
        self._more = False  # There may be messages in the store: the group is not quiet.
        self._releasing = 0  # Threads that release messages: these are neither here nor in the store.
        self._retrying: dict[bytes, int] = {}  # Locks whose messages wait for a retry; see retries.py.
        self.stopped = False
        self.inner: dict[int, Consumer] = {}  # Those that hold the users' own handlers, by their number.
        group.on_no_runnable_consumer = partial(self.stop, True)

    # Filling the group

    def pull(self) -> None:
        """Claim as many as there is room for, and those that precede what is held, beyond that.

        From any thread; what comes while a claim is out is not forgotten.
        """
        with self._lock:
            slots = sum(consumer.concurrency for consumer in self.group.consumers)
            room = max(slots + AHEAD - len(self._held), self._order.missing) if slots else 0
            if self._pulling or self.stopped or room <= 0:
                self._again = self._again or room > 0
                return
            self._pulling = True
            self._again = False
            self._more = True
            self._order.begin_claim()
            self._mark_busy()
        try:
            self._watch.start()
            pending = self._queues.store.claim(ClaimRequest(self.entity, room, True, self.group.name))
            with self._lock:
                self._order.claim_decided(pending.value or [])
            wake_all(self.group)  # For those that were held back only until this was known.
            pending.on_done(self._arrived)
        except BusError as error:
            self._failed_pull(error)

    def _arrived(self, pending: Pending[list[Claimed]]) -> None:
        if pending.error is not None:
            self._failed_pull(pending.error)
            return
        claimed = pending.value
        messages = [message_of(each) for each in claimed]
        for message in messages:
            message.expires_ns = 0  # A locked message is the store's to expire, see _is_late.
        for each in claimed:
            # First: once it is in the queue a handler may settle it, and nothing would end the renewals after that.
            self._queues.renewals.start(each, self._on_lost(each))
        with self._lock:
            self._pulling = False
            self._more = bool(claimed) or self._again
            self._held.update(zip(messages, claimed, strict=True))
            self._order.end_claim(messages)
            self._mark_busy()
            again = self._again
        wake_all(self.group)
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
        wake_all(self.group)
        if not self.stopped:
            log.error("group %r cannot receive from %r: %s", self.group.name, self.entity, error)
        self._outcomes.on_idle(self.group)

    def _mark_busy(self) -> None:
        self.group.delayed = len(self._retrying) + self._releasing + (1 if self._more else 0)

    def resume(self) -> None:
        """Claim for a consumer that has just joined the group."""
        with self._lock:
            self.stopped = False
        self.pull()

    def stop(self, only_if_unrunnable: bool = False) -> None:
        """Claim no more, and release what no handler has seen.

        `only_if_unrunnable`: unless a consumer is left that could run. That is one look with the stop, so that a consumer
        which joins in between resumes it.
        """
        with self._lock:
            if only_if_unrunnable and not self.group.has_no_runnable_consumer():
                return
            self.stopped = True
        self._release_unseen()

    def _release_unseen(self) -> None:
        with self._lock:
            if not self.stopped:
                return  # A consumer has joined meanwhile, and they are for it.
            unseen = self._order.take_all()
            unseen_locks = [self._held.pop(message) for message in unseen if message in self._held]
            # One lock that is lost would let the store refuse the whole batch.
            released = [each for each in unseen_locks if self._lost.pop(each.token, None) is None]
            self._more = self._pulling  # What a claim brings now has to go back too, before anybody calls it quiet.
            self._forget_retries()
            self._releasing += 1
            self._mark_busy()
            stop_watching = self._watch.end()  # Here: a consumer that joins after this begins a watch of its own.
        try:
            stop_watching()
            for claimed in released:
                self._queues.renewals.stop(claimed)
            if released:
                commands = [_command(RELEASE, each) for each in released]
                self._queues.store.apply(commands).on_done(_ignore)
        except BusError as error:
            log.warning("messages of %r stay locked until their locks end: %s", self.entity, error)
        finally:
            with self._lock:
                self._releasing -= 1
                self._mark_busy()
        self._outcomes.on_idle(self.group)

    def _forget_retries(self) -> None:
        for number in self._retrying.values():
            self._outcomes.retries.discard(number)
        self._retrying.clear()

    def _on_lost(self, claimed: Claimed) -> Callable[[LockLost], None]:
        def lost(error: LockLost) -> None:
            self._lost[claimed.token] = error
            running = self._running.get(claimed.token)
            if running is not None:
                notify_loop(running[0], partial(self._cancel, claimed.token, running[1]))

        return lost

    # Handing over

    def admit(self, message: Message) -> Claimed | None:
        """The lock under which a handler may be called now. None: the slot takes another message, or waits for one."""
        claimed = self._held.get(message)
        if claimed is not None and self._may_start(message) and not self._is_done_with(claimed, message):
            return claimed
        _uncount(self.group.metrics)
        return None

    def _may_start(self, message: Message) -> bool:
        """Whether nothing precedes it. Else the slot takes another message, or none until a claim has arrived."""
        with self._lock:
            if self.stopped or self._order.admits(message):
                return True
            missing = self._order.missing
        if missing:
            self.pull()
        return False

    def begin(self, claimed: Claimed, message: Message, task: "asyncio.Task[object]") -> bool:
        """The task is about to call the handler, and is cancelled if the lock is lost. False if it is lost already."""
        self._running[claimed.token] = (task.get_loop(), task)
        if claimed.token not in self._lost:  # Since it was admitted: there was no handler to be cancelled then.
            return True
        self.end(claimed)
        self._dropped(claimed, message)
        _uncount(self.group.metrics)
        return False

    def end(self, claimed: Claimed) -> None:
        """The handler has returned or raised."""
        self._running.pop(claimed.token, None)

    def _cancel(self, token: bytes, task: "asyncio.Task[object]") -> None:
        """On the handler's loop: stop it, unless it has returned and its task is at another message by now."""
        if token in self._running:
            task.cancel()

    def takes_back(self, claimed: Claimed, message: Message) -> bool:
        """Whether a cancelled handler's message was dealt with here: its lock is lost, or no consumer is left."""
        if claimed.token in self._lost:
            self._dropped(claimed, message)
        elif self.stopped:
            # No consumer has decided about the message, and the group's queue is not looked at any more.
            self._settle(claimed, message, _command(RELEASE, claimed))
        else:
            return False
        _uncount(self.group.metrics)
        return True

    def _is_late(self, claimed: Claimed, message: Message) -> bool:
        """It has waited here for too long. One whose lock is lost is redelivered, one that has expired is not."""
        now_ns = self._queues.now_ns()
        if claimed.token in self._lost:
            self._dropped(claimed, message)
        elif claimed.until_ns <= now_ns or is_expired(claimed.expires_ns, now_ns):
            # A lock can end before its renewal reports that. The store refuses the release if another has the message.
            self._settle(claimed, message, _command(RELEASE, claimed))
        else:
            message.expires_ns = claimed.expires_ns
            message.delivery_count = claimed.delivery_count
            return False
        return True

    def returned(self, claimed: Claimed, message: Message, result: object) -> object:
        """Complete it. Gives the answer to a request; where several groups are asked, one with None has none."""
        command = _command(COMPLETE, claimed)
        if self.idempotent:
            command.processed_key = claimed.who.message_id
        self._settle(claimed, message, command)
        return UNANSWERED if result is None and wants_reply(message) and not self.is_alone() else result

    def _is_done_with(self, claimed: Claimed, message: Message) -> bool:
        """It is late, the filter says no, or an idempotent group has handled this id before."""
        if self._is_late(claimed, message):
            return True
        known = self.idempotent and self._queues.store.was_processed(self.entity, claimed.who.message_id)
        if not known and _is_accepted(self.group, self.entity, message):
            return False
        self._settle(claimed, message, _command(COMPLETE, claimed))
        return True

    def failed(self, inner: Consumer, claimed: Claimed, message: Message, error: BaseException) -> None:
        metrics = self.group.metrics or ChannelMetrics()
        metrics.count("errors")
        _uncount(metrics)
        unfit = isinstance(error, PayloadMismatch)
        if after_failure(claimed.delivery_count, inner.retry.deliveries_max, unfit) is Verdict.RETRY:
            metrics.count("retried")
            log.info("%s #%d failed in group %r: %s", self.entity, claimed.sequence, self.group.name, described(error))
            self._abandon(claimed, message, inner.retry.delay_ns(claimed.delivery_count, self._queues.chance()))
        else:
            metrics.count("dead_lettered")
            reason = PAYLOAD_MISMATCH if unfit else MAX_DELIVERY_COUNT_EXCEEDED
            log.warning("%s #%d is a dead letter (%s): %s", self.entity, claimed.sequence, reason, described(error))
            self._outcomes.reply_failure(message, reason, error)
            command = _command(DEAD_LETTER, claimed)
            command.reason = reason
            command.description = encodable(error_text(error))
            command.signature = type(error).__name__
            trace = "".join(traceback.format_exception(error))[-TRACEBACK_CHARS_MAX:]
            command.overlay = overrides_of({TRACEBACK_HEADER: trace.encode("utf-8", "replace").decode()})
            self._settle(claimed, message, command)

    def _abandon(self, claimed: Claimed, message: Message, delay_ns: int) -> None:
        """Until it is due the group is not quiet. From then on a claim tells, wherever the message went meanwhile."""
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
            self._retrying[claimed.token] = self._outcomes.retries.add(self.group, delay_ns)
            self._mark_busy()
        self._settle(claimed, message, command)
        self._queues.timers.after(delay_ns, due)  # After the store's own, which began with the settlement.

    def _settle(self, claimed: Claimed, message: Message, command: Settle) -> None:
        self._queues.renewals.stop(claimed)
        try:
            self._queues.settle(claimed, command).on_done(_ignore)
        except StoreFailed as error:
            log.error("%s #%d could not be settled: %s", self.entity, claimed.sequence, error)
        except LockLost as error:
            self._lost.setdefault(claimed.token, error)
        except BusError as error:
            log.warning("%s #%d was not settled and is redelivered: %s", self.entity, claimed.sequence, error)
        self._queues.renewals.settled(self.entity)
        self._dropped(claimed, message)

    def _dropped(self, claimed: Claimed, message: Message) -> None:
        """It is settled, or its lock is lost: then the store redelivers it, here or to another receiver."""
        lost = self._lost.pop(claimed.token, None)
        if lost is not None:
            if self.group.metrics is not None:
                self.group.metrics.count("locks_lost")
            log.error("%s #%d lost its lock and is redelivered: %s", self.entity, claimed.sequence, lost)
        self._held.pop(message, None)
        if len(self._held) * 2 <= AHEAD:
            self.pull()


def _command(verb: int, claimed: Claimed) -> Settle:
    return Settle(verb, claimed.entity, claimed.sequence, claimed.token)


def _is_accepted(group: Group, entity: str, message: Message) -> bool:
    accepts = group.filter
    if accepts is None:
        return True
    try:
        return bool(accepts(message))
    except Exception as error:
        log.warning("the filter of group %r on %r raised: %r", group.name, entity, error)
        return False


def _uncount(metrics: ChannelMetrics | None) -> None:
    """The slot that called the feed counts every call that returned, also one that called no handler."""
    if metrics is not None:
        with LOCK:
            metrics.dispatched -= 1


def _ignore(pending: Pending[list[object]]) -> None:
    """The store says by itself when it has stopped."""
