"""What is refused: a send by a full entity, and a message by the target of a forward.

The second is one function, `refusal_of_forward`, because it is the rule of the model that is most likely to change.
"""

from collections import Counter
from dataclasses import dataclass, field

from unibus.errors import QuotaExceeded
from unibus.testing.model.letters import Letter
from unibus.testing.model.parts import Box


def refusal_of_forward(source: Box, target: Box, letter: Letter) -> str:
    """Why the target of a forward does not take a message, as the reason of the dead letter that it becomes.

    Empty: it takes the message. Today every target does, whatever its `count_max`, `status` and duplicate detection.
    """
    return ""


@dataclass
class Room:
    """How many messages each box had when a batch began, and how many the batch has brought so far.

    What the batch settles makes no room for what it sends.
    """

    before: dict[str, int]
    brought: Counter[str] = field(default_factory=Counter)

    def take(self, box: Box) -> None:
        if box.rules.count_max and self.before.get(box.name, 0) + self.brought[box.name] >= box.rules.count_max:
            raise QuotaExceeded(box.name)
        self.brought[box.name] += 1


def room_of(boxes: dict[str, Box]) -> Room:
    return Room({name: len(box.letters) for name, box in boxes.items()})
