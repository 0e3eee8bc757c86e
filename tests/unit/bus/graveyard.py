"""Dead letters to try things on, and the verbs on them for both faces."""

from collections.abc import Callable
from typing import Any

from tests.unit.bus.rigs import Rig


class Desk:
    """The dead letters of a rig's bus: calls a verb and gives the answer."""

    def __init__(self, rig: Rig, **settings: Any) -> None:
        self.rig = rig
        self.manager = rig.dead_letter_queue(**settings)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self.manager, name)
        return lambda *given, **named: self.rig.do(lambda: verb(*given, **named))

    def ids(self, *given: Any, **named: Any) -> list[str]:
        return [letter.id for letter in self.list_messages(*given, **named)]


def dead_letter(
    rig: Rig, entity: str, body: object, reason: str = "Broken", description: str = "", **fields: Any
) -> str:
    """Send one message, receive it and let it die. Its id."""
    sent = rig.send(entity, body, **fields)
    kill(rig, entity, reason, description)
    return str(sent.id)


def kill(rig: Rig, entity: str, reason: str = "Broken", description: str = "") -> Any:
    """Let the next message of the entity die."""
    message = rig.one(entity)
    rig.do(lambda: message.dead_letter(reason, description))
    return message


def bury_many(rig: Rig, entity: str, count: int, reason: str = "Broken") -> None:
    rig.send_many(entity, list(range(count)))
    for message in rig.take(entity, count, 1):
        rig.do(lambda message=message: message.dead_letter(reason))


def dead_place(entity: str) -> str:
    return f"{entity}/$DeadLetterQueue"
