"""The operations of the model, which are those of a store."""

import copy
from collections.abc import Callable, Mapping, Sequence

from unibus.errors import (
    EntityDisabled,
    LockLost,
    MessageNotFound,
    QuotaExceeded,
    SessionLocked,
    SessionLockLost,
    SessionRequired,
    UsageError,
)
from unibus.testing.model.admission import ModelQuota, quota_of
from unibus.testing.model.deadlines import TimedQueues
from unibus.testing.model.messages import Held, ModelMessage, Value
from unibus.testing.model.parts import ModelQueue, ModelSend
from unibus.testing.model.queues import shorter


class ReferenceModel(TimedQueues):
    """Sends, transactions, and what operators do with stored messages."""

    # All or nothing

    def together(self, steps: list[Callable[[], object]], sends: Sequence[tuple[str, ModelSend]] = ()) -> list[object]:
        """`sends` are the sends among the steps: all of them are checked before the first step."""
        before = copy.deepcopy((self.queues, self.sequences))
        try:
            self._quota = self._granted(sends)
            return [step() for step in steps]
        except Exception:
            self.queues, self.sequences = before
            raise
        finally:
            self._quota = None

    # Sending

    def send(self, name: str, sent: ModelSend) -> int:
        """Returns the sequence of the message; 0 for a duplicate."""
        queue = self.queue(name)
        if self._quota is None:
            self._granted([(name, sent)])
        key = self._key(queue, sent)
        if key is not None and queue.knows(key, self.now_ns):
            return 0
        if key is not None:
            queue.dedup_keys[key] = self.now_ns
        sequence = queue.sequence + 1
        message = sent.message()
        if sent.visible_ns > self.now_ns:
            message.state, message.until_ns = "scheduled", sent.visible_ns
            self._store(queue, message, shorter(sent.ttl_ns, queue.rules.ttl_ns), sent.visible_ns)
        else:
            self._arrive(queue, message, sent.ttl_ns)
        return sequence

    def _key(self, queue: ModelQueue, sent: ModelSend) -> str | None:
        return sent.key or ((sent.id or sent.text) if queue.rules.knows_ids else None)

    def _granted(self, sends: Sequence[tuple[str, ModelSend]]) -> ModelQuota:
        """Check each send, and reserve its places. A duplicate needs none."""
        quota, keys = quota_of(self.queues), set()
        for name, sent in sends:
            queue = self.queue(name)
            key = self._key(queue, sent)
            is_known = key is not None and (queue.knows(key, self.now_ns) or (name, key) in keys)
            keys.add((name, key))
            self._check_send(queue, sent, is_known, quota)
        return quota

    def _check_send(self, queue: ModelQueue, sent: ModelSend, is_known: bool, quota: ModelQuota) -> None:
        if queue.rules.is_dead or "/Subscriptions/" in queue.name:
            raise UsageError(f"messages cannot be sent to {queue.name!r} directly")
        if not queue.rules.sends:
            raise EntityDisabled(queue.name)
        self._check_session(queue, sent.session)
        if is_known:
            return
        is_later = sent.visible_ns > self.now_ns
        copies = [] if is_later else self.copies(self.subscriptions(queue.name), sent.message())
        if queue.rules.is_topic and self.subscriptions(queue.name) and not is_later:
            self._check_quota([each.queue for each in copies if not each.failed], quota)
        else:
            self._check_quota(self._targets(queue), quota)

    def _check_session(self, queue: ModelQueue, session: str | None) -> None:
        if queue.rules.by_session and session is None and not queue.rules.forward_to:
            raise SessionRequired(queue.name)

    def _targets(self, queue: ModelQueue) -> list[ModelQueue]:
        """Every entity that may store a message sent to this one, without regard to rules."""
        return [queue, *[self.queues[name] for name in self.subscriptions(queue.name)]]

    def _check_quota(self, targets: list[ModelQueue], quota: ModelQuota) -> None:
        """Each entity that would store it needs a free place. The target of a forward cannot reject the send itself."""
        for queue in targets:
            if self.stores(queue) and not quota.has_place(queue):
                raise QuotaExceeded(queue.name)
            if self.stores(queue):
                quota.granted[queue.name] += 1

    def cancel(self, name: str, sequence: int) -> None:
        message = self.queue(name).messages.get(sequence)
        if message is None or message.state != "scheduled" or message.delayed:
            raise MessageNotFound(name)
        del self.queue(name).messages[sequence]

    # Operators

    def waiting(self, name: str, sequence: int) -> ModelMessage:
        message = self.queue(name).messages.get(sequence)
        if message is None or message.state == "locked":
            raise MessageNotFound(name)
        return message

    def move(self, name: str, sequence: int, target: str) -> None:
        """A message that no subscription takes is not moved."""
        queue = self.queue(target)
        if queue.rules.is_dead:
            raise UsageError(f"messages cannot be moved to {target!r}")
        message = self.waiting(name, sequence)
        moved = ModelMessage(message.text, message.priority, message.session, 0)
        moved.headers, moved.correlation = message.headers, message.correlation
        moved.id, moved.key = message.id, message.key
        self._check_taken(target, moved)
        self._check_session(queue, message.session)
        self._quota = quota_of(self.queues)
        try:
            self._check_quota(self._targets(queue), self._quota)
            self._arrive(queue, moved, 0)
        finally:
            self._quota = None
        del self.queue(name).messages[sequence]

    def _check_taken(self, target: str, message: ModelMessage) -> None:
        """Tries the move on a copy of the whole state."""
        before = self.queues, self.sequences
        self.queues, self.sequences = copy.deepcopy(before)
        stored = self._arrive(self.queue(target), copy.copy(message), 0)
        self.queues, self.sequences = before
        if stored == 0:
            raise UsageError(f"no subscription of {target!r} accepts the message")

    def remove(self, name: str, sequence: int) -> None:
        self.waiting(name, sequence)
        del self.queue(name).messages[sequence]


