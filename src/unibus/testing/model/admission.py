"""Which messages are rejected: a send by a full entity, and a forward by its target.

The target of a forward applies the rules of a send: `answer_of_target`. A message that it rejects is dead-lettered by
the entity that forwards it; a message that its duplicate detection knows is dropped.
"""

from collections import Counter
from dataclasses import dataclass, field

from unibus.core.flow.deadletter import ENTITY_DISABLED, QUOTA_EXCEEDED
from unibus.testing.model.messages import ModelMessage
from unibus.testing.model.parts import ModelQueue


@dataclass
class ModelAnswer:
    """Of the target of a forward. `reason` is empty unless it rejects the message; `key` enters its dedup window."""

    reason: str = ""
    is_duplicate: bool = False
    key: str | None = None


@dataclass
class ModelQuota:
    """How many messages each queue held when a batch began, and how many the sends of the batch may add.

    A message that the batch settles frees no place for a message that it sends. A forward gets the places that the
    sends leave.
    """

    before: dict[str, int]
    granted: Counter[str] = field(default_factory=Counter)

    def held(self, queue: ModelQueue) -> int:
        granted = self.granted[queue.name]
        return self.before.get(queue.name, 0) + granted if granted else len(queue.messages)

    def has_place(self, queue: ModelQueue) -> bool:
        """For a send: checked before the first step of the batch changes anything."""
        return (
            not queue.rules.count_max
            or self.before.get(queue.name, 0) + self.granted[queue.name] < queue.rules.count_max
        )


def quota_of(queues: dict[str, ModelQueue]) -> ModelQuota:
    return ModelQuota({name: len(queue.messages) for name, queue in queues.items()})


def key_at_target(target: ModelQueue, message: ModelMessage) -> str | None:
    """The sender's dedup key, or the id if the target compares ids.

    The dedup key of a message that was stored before counts only if the target compares ids.
    """
    if message.fresh and message.key is not None:
        return message.key
    return (message.key or message.id) if target.rules.knows_ids else None


def answer_of_target(
    target: ModelQueue, message: ModelMessage, stores: list[ModelQueue], quota: ModelQuota | None, now_ns: int
) -> ModelAnswer:
    """`stores` are the queues that would store the message; `quota` is that of the batch that is applied."""
    if target.rules.is_dead:
        return ModelAnswer()
    if not target.rules.sends:
        return ModelAnswer(ENTITY_DISABLED)
    key = key_at_target(target, message)
    if key is not None and target.name in message.path and target.knows(key, now_ns):
        key = None  # A message is no duplicate of itself.
    if key is not None and target.knows(key, now_ns):
        return ModelAnswer(is_duplicate=True, key=key)
    quota = quota or ModelQuota({})
    adds: Counter[str] = Counter()
    for queue in stores:
        if queue.rules.count_max and quota.held(queue) + adds[queue.name] >= queue.rules.count_max:
            return ModelAnswer(QUOTA_EXCEEDED)
        adds[queue.name] += 1
    for name, count in adds.items():
        if quota.granted[name]:
            quota.granted[name] += count
    return ModelAnswer(key=key)
