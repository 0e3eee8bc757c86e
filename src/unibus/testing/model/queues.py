"""Where a message of the model is stored: in an entity, in copies in subscriptions, in a target of a forward, or in a
dead-letter queue."""

from dataclasses import dataclass, replace

from unibus.core.flow.deadletter import (
    ATTEMPTS_HEADER,
    FILTER_EVALUATION_FAILED,
    MAX_TRANSFER_HOP_COUNT_EXCEEDED,
    REASON_HEADER,
    SESSION_ID_IS_NULL,
    SOURCE_HEADER,
    TIME_HEADER,
    sub_queue,
)
from unibus.errors import EntityNotFound
from unibus.testing.model.admission import ModelAnswer, ModelQuota, answer_of_target
from unibus.testing.model.messages import ModelMessage, Value
from unibus.testing.model.parts import ModelQueue, ModelRules
from unibus.testing.model.rules import ModelRule, NoAnswer

HOPS_MAX = 4
TARGET_MISSING = "ForwardTargetNotFound"


@dataclass
class ModelCopy:
    """The copy of a message for a subscription. With `failed` it goes to the subscription's dead-letter queue."""

    queue: ModelQueue
    message: ModelMessage
    failed: bool = False


class ModelQueues:
    """All entities by name, and how a message that was accepted moves between them."""

    def __init__(self) -> None:
        self.queues: dict[str, ModelQueue] = {}
        self.sequences: dict[str, int] = {}  # Of deleted entities: one of the same name continues the numbers.
        self.now_ns = 0
        self.has_ties = False  # Several deadlines at one instant have stored messages: `ModelMessage.tie`.
        self.is_undecided = False  # The order of such deadlines decides which message got a place or a dedup key.
        self._tie = 0
        self._quota: ModelQuota | None = None  # Of the batch that is applied.

    def make(self, name: str, rules: ModelRules) -> None:
        self.queues[name] = ModelQueue(name, rules, self.sequences.get(name, 0))
        topic, is_subscription, _ = name.partition("/Subscriptions/")
        if is_subscription and "$" not in name:
            self._deliver_kept(self.queues[topic], name)

    def change(self, name: str, rules: ModelRules) -> None:
        self.queue(name).rules = rules

    def set_rules(self, name: str, rules: tuple[ModelRule, ...]) -> None:
        self.change(name, replace(self.queue(name).rules, rules=rules))

    def drop(self, name: str) -> None:
        deleted = [name, *(self.subscriptions(name))]
        for other in [*deleted, *map(sub_queue, deleted)]:
            if other in self.queues:
                self.sequences[other] = self.queues.pop(other).sequence

    def subscriptions(self, topic: str) -> list[str]:
        return [name for name in self.queues if name.startswith(f"{topic}/Subscriptions/") and "$" not in name]

    def queue(self, name: str) -> ModelQueue:
        if name not in self.queues:
            raise EntityNotFound(name)
        return self.queues[name]

    def dead_letter_queue(self, name: str) -> ModelQueue:
        """Of an entity; created for its first message. A dead-letter queue is its own."""
        if self.queue(name).rules.is_dead:
            return self.queue(name)
        if sub_queue(name) not in self.queues:
            self.make(sub_queue(name), ModelRules(is_dead=True))
        return self.queues[sub_queue(name)]

    # Storing

    def stores(self, queue: ModelQueue) -> bool:
        """Whether an entity stores the messages that arrive at it."""
        if queue.rules.is_topic:
            return queue.rules.keeps and not self.subscriptions(queue.name)
        return not queue.rules.forward_to

    def _store(self, queue: ModelQueue, message: ModelMessage, ttl_ns: int, from_ns: int) -> None:
        message.sequence = queue.next_sequence()
        message.expires_ns = from_ns + ttl_ns if ttl_ns else 0
        self._place(queue, message)

    def _place(self, queue: ModelQueue, message: ModelMessage) -> None:
        message.tie, message.fresh, message.path = self._tie, False, ()
        self.has_ties = self.has_ties or self._tie > 0
        queue.messages[message.sequence] = message

    def _arrive(self, queue: ModelQueue, message: ModelMessage, ttl_ns: int) -> int:
        """Store it here, in copies, or where it is forwarded to. Returns how many messages were stored."""
        rules = queue.rules
        ttl_ns = shorter(ttl_ns, rules.ttl_ns)
        if self.stores(queue) and rules.by_session and message.session is None:
            self._reject(queue, message, SESSION_ID_IS_NULL)
        elif self.stores(queue):
            self._store(queue, message, ttl_ns, self.now_ns)
        elif rules.is_topic:
            queue.next_sequence()
            copies = self.copies(self.subscriptions(queue.name), replace(message, path=(*message.path, queue.name)))
            copies.sort(key=lambda copy: copy.queue.rules.forward_to != "")  # Those that store come first.
            return sum([self._enter(copy, ttl_ns) for copy in copies])
        else:
            return self._forward(queue, message, ttl_ns)
        return 1

    def _forward(self, queue: ModelQueue, message: ModelMessage, ttl_ns: int) -> int:
        target = self.queues.get(queue.rules.forward_to)
        if target is None or message.hops >= HOPS_MAX:
            self._reject(queue, message, TARGET_MISSING if target is None else MAX_TRANSFER_HOP_COUNT_EXCEEDED)
            return 1
        onward = replace(message, hops=message.hops + 1, path=(*message.path, queue.name))
        answer = self._ask(target, onward)
        if answer.reason:
            self._reject(queue, message, answer.reason)
            return 1
        queue.next_sequence()
        return 0 if answer.is_duplicate else self._admit(target, onward, ttl_ns, answer)

    def _ask(self, target: ModelQueue, message: ModelMessage) -> ModelAnswer:
        """Whether the target of a forward accepts a message."""
        stores = [target]
        if target.rules.is_topic and not self.stores(target):
            copies = self.copies(self.subscriptions(target.name), message)
            stores = [copy.queue for copy in copies if not copy.failed]
        stores = [queue for queue in stores if self.stores(queue)]
        answer = answer_of_target(target, message, stores, self._quota, self.now_ns)
        depends = answer.key is not None or any([queue.rules.count_max for queue in stores])
        self.is_undecided = self.is_undecided or (depends and self._tie > 0)
        return answer

    def _admit(self, target: ModelQueue, message: ModelMessage, ttl_ns: int, answer: ModelAnswer) -> int:
        if answer.key is not None:
            target.dedup_keys[answer.key] = self.now_ns
        return self._arrive(target, message, ttl_ns)

    def copies(self, subscriptions: list[str], message: ModelMessage) -> list[ModelCopy]:
        """One for all matching rules without an action, one for each matching rule with one, one for all failures."""
        found: list[ModelCopy] = []
        failed: list[ModelCopy] = []
        for queue in [self.queues[name] for name in subscriptions]:
            whole = False
            for rule in queue.rules.rules:
                try:
                    if not rule.takes(message):
                        continue
                except NoAnswer:
                    failed.append(ModelCopy(queue, replace(message), True))
                    continue
                try:
                    if rule.action or not whole:
                        found.append(ModelCopy(queue, rule.changed(message)))
                except NoAnswer:
                    found.append(ModelCopy(queue, replace(message), True))
                whole = whole or not rule.action
        return first_failures([*found, *failed])

    def _enter(self, copy: ModelCopy, ttl_ns: int) -> int:
        if not copy.failed:
            return self._arrive(copy.queue, copy.message, ttl_ns)
        self._reject(copy.queue, copy.message, FILTER_EVALUATION_FAILED)
        return 1

    def _reject(self, queue: ModelQueue, message: ModelMessage, reason: str) -> None:
        """Dead-letter a message that the queue at which it arrived cannot store."""
        queue.next_sequence()
        self._store(self.dead_letter_queue(queue.name), self._dead(queue, message, reason), 0, 0)

    def _deliver_kept(self, topic: ModelQueue, subscription: str) -> None:
        """A new subscription gets the messages that its topic kept while it had no subscription."""
        for message in [each for each in topic.messages.values() if each.state == "active"]:
            ttl_ns = max(1, message.expires_ns - self.now_ns) if message.expires_ns else 0
            for copy in self.copies([subscription], replace(message)):
                self._enter(copy, ttl_ns)
            del topic.messages[message.sequence]

    def _dead(self, queue: ModelQueue, message: ModelMessage, reason: str) -> ModelMessage:
        """The message with the headers that say why it was dead-lettered."""
        record: dict[str, Value] = {
            REASON_HEADER: reason,
            SOURCE_HEADER: self._source_of(queue, message),
            ATTEMPTS_HEADER: message.count,
            TIME_HEADER: self.now_ns,
        }
        dead = ModelMessage(message.text, message.priority, message.session, 0, hops=message.hops)
        dead.headers, dead.correlation = {**message.headers, **record}, message.correlation
        dead.id, dead.key = message.id, message.key
        return dead

    def _source_of(self, queue: ModelQueue, message: ModelMessage) -> Value:
        """Where it was dead-lettered first: a message of a dead-letter queue keeps its source."""
        return message.headers.get(SOURCE_HEADER, queue.name.rpartition("/")[0]) if queue.rules.is_dead else queue.name

    def _dead_letter(self, queue: ModelQueue, message: ModelMessage, reason: str) -> None:
        """Forward it to the target for dead-lettered messages; without one that takes it, to the dead-letter queue."""
        dead = self._dead(queue, message, reason)
        dead.hops += 1
        target = self.queues.get(queue.rules.dead_letters_to)
        stays = target is queue or queue.rules.is_dead or message.hops >= HOPS_MAX
        if target is None or stays or not self._forward_dead(target, dead):
            self._store(self.dead_letter_queue(queue.name), dead, 0, 0)
        del queue.messages[message.sequence]

    def _forward_dead(self, target: ModelQueue, dead: ModelMessage) -> bool:
        """Whether the target stored it: not if it rejects the message or knows it as a duplicate."""
        answer = self._ask(target, dead)
        return not answer.reason and not answer.is_duplicate and self._admit(target, replace(dead), 0, answer) > 0


def first_failures(copies: list[ModelCopy]) -> list[ModelCopy]:
    """At most one failed copy for each subscription, however many of its rules fail; none if it discards failures."""
    kept: list[ModelCopy] = []
    for copy in copies:
        again = any([each.failed and each.queue is copy.queue for each in kept])
        if not copy.failed or (copy.queue.rules.dead_letters_unanswered and not again):
            kept.append(copy)
    return kept


def shorter(one_ns: int, other_ns: int) -> int:
    return min(one_ns, other_ns) if one_ns and other_ns else one_ns or other_ns
