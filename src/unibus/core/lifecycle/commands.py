# mypyc: compiled
"""What a caller can ask for in one atomic batch: data only. The rules are in the modules named after the verbs."""

from typing import Final, TypeAlias, final

from mypy_extensions import i64, mypyc_attr

from unibus.core.envelope.message import Message
from unibus.core.lifecycle.state.changes import HeaderOverrides, MessageRef, Settings
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.routing import Arrival
from unibus.core.lifecycle.state.rules import Rule

COMPLETE: Final = 1
ABANDON: Final = 2
DEFER: Final = 3
DEAD_LETTER: Final = 4
RELEASE: Final = 5
"""Give a message back as if it had not been delivered."""

SETTLEMENTS: Final[dict[int, str]] = {
    COMPLETE: "complete",
    ABANDON: "abandon",
    DEFER: "defer",
    DEAD_LETTER: "dead_letter",
    RELEASE: "release",
}

BY_TOKEN: Final = -1
"""In place of a sequence: the lock token alone names the message."""


# What holds only data is no business of the cycle collector (decision 0006): there are thousands of them.
@final
@mypyc_attr(acyclic=True)
class ImportedState:
    """How a message stood where it was exported. `expires_ns` is an instant; 0: it never expires."""

    def __init__(self, delivery_count: int, expires_ns: int, overlay: HeaderOverrides | None) -> None:
        self.delivery_count: i64 = delivery_count
        self.expires_ns: i64 = expires_ns
        self.overlay = overlay


@final
@mypyc_attr(acyclic=True)
class Send:
    """`data` is the encoded envelope. `makes` lets a missing queue be made; `raises` makes a duplicate an error.

    With `former` it is stored as it was elsewhere: in that very entity, which may be a subscription or a dead-letter
    queue, not forwarded, and whether its key is known or not. Its `ttl_ns` says nothing then.
    """

    def __init__(self, entity: str, who: MessageRef, data: bytes, priority: int) -> None:
        self.entity = entity
        self.who = who
        self.size: i64 = len(data)
        self.data = data
        self.priority: i64 = priority
        self.ttl_ns: i64 = 0
        self.visible_ns: i64 = 0
        self.dedup_key: str | None = None
        self.makes: i64 = 0  # The kind of entity to make when it is missing; 0 for none.
        self.raises = False
        self.former: ImportedState | None = None
        self.message: Message | None = None  # What `data` holds, for who has to look into it.
        self.arrivals: list[Arrival] | None = None  # Who of a topic gets it: found when the batch is checked.


@final
@mypyc_attr(acyclic=True)
class Settle:
    """End the lock on one message in one of the ways of SETTLEMENTS.

    By its token alone where `sequence` is BY_TOKEN: then `entity` and `message_id` may be empty. Where they are given
    they have to be those of the locked message, else MessageNotFound, and the lock stays.
    """

    def __init__(self, verb: int, entity: str, sequence: int, token: bytes) -> None:
        self.verb: i64 = verb
        self.entity = entity
        self.sequence: i64 = sequence
        self.token = token
        self.message_id = ""
        self.reason = ""
        self.description = ""
        self.signature = ""
        self.delay_ns: i64 = 0
        self.overlay: HeaderOverrides | None = None
        self.processed_key: str | None = None
        self.entry: StoredMessage | None = None  # Found when the batch is checked, for when it is carried out.


@final
class Renew:
    """Let a lock begin again from now. The message is found as Settle finds it."""

    def __init__(self, entity: str, sequence: int, token: bytes) -> None:
        self.entity = entity
        self.sequence: i64 = sequence
        self.token = token
        self.message_id = ""


@final
class Cancel:
    """Take back a scheduled message."""

    def __init__(self, entity: str, sequence: int) -> None:
        self.entity = entity
        self.sequence: i64 = sequence


@final
class SessionCommand:
    """Renew or leave a session, or set its state; `token` proves that it is held."""

    def __init__(self, verb: int, entity: str, session_id: str, token: bytes) -> None:
        self.verb: i64 = verb
        self.entity = entity
        self.session_id = session_id
        self.token = token
        self.state: bytes | None = None


