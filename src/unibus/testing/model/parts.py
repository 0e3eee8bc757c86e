"""An entity of the model with its settings, and the arguments of a send."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from unibus.testing.model.messages import SECOND, Held, ModelMessage, Value
from unibus.testing.model.rules import DEFAULT, ModelRule


@dataclass(frozen=True)
class ModelRules:
    """The settings of an entity. Times are in nanoseconds; 0 is "none".

    `rules` and `dead_letters_unanswered` belong to subscriptions, `keeps` to topics.
    """

    lock_ns: int = 60 * SECOND
    deliveries_max: int = 10
    ttl_ns: int = 0
    window_ns: int = 600 * SECOND
    knows_ids: bool = False
    by_priority: bool = True
    by_session: bool = False
    dead_letters_expired: bool = False
    is_topic: bool = False
    is_dead: bool = False
    forward_to: str = ""
    dead_letters_to: str = ""
    count_max: int = 0
    status: str = "active"
    keeps: bool = False
    rules: tuple[ModelRule, ...] = (DEFAULT,)
    dead_letters_unanswered: bool = True

    @property
    def sends(self) -> bool:
        return self.status in ("active", "receive_disabled")

    @property
    def receives(self) -> bool:
        return self.status in ("active", "send_disabled")


@dataclass
class ModelQueue:
    """An entity of any kind: a queue, topic, subscription or dead-letter queue."""

    name: str
    rules: ModelRules
    sequence: int = 0
    messages: dict[int, ModelMessage] = field(default_factory=dict)
    dedup_keys: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, Held] = field(default_factory=dict)

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def knows(self, key: str, now_ns: int) -> bool:
        return key in self.dedup_keys and self.dedup_keys[key] + self.rules.window_ns > now_ns


@dataclass(frozen=True)
class ModelSend:
    """The arguments of a send. Without an `id`, the text is the id."""

    text: str
    priority: int = 50
    session: str | None = None
    ttl_ns: int = 0
    visible_ns: int = 0
    key: str | None = None
    headers: Mapping[str, Value] = field(default_factory=dict)
    correlation: str | None = None
    id: str = ""

    def message(self) -> ModelMessage:
        message = ModelMessage(self.text, self.priority, self.session, 0, headers=dict(self.headers))
        message.correlation, message.id, message.key, message.fresh = (
            self.correlation,
            self.id or self.text,
            self.key,
            True,
        )
        return message
