"""The protocol between the bus and a store: a few methods, and no begin and commit.

    bus ── apply([commands]) ──▶ Store ──▶ Pending ──▶ result, once it is as durable as the call asked for
        ── claim(request)    ──▶
        ── watch(entity)     ──▶                       a call when there may be something to claim

There are two kinds of store. An *embedded* store runs the rules of core/lifecycle in this process, over a journal. A
*shared* store (many processes) runs them in its own engine. A transaction is a batch that the bus has collected:
`apply` takes it as a whole. Every changing method returns a Pending, so one store serves programs with and without an
event loop.

The contract of time, which holds for a store in this process and for one behind a network:

- A Pending has its value only when it is done. One that is decided earlier says so (`Pending.is_decided`); a caller
  that needs the value uses `on_decided`, `tap` or `recover`, and never `value` of a Pending that is not decided.
- A refusal is an error after which nothing has changed. It is raised at once, or it arrives with the answer.
- Calls of one caller (a task, or a thread outside of tasks) are decided in the order in which they were made. Calls of
  different callers are decided in any order, and answered in any order.
- Callbacks of a Pending run in the thread that brings the answers: they do not wait for another answer.
- A caller that is cancelled does not cancel its call. What the call has claimed or accepted is released with the
  answer, without counting a delivery.
- `watch`, `now_ns` and the lookups of the catalog that return no Pending answer without waiting.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import Command, Declare
from unibus.counting import counted
from unibus.display import described, without_secrets
from unibus.stores.seam.catalog import Catalog
from unibus.stores.seam.commit_placement import CommitPlacement
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.history import History
from unibus.stores.seam.info_of import EntityInfo as EntityInfo
from unibus.stores.seam.message_record import LIST_PAGE, MessageKey, MessageRecord
from unibus.stores.seam.moment import StoreCopy
from unibus.stores.seam.pending import Pending


class ClaimRequest(msgspec.Struct, frozen=True):
    """A request for up to `count` messages of an entity, now. Without `lock` they are removed on delivery.

    `session` is the id and the token of an accepted session. `sequences` asks for these deferred messages instead of
    the next ones. The message that reaches `bytes_max` ends a batch of next ones; several deferred ones that are larger
    together raise MessageTooLarge. 0 is no limit. `asks_processed` sets `Claimed.was_processed` of each next message:
    whether a consumer of the entity has committed the effect of its id (idempotent processing).

    `ends_with_process` is for handlers that run in the process that makes the claim: their locks end when the process
    has ended, for an embedded store at its next opening, and the messages are redelivered at once. `starts_max` of the
    messages are handled at once, the others wait in that process. A message that has one delivery left is claimed only
    among the first of them: else the end of the process would dead-letter it although no handler has seen it.
    """

    entity: str
    count: int = 1
    lock: bool = True
    consumer: str = ""
    session: tuple[str, bytes] | None = None
    sequences: tuple[int, ...] = ()
    bytes_max: int = 0
    asks_processed: bool = False
    ends_with_process: bool = False
    starts_max: int = 0


@dataclass(frozen=True)
class SessionLock:
    """An accepted session: its id, the token of its lock, and when the lock expires (wall time, ns)."""

    entity: str
    session_id: str
    token: bytes
    until_ns: int


@dataclass(frozen=True)
class StoreIdentity:
    """Which store this is: `store` is drawn when it is created and kept in its files, `incarnation` at each opening.

    A copy of the files has the same `store`. What a caller remembers about a store, such as the position of a sequence
    or an unknown outcome, is about this `store`; what is lost when it is opened again, about this `incarnation`.
    """

    store: str
    incarnation: str


@dataclass(frozen=True)
class StoreHealth:
    """Whether the store works: `problem` for people, numbers for machines.

    `stopped`: it accepts no call any more, until it is opened again. Without it a store that is not `ok` may work again
    by itself, as one whose connection is lost.
    """

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
    """Why it works with restrictions: the disk is full."""
    stopped: bool = False
    identity: StoreIdentity | None = None

    def __repr__(self) -> str:
        return described(self, self._describe)

    def _describe(self) -> str:
        state = "ok" if self.ok else f"failed ({self.problem})"
        limit = f", {self.warning}" if self.warning else ""
        return f"{without_secrets(self.url)} at {self.durability}, {state}{limit}, {counted(self.messages, 'message')}"


@runtime_checkable  # A bus takes an open store, or the URL of one.
class Store(Protocol):
    """A call that is invalid is refused, at once or with the answer; then nothing was changed.

    StoreFailed, at once or from the Pending, means that the outcome of this call is unknown, and no more: the next call
    may succeed. Whether the store has stopped is in its health (`StoreHealth.stopped`).
    """

    url: str
    durability: Durability
    commit_placement: CommitPlacement
    """Where commits wait for the disk. A server lets the writer thread make all of them."""

    @property
    def identity(self) -> StoreIdentity: ...

    @property
    def history(self) -> History: ...

    @property
    def catalog(self) -> Catalog: ...

    def now_ns(self) -> int:
        """The time by which locks and deadlines of this store are decided: wall time, which never goes back."""

    def apply(
        self, commands: Sequence[Command], durability: Durability | None = None, batch_id: str = "", first_ns: int = 0
    ) -> Pending[list[object]]:
        """Apply the whole batch or nothing. One result per command, see core/lifecycle/batch.py.

        A call whose answer was lost can be repeated (idempotent) under the same `batch_id`: the store remembers the id
        with the results, as durably as the batch itself, for ten minutes and up to a bound (limits.py). The same id has
        the same results, whatever the commands are; a refused batch is not remembered. Every copy carries the time of
        the first attempt, `first_ns`, as `now_ns` gave it before that; 0 is now, for a batch that is sent once. A copy
        whose first attempt is older than what the store remembers is refused with StoreFailed, and never applied.
        """

    def claim(self, request: ClaimRequest) -> Pending[list[Claimed]]:
        """Lock or remove the messages that are available now; possibly none."""

    def accept(self, entity: str, session_id: str | None, consumer: str) -> Pending[SessionLock | None]:
        """Lock the session with this id, or the next free one; None if there is none."""

    def watch(self, entity: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call `call` once, from any thread, when there may be something to claim or accept. Returns a stop function.

        Watch first and claim afterwards: then no message can arrive unnoticed in between. A call may find nothing.
        """

    def peek(
        self, entity: str, from_sequence: int, count: int, session_id: str | None = None, bytes_max: int = 0
    ) -> Pending[list[Claimed]]:
        """Messages in order of sequence, whatever their state, without an effect; of one session if it is given.

        Takes time for `count` messages, not for those before them. Does not show lock tokens of other receivers.
        The message that reaches `bytes_max` is the last; 0 is no limit.
        """

    def session_state(self, lock: SessionLock) -> Pending[bytes | None]: ...

    def entities(self) -> Pending[list[EntityInfo]]:
        """All entities except the namespace."""

    def subscribe_from(self, declare: Declare, after_sequence: int, since_ns: int) -> Pending[int]:
        """Create a subscription that starts in the past, with copies of its topic's messages that history still has.

        Copies those with a higher sequence that are not older than the instant, and returns how many. An existing
        subscription gets none.
        """

    def position(self, name: str) -> Pending[int]:
        """The position that the command Advance has stored under this name; 0 for a new one."""

    def list_messages(
        self, entity: str, from_sequence: int = 0, count: int = LIST_PAGE
    ) -> Pending[list[MessageRecord]]:
        """As peek, but without the data of the messages, and not counted as a use of the entity."""

    def read_bodies(self, keys: Sequence[MessageKey]) -> Pending[dict[MessageKey, bytes]]:
        """The encoded messages, without those that are removed by then."""

    def copied(self) -> Pending[StoreCopy]:
        """A consistent copy of everything. The store stops meanwhile; for a store that cannot be read from outside."""

    def health(self) -> StoreHealth: ...

    def check(self) -> list[str]:
        """A text for each broken invariant; empty if all hold. It may read the whole store."""

    def close(self) -> None:
        """Write what is pending and release the store. Idempotent."""
