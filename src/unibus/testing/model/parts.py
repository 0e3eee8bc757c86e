"""An entity of the model with its settings, and what is sent to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from unibus.testing.model.letters import SECOND, Held, ModelMessage, Value
from unibus.testing.model.rules import DEFAULT, ModelRule


@dataclass(frozen=True)
class ModelRules:
    """The settings of a box, in nanoseconds where they are times; 0 is "none".

    `rules` and `buries_unanswered` are a subscription's, `keeps` is a topic's.
    """

    lock_ns: int = 60 * SECOND
    deliveries_max: int = 10
    ttl_ns: int = 0
    window_ns: int = 600 * SECOND
    knows_ids: bool = False
    by_priority: bool = True
    by_session: bool = False
    buries_expired: bool = False
    is_topic: bool = False
    is_dead: bool = False
    forward_to: str = ""
    dead_letters_to: str = ""
    count_max: int = 0
    status: str = "active"
    keeps: bool = False
    rules: tuple[ModelRule, ...] = (DEFAULT,)
    buries_unanswered: bool = True

    @property
    def sends(self) -> bool:
        return self.status in ("active", "receive_disabled")

    @property
    def receives(self) -> bool:
        return self.status in ("active", "send_disabled")


@dataclass
class ModelQueue:
    name: str
    rules: ModelRules
    sequence: int = 0
    letters: dict[int, ModelMessage] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, Held] = field(default_factory=dict)

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def knows(self, key: str, now_ns: int) -> bool:
        return key in self.marks and self.marks[key] + self.rules.window_ns > now_ns


@dataclass(frozen=True)
class ModelSend:
    """What is sent: the arguments of a send. Without an `id` the text is it."""

    text: str
    priority: int = 50
    session: str | None = None
    ttl_ns: int = 0
    visible_ns: int = 0
    key: str | None = None
    headers: Mapping[str, Value] = field(default_factory=dict)
    correlation: str | None = None
    id: str = ""

    def letter(self) -> ModelMessage:
        letter = ModelMessage(self.text, self.priority, self.session, 0, headers=dict(self.headers))
        letter.correlation, letter.id, letter.key, letter.fresh = self.correlation, self.id or self.text, self.key, True
        return letter
