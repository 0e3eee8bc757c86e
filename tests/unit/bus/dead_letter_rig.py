"""Dead-lettered messages for tests, and the operations on them for the async and the sync API."""

from collections.abc import Callable
from typing import Any

from tests.unit.bus.rigs import Rig


class DeadLetterOperations:
    """The dead-letter manager of a rig's bus: calls a method and waits for its result."""

    def __init__(self, rig: Rig, **settings: Any) -> None:
        self.rig = rig
        self.manager = rig.dead_letter_queue(**settings)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self.manager, name)
        return lambda *given, **named: self.rig.do(lambda: verb(*given, **named))

    def ids(self, *given: Any, **named: Any) -> list[str]:
        return [dead_message.id for dead_message in self.list_messages(*given, **named)]


def dead_letter(
    rig: Rig, entity: str, body: object, reason: str = "Broken", description: str = "", **fields: Any
) -> str:
    """Send one message, receive it and dead-letter it. Gives its id."""
    sent = rig.send(entity, body, **fields)
    dead_letter_next(rig, entity, reason, description)
    return str(sent.id)


def dead_letter_next(rig: Rig, entity: str, reason: str = "Broken", description: str = "") -> Any:
    """Dead-letter the next message of the entity."""
    message = rig.one(entity)
    rig.do(lambda: message.dead_letter(reason, description))
    return message


def dead_letter_many(rig: Rig, entity: str, count: int, reason: str = "Broken") -> None:
    rig.send_many(entity, list(range(count)))
    for message in rig.take(entity, count, 1):
        rig.do(lambda message=message: message.dead_letter(reason))


def dead_letter_queue_of(entity: str) -> str:
    return f"{entity}/$DeadLetterQueue"
