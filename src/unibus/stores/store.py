"""The seam between the bus and whatever keeps its messages: few verbs, and no begin and commit.

Two kinds of store stand behind it. *Embedded* ones hold the rules of core/life in this process, over a journal.
*Shared* ones (an engine of their own, many processes) do the same work in the engine. A transaction is a batch that
was collected before: `apply` takes it whole. Every verb answers with a Pending, so that one store serves programs with
and without an event loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from unibus.core.life.changes import Settings
from unibus.core.life.claiming import Claimed
from unibus.core.life.commands import Command, Declare
from unibus.core.life.entity import Entity, Entry
from unibus.stores.durability import Durability
from unibus.stores.history import History
from unibus.stores.pending import Pending

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Wish:
    """What a receiver wants: up to `count` messages of an entity, now. Without `lock` they are removed.

    `session` holds an accepted session's id and token. `sequences` asks for deferred messages instead of the next.
    """

    entity: str
    count: int = 1
    lock: bool = True
    consumer: str = ""
    session: tuple[str, bytes] | None = None
    sequences: tuple[int, ...] = ()


@dataclass(frozen=True)
class SessionLock:
    """An accepted session: its id, the token that proves it, and when the lock ends (wall time, ns)."""

    entity: str
    session_id: str
    token: bytes
    until_ns: int


@dataclass(frozen=True)
class EntityInfo:
    """An entity as it is now. The counts add up to the messages that it holds; `dead` are those of its sub-queue.

    Settings are not shown: they may hold keys. `accessed_ns` is when somebody last sent to it, received from it, looked
    into it or set it up; 0 as long as nobody has since the store was opened. 0 elsewhere: nobody wrote it down.

    The last five count since the store was opened, and are not stored: messages that arrived (sent, copied or passed
    on), deliveries, and how messages were settled. A message that is removed when it is received is delivered and
    completed.
    """

    name: str
    kind: str
    settings: Settings = field(default_factory=dict, repr=False)
    active: int = 0
    locked: int = 0
    scheduled: int = 0
    deferred: int = 0
    dead: int = 0
    size_bytes: int = 0
    last_sequence: int = 0
    oldest_ns: int = 0
    created_ns: int = 0
    updated_ns: int = 0
    accessed_ns: int = field(default=0, compare=False)
    sent: int = field(default=0, compare=False)
    delivered: int = field(default=0, compare=False)
    completed: int = field(default=0, compare=False)
    abandoned: int = field(default=0, compare=False)
    dead_lettered: int = field(default=0, compare=False)

    @property
    def created_at(self) -> datetime | None:
        return _instant(self.created_ns)

    @property
    def updated_at(self) -> datetime | None:
        return _instant(self.updated_ns)

    @property
    def accessed_at(self) -> datetime | None:
        return _instant(self.accessed_ns)


def _instant(ns: int) -> datetime | None:
    return _EPOCH + timedelta(microseconds=ns // 1_000) if ns else None


@dataclass(frozen=True)
class StoreHealth:
    """Whether the store works, in words for people and numbers for machines."""

    ok: bool
    url: str
    durability: str
    problem: str = ""
    last_seq: int = 0
    snapshot_seq: int = 0
    messages: int = 0
    history_bytes: int = 0
    oldest_seq: int = 0
    warning: str = ""
    """Why it does less than it should, though it works: the disk is full."""


class Store(Protocol):
    """See the module. A verb raises at once what speaks against the call; nothing was changed then.

    StoreFailed, later or at once, means that the outcome is unknown and that the store has stopped.
    """

    url: str
    durability: Durability
    commits_on_loop: bool
    """False: an event loop never waits for the disk, also where that would be quicker. For servers."""

    @property
    def history(self) -> History: ...

    def apply(
        self, commands: Sequence[Command], durability: Durability | None = None, batch_id: str = ""
    ) -> Pending[list[object]]:
        """All of the batch or nothing. One result per command, as core/life/batch.py says.

        A shared store remembers `batch_id` with the result, so that a call whose outcome is unknown can be made
        again. An embedded one needs none: it knows what it wrote, or it has stopped.
        """

    def claim(self, wish: Wish) -> Pending[list[Claimed]]:
        """What is there now, possibly nothing."""

    def accept(self, entity: str, session_id: str | None, consumer: str) -> Pending[SessionLock | None]:
        """Lock a session, by id or the next one free; None when none is."""

    def watch(self, entity: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call once, from any thread, when there may be something to claim or accept. Gives a way to stop watching.

        Watch first and claim after that: then no message can come unnoticed in between. A call may be in vain.
        """

    def peek(
        self, entity: str, from_sequence: int, count: int, session_id: str | None = None
    ) -> Pending[list[Claimed]]:
        """Messages in order of sequence, whatever their state; those of one session where it is named. No effect.

        Takes time for `count` messages, not for those before them. The lock tokens of other receivers are not shown.
        """

    def session_state(self, lock: SessionLock) -> Pending[bytes | None]: ...

    def sessions(self, entity: str, updated_after_ns: int, skip: int, top: int) -> Pending[list[str]]:
        """The ids of sessions that have messages or a state, in their order, `top` of them from the one at `skip`.

        With `updated_after_ns` only those whose state was set after that instant.
        """

    def entities(self) -> Pending[list[EntityInfo]]:
        """All of them, but for the namespace."""

    def entities_page(self, kind: int, topic: str, skip: int, top: int) -> Pending[list[EntityInfo]]:
        """Those of one kind by name, `top` of them from the one at `skip`; of one topic where it is named."""

    def entity(self, name: str) -> Pending[EntityInfo | None]:
        """One of them, whatever their number: constant time. None if there is none of that name."""

    def find_entity(self, name: str) -> Entity | None:
        """The live object, without waiting, for every request of a server. Only name, kind and settings may be read.

        Settings are replaced as a whole when they change, so that what is derived from them can be kept by identity.
        """

    def was_processed(self, entity: str, key: str) -> bool:
        """Whether a consumer of the entity has committed its effect for this key."""

    def subscribe_from(self, declare: Declare, after_sequence: int, since_ns: int) -> Pending[int]:
        """Make a subscription that begins in the past: with those messages of its topic that history still has.

        Those with a higher sequence, and not before that instant. Says how many. One that exists gets none.
        """

    def position(self, name: str) -> int:
        """How far somebody has come whose work goes into the store (the command Advance); 0 for one that is new."""

    def held(self, entity: str | None = None) -> list[Entry]:
        """The messages that are there now, of one entity or of all. They go on living while the caller reads them."""

    def find(self, entity: str, sequence: int) -> Entry | None:
        """One message, if it is there."""

    def data_of(self, entries: Sequence[Entry]) -> dict[Entry, bytes]:
        """The encoded messages, but for those that are gone by now."""

    def health(self) -> StoreHealth: ...

    def check(self) -> list[str]:
        """Every invariant of the store that does not hold, in words; empty when all hold. It may read everything."""

    def close(self) -> None:
        """Write what is open and let go. Idempotent."""