RENEW_SESSION: Final = 1
LEAVE_SESSION: Final = 2
SET_SESSION_STATE: Final = 3


@final
class Declare:
    """Make an entity, or change one where `update` is set. The same settings again are no change.

    With `new_only` an entity that exists is EntityExists, whatever its settings. The namespace is made and changed by
    the same command, and is never an error.
    """

    def __init__(self, name: str, kind: int, settings: Settings, update: bool = False, new_only: bool = False) -> None:
        self.name = name
        self.kind: i64 = kind
        self.settings = settings
        self.update = update
        self.new_only = new_only


@final
class SetRule:
    """Give a subscription one rule more, or change one of them (`update`)."""

    def __init__(self, entity: str, rule: Rule, update: bool = False) -> None:
        self.entity = entity
        self.rule = rule
        self.update = update


@final
class DropRule:
    """Take a rule from a subscription. Without any it gets nothing."""

    def __init__(self, entity: str, name: str) -> None:
        self.entity = entity
        self.name = name


@final
class Drop:
    """Delete an entity, with its subscriptions, dead letters and messages."""

    def __init__(self, name: str) -> None:
        self.name = name


@final
class Move:
    """Take one message from where it waits to another entity, in one step. No lock is needed: operators do this.

    `overlay` replaces the present one unless it is None. `data` and `who` are those of a message that was edited.
    `raises` is for those that need to know: else one that is gone or locked is left alone, and the result is None.
    """

    def __init__(self, entity: str, sequence: int, target: str) -> None:
        self.entity = entity
        self.sequence: i64 = sequence
        self.target = target
        self.action = MOVE_RETRY
        self.overlay: HeaderOverrides | None = None
        self.ttl_ns: i64 = 0
        self.data: bytes | None = None
        self.who: MessageRef | None = None
        self.raises = True


MOVE_RETRY: Final = "retry"
MOVE_REDIRECT: Final = "redirect"
MOVE_EDIT: Final = "edit"


@final
class Remove:
    """Throw one message away, by hand. `raises` as for Move; the result tells whether it was there."""

    def __init__(self, entity: str, sequence: int, reason: str) -> None:
        self.entity = entity
        self.sequence: i64 = sequence
        self.reason = reason
        self.raises = True


@final
class Advance:
    """Let a named position go on, together with the batch whose effect it stands for.

    PositionMoved if it does not stand where the caller believes: then the batch has had its effect before.
    """

    def __init__(self, name: str, expected: int, to: int) -> None:
        self.name = name
        self.expected: i64 = expected
        self.to: i64 = to


@final
class Forget:
    """History shall not replay what an entity stored up to `sequence`; with `who` only that one message."""

    def __init__(self, entity: str, sequence: int, who: MessageRef | None = None) -> None:
        self.entity = entity
        self.sequence: i64 = sequence
        self.who = who


Command: TypeAlias = (
    Send
    | Settle
    | Renew
    | Cancel
    | SessionCommand
    | Declare
    | Drop
    | SetRule
    | DropRule
    | Move
    | Remove
    | Advance
    | Forget
)


@final
@mypyc_attr(acyclic=True)
class SendResult:
    """What became of a send. `duplicate`: it was known already, and nothing was stored.

    `is_routed` is False where no subscription of a topic took it, and the topic keeps nothing.
    `is_forwarded_duplicate`: the entity accepted it, and each target that it was forwarded to had it already.
    """

    def __init__(self, entity: str, sequence: int, message_id: str, duplicate: bool) -> None:
        self.entity = entity
        self.sequence = sequence
        self.id = message_id
        self.duplicate = duplicate
        self.is_routed = True
        self.is_forwarded_duplicate = False
        self.durability = ""

    def __repr__(self) -> str:
        known = ", known already" if self.duplicate else ""
        return f"<SendResult {self.id} in {self.entity!r} #{self.sequence} at {self.durability or '?'}{known}>"
