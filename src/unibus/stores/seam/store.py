"""The seam between the bus and whatever keeps its messages: few verbs, and no begin and commit.

Two kinds of store stand behind it. *Embedded* ones hold the rules of core/lifecycle in this process, over a journal.
*Shared* ones (an engine of their own, many processes) do the same work in the engine. A transaction is a batch that
was collected before: `apply` takes it whole. Every verb answers with a Pending, so that one store serves programs with
and without an event loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import Command, Declare
from unibus.core.lifecycle.state.entity import StoredMessage
from unibus.stores.seam.catalog import Catalog
from unibus.stores.seam.commit_placement import CommitPlacement
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.history import History
from unibus.stores.seam.info_of import EntityInfo as EntityInfo
from unibus.stores.seam.moment import StoreCopy
from unibus.stores.seam.pending import Pending


class ClaimRequest(msgspec.Struct, frozen=True):
    """What a receiver wants: up to `count` messages of an entity, now. Without `lock` they are removed.

    `session` holds an accepted session's id and token. `sequences` asks for deferred messages instead of the next.
    `bytes_max` ends a batch of the next ones with the message that reaches it, and refuses several deferred ones that
    have more together (MessageTooLarge); 0 is no limit.
    """

    entity: str
    count: int = 1
    lock: bool = True
    consumer: str = ""
    session: tuple[str, bytes] | None = None
    sequences: tuple[int, ...] = ()
    bytes_max: int = 0


@dataclass(frozen=True)
class SessionLock:
    """An accepted session: its id, the token that proves it, and when the lock ends (wall time, ns)."""

    entity: str
    session_id: str
    token: bytes
    until_ns: int


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
    pace: CommitPlacement
    """Where commits are made: a server lets the store's own thread do it always."""

    @property
    def history(self) -> History: ...

    @property
    def catalog(self) -> Catalog: ...

    def apply(
        self, commands: Sequence[Command], durability: Durability | None = None, batch_id: str = ""
    ) -> Pending[list[object]]:
        """All of the batch or nothing. One result per command, as core/lifecycle/batch.py says.

        A shared store remembers `batch_id` with the result, so that a call whose outcome is unknown can be made
        again. An embedded one needs none: it knows what it wrote, or it has stopped.
        """

    def claim(self, request: ClaimRequest) -> Pending[list[Claimed]]:
        """What is there now, possibly nothing."""

    def accept(self, entity: str, session_id: str | None, consumer: str) -> Pending[SessionLock | None]:
        """Lock a session, by id or the next one free; None when none is."""

    def watch(self, entity: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call once, from any thread, when there may be something to claim or accept. Gives a way to stop watching.

        Watch first and claim after that: then no message can come unnoticed in between. A call may be in vain.
        """

    def peek(
        self, entity: str, from_sequence: int, count: int, session_id: str | None = None, bytes_max: int = 0
    ) -> Pending[list[Claimed]]:
        """Messages in order of sequence, whatever their state; those of one session where it is named. No effect.

        Takes time for `count` messages, not for those before them. The lock tokens of other receivers are not shown.
        The message that reaches `bytes_max` is the last; 0 is no limit.
        """

    def session_state(self, lock: SessionLock) -> Pending[bytes | None]: ...

    def entities(self) -> Pending[list[EntityInfo]]:
        """All of them, but for the namespace."""

    def was_processed(self, entity: str, key: str) -> bool:
        """Whether a consumer of the entity has committed its effect for this key."""

    def subscribe_from(self, declare: Declare, after_sequence: int, since_ns: int) -> Pending[int]:
        """Make a subscription that begins in the past: with those messages of its topic that history still has.

        Those with a higher sequence, and not before that instant. Says how many. One that exists gets none.
        """

    def position(self, name: str) -> int:
        """How far somebody has come whose work goes into the store (the command Advance); 0 for one that is new."""

    def held(self, entity: str | None = None) -> list[StoredMessage]:
        """The messages that are there now, of one entity or of all. They go on living while the caller reads them."""

    def find(self, entity: str, sequence: int) -> StoredMessage | None:
        """One message, if it is there."""

    def data_of(self, entries: Sequence[StoredMessage]) -> dict[StoredMessage, bytes]:
        """The encoded messages, but for those that are gone by now."""

    def copied(self) -> StoreCopy:
        """All that it holds, as it is now. The store waits meanwhile: for those that cannot be read from outside."""

    def health(self) -> StoreHealth: ...

    def check(self) -> list[str]:
        """Every invariant of the store that does not hold, in words; empty when all hold. It may read everything."""

    def close(self) -> None:
        """Write what is open and let go. Idempotent."""