class ModelStore(ReferenceModel):
    """All operations. Call `tick` before each: it runs the deadlines that have passed."""

    # Receiving

    def ready(self, name: str, session: str | None) -> list[ModelMessage]:
        """The active messages in the order of delivery."""
        queue = self.queue(name)
        sessions = queue.rules.by_session and not queue.rules.is_dead
        found = [each for each in queue.messages.values() if each.state == "active"]
        if sessions:
            found = [each for each in found if each.session == session]
        by_priority = queue.rules.by_priority and not sessions
        return sorted(found, key=lambda each: (each.priority if by_priority else 0, each.sequence))

    def claim(self, name: str, count: int, session: tuple[str, bytes] | None = None) -> list[ModelMessage]:
        """The messages to deliver. The caller then calls `lock` or `take` for each."""
        self._check_receives(name)
        if session is not None:
            self._holder(name, session)
        elif self.queue(name).rules.by_session:
            raise SessionRequired(name)
        return self.ready(name, session[0] if session is not None else None)[:count]

    def _check_receives(self, name: str) -> None:
        """A dead-letter queue follows the entity that it belongs to."""
        owner = name.rpartition("/")[0] if self.queue(name).rules.is_dead else name
        if not self.queue(owner).rules.receives:
            raise EntityDisabled(name)

    def deferred(self, name: str, sequences: list[int], session: tuple[str, bytes] | None = None) -> list[ModelMessage]:
        self._check_receives(name)
        queue = self.queue(name)
        wanted = None if session is None else session[0]
        if session is not None:
            self._holder(name, session)
        found = [queue.messages.get(sequence) for sequence in sequences]
        for message in found:
            mine = message is not None and (not queue.rules.by_session or message.session == wanted)
            if message is None or message.state != "deferred" or not mine:
                raise MessageNotFound(name)
        return [message for message in found if message is not None]

    def lock(self, name: str, message: ModelMessage, token: bytes) -> None:
        message.state, message.token = "locked", token
        message.count += 1
        message.until_ns = self.now_ns + self._lock_ns(name)

    def _lock_ns(self, name: str) -> int:
        """That of a dead-letter queue is that of its entity."""
        return self.queue(name.rpartition("/")[0] if self.queue(name).rules.is_dead else name).rules.lock_ns

    def take(self, name: str, message: ModelMessage) -> None:
        del self.queue(name).messages[message.sequence]

    # Settling

    def locked(self, name: str, sequence: int, token: bytes) -> ModelMessage:
        message = self.queue(name).messages.get(sequence)
        if message is None or message.state != "locked" or message.token != token:
            raise LockLost(name)
        return message

    def complete(self, name: str, sequence: int, token: bytes) -> None:
        self.take(name, self.locked(name, sequence, token))

    def abandon(
        self, name: str, sequence: int, token: bytes, delay_ns: int, headers: Mapping[str, Value] | None = None
    ) -> None:
        self._requeue(self.queue(name), self._locked_with(name, sequence, token, headers), delay_ns)

    def defer(self, name: str, sequence: int, token: bytes, headers: Mapping[str, Value] | None = None) -> None:
        message = self._locked_with(name, sequence, token, headers)
        message.state, message.token, message.deferred = "deferred", b"", True

    def dead_letter(
        self,
        name: str,
        sequence: int,
        token: bytes,
        reason: str = "",
        headers: Mapping[str, Value] | None = None,
    ) -> None:
        self._dead_letter(self.queue(name), self._locked_with(name, sequence, token, headers), reason)

    def _locked_with(self, name: str, sequence: int, token: bytes, headers: Mapping[str, Value] | None) -> ModelMessage:
        """The locked message with the headers that the settlement sets."""
        message = self.locked(name, sequence, token)
        message.headers = {**message.headers, **(headers or {})}
        return message

    def renew(self, name: str, sequence: int, token: bytes) -> int:
        message = self.locked(name, sequence, token)
        message.until_ns = self.now_ns + self._lock_ns(name)
        return message.until_ns

    # Sessions

    def free_sessions(self, name: str) -> set[str]:
        """The sessions that `accept` without a name may get."""
        queue = self.queue(name)
        waiting = {
            each.session for each in queue.messages.values() if each.state == "active" and each.session is not None
        }
        return {session for session in waiting if not queue.sessions.get(session, Held()).token}

    def may_accept(self, name: str, session: str | None) -> None:
        """With None: any session that is free."""
        self._check_receives(name)
        if session is None:
            return
        if self.queue(name).sessions.get(session, Held()).token:
            raise SessionLocked(name)

    def accept(self, name: str, session: str, token: bytes) -> int:
        queue = self.queue(name)
        held = queue.sessions.setdefault(session, Held())
        held.token, held.until_ns = token, self.now_ns + queue.rules.lock_ns
        return held.until_ns

    def _holder(self, name: str, session: tuple[str, bytes]) -> Held:
        held = self.queue(name).sessions.get(session[0])
        if held is None or held.token != session[1]:
            raise SessionLockLost(name)
        return held

    def renew_session(self, name: str, session: tuple[str, bytes]) -> int:
        held = self._holder(name, session)
        held.until_ns = self.now_ns + self._lock_ns(name)
        return held.until_ns

    def leave(self, name: str, session: tuple[str, bytes]) -> None:
        self._holder(name, session)
        self._session_over(self.queue(name), session[0])

    def set_state(self, name: str, session: tuple[str, bytes], state: bytes | None) -> None:
        self._holder(name, session).state = state

    def state(self, name: str, session: tuple[str, bytes]) -> bytes | None:
        return self._holder(name, session).state
