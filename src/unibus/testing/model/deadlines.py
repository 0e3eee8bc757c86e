"""The deadlines of the model: locks and sessions end, messages expire or become visible."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from unibus.core.flow.deadletter import MAX_DELIVERY_COUNT_EXCEEDED, TTL_EXPIRED
from unibus.testing.model.messages import ModelMessage
from unibus.testing.model.parts import ModelQueue
from unibus.testing.model.queues import ModelQueues


class TimedQueues(ModelQueues):
    """All entities, with the deadlines of their messages and sessions."""

    def tick(self, now_ns: int) -> None:
        """Run every deadline up to `now_ns`, the earliest first."""
        self.now_ns = now_ns
        while due := [
            each for queue in self.queues.values() for each in self._deadlines(queue) if 0 < each[0] <= now_ns
        ]:
            first_ns = min([at_ns for at_ns, _ in due])
            at_once = [action for at_ns, action in due if at_ns == first_ns]
            # The last of several deadlines of one instant still has that tie, and so has a deadline that one of them
            # created and that is earlier than they are.
            if first_ns > self._tie:
                self._tie = first_ns if len(at_once) > 1 else 0
            at_once[0]()
        self._tie = 0

    def _deadlines(self, queue: ModelQueue) -> list[tuple[int, Callable[[], None]]]:
        found: list[tuple[int, Callable[[], None]]] = []
        for message in queue.messages.values():
            by_session = queue.rules.by_session and message.session is not None and not queue.rules.is_dead
            if message.state == "active":
                found.append((message.expires_ns, partial(self._expire, queue, message)))
            elif message.state == "scheduled":
                found.append((message.until_ns, partial(self._show, queue, message)))
            elif message.state == "locked" and not by_session:
                found.append((message.until_ns, partial(self._requeue, queue, message, 0)))
        for session, held in queue.sessions.items():
            if held.token:
                found.append((held.until_ns, partial(self._session_over, queue, session)))
        return found

    def _expire(self, queue: ModelQueue, message: ModelMessage) -> None:
        if queue.rules.dead_letters_expired and not queue.rules.is_dead:
            self._dead_letter(queue, message, TTL_EXPIRED)
        else:
            del queue.messages[message.sequence]

    def _show(self, queue: ModelQueue, message: ModelMessage) -> None:
        if message.delayed:
            message.state, message.delayed = "active", False
            return
        if queue.rules.is_topic or queue.rules.forward_to:
            ttl_ns = message.expires_ns - message.until_ns if message.expires_ns else 0
            self._arrive(queue, replace(message, state="active", until_ns=0), ttl_ns)
            del queue.messages[message.sequence]
            return
        del queue.messages[message.sequence]
        message.state, message.sequence = "active", queue.next_sequence()
        self._place(queue, message)

    def _requeue(self, queue: ModelQueue, message: ModelMessage, delay_ns: int) -> None:
        message.token = b""
        if message.count >= queue.rules.deliveries_max and not queue.rules.is_dead:
            self._dead_letter(queue, message, MAX_DELIVERY_COUNT_EXCEEDED)
        elif message.deferred:
            message.state = "deferred"
        elif delay_ns:
            message.state, message.delayed, message.until_ns = "scheduled", True, self.now_ns + delay_ns
        else:
            message.state = "active"

    def _session_over(self, queue: ModelQueue, session: str) -> None:
        queue.sessions[session].token = b""
        for message in list(queue.messages.values()):
            if message.state == "locked" and message.session == session:
                self._requeue(queue, message, 0)
