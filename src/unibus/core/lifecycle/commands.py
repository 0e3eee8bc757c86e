# mypyc: compiled
"""The commands of an atomic batch: data only. The rules are in the modules named after the verbs (sending.py, …)."""

from typing import Final, TypeAlias, final

from mypy_extensions import i64, mypyc_attr

from unibus.core.envelope.message import Message
from unibus.core.lifecycle.state.changes import HeaderOverrides, MessageRef, Settings
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.core.lifecycle.state.routing import Arrival
from unibus.core.lifecycle.state.rules import Rule
from unibus.display import described, quoted, shortened

COMPLETE: Final = 1
ABANDON: Final = 2
DEFER: Final = 3
DEAD_LETTER: Final = 4
RELEASE: Final = 5
"""Requeue a message as if it had not been delivered."""

SETTLEMENTS: Final[dict[int, str]] = {
    COMPLETE: "complete",
    ABANDON: "abandon",
    DEFER: "defer",
    DEAD_LETTER: "dead_letter",
    RELEASE: "release",
}

BY_TOKEN: Final = -1
"""Instead of a sequence: the lock token alone identifies the message."""


# Acyclic: the cycle collector need not traverse objects of plain data, of which there are thousands (decision 0006).
@final
@mypyc_attr(acyclic=True)
class ImportedState:
    """The state of a message in the store from which it was exported. `expires_ns` is an instant; 0: never."""

    def __init__(self, delivery_count: int, expires_ns: int, overlay: HeaderOverrides | None) -> None:
        self.delivery_count: i64 = delivery_count
        self.expires_ns: i64 = expires_ns
        self.overlay = overlay


@final
@mypyc_attr(acyclic=True)
class Send:
    """`data` is the encoded envelope. `creates` is the kind of a missing entity; `raises` makes a duplicate an error.

    `imported` is set for an import: the message is stored in exactly this entity, which may be a subscription or a
    dead-letter queue; it is not forwarded, and not checked for duplicates. Its `ttl_ns` is ignored then.
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
        self.creates: i64 = 0  # The kind of entity to create if it is missing; 0 for none.
        self.raises = False
        self.imported: ImportedState | None = None
        self.message: Message | None = None  # The decoded `data`, for filters.
        # The matching subscriptions of a topic: computed when the batch is checked, used when it is executed.
        self.arrivals: list[Arrival] | None = None


@final
@mypyc_attr(acyclic=True)
class Settle:
    """Settle one locked message by one of SETTLEMENTS.

    If `sequence` is BY_TOKEN, the token alone identifies it, and `entity` and `message_id` may be empty. If they are
    given, they must be those of the locked message; else MessageNotFound, and the lock is kept.
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
        self.entry: StoredMessage | None = None  # Found when the batch is checked, used when it is executed.


@final
class Renew:
    """Renew a lock: its duration starts again now. The message is identified as by Settle."""

    def __init__(self, entity: str, sequence: int, token: bytes) -> None:
        self.entity = entity
        self.sequence: i64 = sequence
        self.token = token
        self.message_id = ""


@final
class Cancel:
    """Cancel a scheduled message."""

    def __init__(self, entity: str, sequence: int) -> None:
        self.entity = entity
        self.sequence: i64 = sequence


@final
class SessionCommand:
    """Renew or release a session, or set its state; `token` proves that the caller holds its lock."""

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
    """Create an entity, or update one if `update` is set. Idempotent: the same settings again are not a change.

    With `new_only` an existing entity is EntityExists, whatever its settings. The namespace is created and updated by
    the same command, and never raises EntityExists.
    """

    def __init__(self, name: str, kind: int, settings: Settings, update: bool = False, new_only: bool = False) -> None:
        self.name = name
        self.kind: i64 = kind
        self.settings = settings
        self.update = update
        self.new_only = new_only


@final
class SetRule:
    """Add a rule to a subscription, or replace one (`update`)."""

    def __init__(self, entity: str, rule: Rule, update: bool = False) -> None:
        self.entity = entity
        self.rule = rule
        self.update = update


@final
class DropRule:
    """Delete a rule of a subscription. Without rules a subscription gets no messages."""

    def __init__(self, entity: str, name: str) -> None:
        self.entity = entity
        self.name = name


@final
class Drop:
    """Delete an entity, with its subscriptions, its dead-letter queue and its messages."""

    def __init__(self, name: str) -> None:
        self.name = name


@final
class Move:
    """Move one message to another entity, atomically. It needs no lock: this is an operation for operators.

    `overlay` replaces the current one unless it is None. `data` and `who` are those of an edited message. Without
    `raises` a message that no longer exists or is locked is skipped, and the result is None.
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
    """Discard one message, for operators. `raises` as for Move; the result is whether the message existed."""

    def __init__(self, entity: str, sequence: int, reason: str) -> None:
        self.entity = entity
        self.sequence: i64 = sequence
        self.reason = reason
        self.raises = True


@final
class Advance:
    """Advance a named position, atomically with the batch whose progress it records.

    PositionMoved if it is not at `expected`: then the batch was applied before. This makes a repeated batch idempotent.
    """

    def __init__(self, name: str, expected: int, to: int) -> None:
        self.name = name
        self.expected: i64 = expected
        self.to: i64 = to


@final
class DeletePosition:
    """Delete a named position, which begins at 0 again. PositionMoved if it is not at `expected`.

    For one that no writer uses any more: a writer that continues from 0 applies its batches a second time.
    """

    def __init__(self, name: str, expected: int) -> None:
        self.name = name
        self.expected: i64 = expected


@final
class Forget:
    """Exclude from replay what an entity stored up to `sequence`; with `who` only that one message."""

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
    | DeletePosition
    | Forget
)


@final
@mypyc_attr(acyclic=True)
class SendResult:
    """The result of a send. `duplicate`: its dedup key was known already, and nothing was stored.

    `is_routed` is False if no subscription of a topic matched and the topic stores nothing itself.
    `is_forwarded_duplicate`: the entity accepted it, and every target to which it was forwarded had it already.
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
        return described(self, self._describe)

    def _describe(self) -> str:
        known = ", known already" if self.duplicate else ""
        place = f"{quoted(self.entity, 40)} #{self.sequence}"
        return f"{shortened(self.id, 40)} in {place} at {self.durability or '?'}{known}"
