"""What is refused: a send by a full entity, and a message by the target of a forward.

The target of a forward is asked as it would be for a send: `answer_of_target`. What it refuses is a dead letter of the
entity that forwards; what its duplicate detection knows is dropped.
"""

from collections import Counter
from dataclasses import dataclass, field

from unibus.core.flow.deadletter import ENTITY_DISABLED, QUOTA_EXCEEDED
from unibus.testing.model.letters import ModelMessage
from unibus.testing.model.parts import ModelQueue


@dataclass
class ModelAnswer:
    """Of the target of a forward. `reason` is empty unless it refuses; it knows the message by `key` from now on."""

    reason: str = ""
    is_duplicate: bool = False
    key: str | None = None


@dataclass
class Room:
    """How many messages each box had when a batch began, and how many its sends were granted.

    What the batch settles makes no room for what it sends, and a forward gets what the sends leave.
    """

    before: dict[str, int]
    granted: Counter[str] = field(default_factory=Counter)

    def held(self, box: ModelQueue) -> int:
        granted = self.granted[box.name]
        return self.before.get(box.name, 0) + granted if granted else len(box.letters)

    def has_place(self, box: ModelQueue) -> bool:
        """For a send, which is checked before anything has changed."""
        return not box.rules.count_max or self.before.get(box.name, 0) + self.granted[box.name] < box.rules.count_max


def room_of(boxes: dict[str, ModelQueue]) -> Room:
    return Room({name: len(box.letters) for name, box in boxes.items()})


def key_at_target(target: ModelQueue, letter: ModelMessage) -> str | None:
    """The sender's own key, or the id where the target compares ids. The key of a message that was stored is read only
    where the target compares ids."""
    if letter.fresh and letter.key is not None:
        return letter.key
    return (letter.key or letter.id) if target.rules.knows_ids else None


def answer_of_target(
    target: ModelQueue, letter: ModelMessage, stores: list[ModelQueue], room: Room | None, now_ns: int
) -> ModelAnswer:
    """`stores` are the boxes that would store the message; `room` is that of the batch that is carried out."""
    if target.rules.is_dead:
        return ModelAnswer()
    if not target.rules.sends:
        return ModelAnswer(ENTITY_DISABLED)
    key = key_at_target(target, letter)
    if key is not None and target.name in letter.way and target.knows(key, now_ns):
        key = None  # A message is no duplicate of itself.
    if key is not None and target.knows(key, now_ns):
        return ModelAnswer(is_duplicate=True, key=key)
    room = room or Room({})
    adds: Counter[str] = Counter()
    for box in stores:
        if box.rules.count_max and room.held(box) + adds[box.name] >= box.rules.count_max:
            return ModelAnswer(QUOTA_EXCEEDED)
        adds[box.name] += 1
    for name, count in adds.items():
        if room.granted[name]:
            room.granted[name] += count
    return ModelAnswer(key=key)
