"""What commands do with a bus: one interface for a store that this process opens and for a server.

    command ──▶ managed(--url) ──▶ Management ──┬── LocalManagement (local): the store, opened by this process
                                                └── RemoteManagement (remote): a server, through the HTTP client

Both return the same records and raise the same errors, and the views work on these records only. So a command has the
same output in both cases. A command opens one `Management`; `close` closes everything that it opened.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from unibus.bus.dead_letters.dead_message import DeadMessage
    from unibus.bus.dead_letters.filters import DeadLetterFilter
    from unibus.bus.dead_letters.results import DeadGroup, ProcessingResult
    from unibus.bus.dead_letters.rules import RecoveryRule
    from unibus.bus.history.export_lines import Contents
    from unibus.bus.history.trace import MessageTrace
    from unibus.bus.management.jobs.job_records import JobCounts, JobRequest
    from unibus.bus.management.settings.access import AccessRule, AddRequest, RotateRequest
    from unibus.bus.management.settings.declaring import DeclaredPlan
    from unibus.bus.outbox.relay_route import Relayed
    from unibus.cli.connection.entity_rows import TopRow
    from unibus.core.access.rules import AuthorizationRule
    from unibus.core.envelope.message import Message
    from unibus.core.lifecycle.commands import SendResult
    from unibus.core.lifecycle.events import Event
    from unibus.stores.query.result import QueryResult
    from unibus.stores.seam.store import EntityInfo

Progress = Callable[[int, int], None]
Relay = Callable[[bool, bool], "Awaitable[Relayed]"]
"""Called with `again` and `adopt`, as `MessageBus.relay_outbox`."""

BATCH: Final = 500
"""Messages in one commit of the store, and in one request to a server. After a power cut as many may be redelivered."""


class Management(Protocol):
    """What commands need of a bus. Every call may raise the errors of `unibus.errors`."""

    def close(self) -> None: ...

    def entities(self) -> "list[EntityInfo]":
        """All entities, with the dead-letter queues."""

    def send(self, entity: str, bodies: Sequence[object], fields: Mapping[str, object]) -> "list[SendResult]":
        """Sends all of them or none. Creates a missing queue. `fields` are those of `MessageBus.send`."""

    def peek(self, entity: str, from_sequence: int, count: int) -> "Iterator[Message]":
        """Reads in pages. `count` 0: all messages."""

    def receiver(self) -> "AbstractAsyncContextManager[Receiver]": ...

    def query(self, asked: "Asked") -> "QueryResult": ...

    def trace(self, message_id: str) -> "MessageTrace":
        """Raises MessageNotFound if history has no event of it."""

    def declare(self, file: str, dry_run: bool) -> "DeclaredPlan": ...

    def access(self) -> "AccessRules": ...

    def relaying(self, file: str) -> "AbstractAsyncContextManager[Relay]":
        """A function that relays the outbox of that file once for each call."""

    def watch(self, once: bool) -> "Watching": ...

    def tail(self, wanted: "WantedEvents") -> "Tail": ...

    def replay(self, channel: str, after: int, since_ns: int) -> "Iterator[Message]": ...

    def resending(self, channel: str, target: str, after: int, since_ns: int, count: int) -> "Resending": ...

    def export(self, put: Callable[[bytes], object], progress: Progress, names: Sequence[str]) -> "Exported": ...

    def importing(self, contents: "Contents") -> "ImportRun": ...

    def dead_letters(self) -> "DeadLetters": ...

    def purge(self, entity: str, dry_run: bool) -> "Purging":
        """Raises EntityNotFound if there is no such entity. Removes nothing before `Purging.run`."""


class Asked(NamedTuple):
    """A query in SQL, with its parameters and limits."""

    sql: str
    parameters: Sequence[str]
    rows: int
    time_limit_s: float
    memory_mb: float


class AccessRules(Protocol):
    """Authorization rules. They come without keys, except new keys that the caller asked to see."""

    def list(self, entity: str) -> "list[AccessRule]":
        """The rules of one entity; if `entity` is empty, those of the namespace and of all entities."""

    def add(self, entity: str, request: "AddRequest") -> "AccessRule": ...

    def rotate(self, entity: str, request: "RotateRequest") -> "AccessRule": ...

    def remove(self, entity: str, name: str) -> "AccessRule": ...

    def with_keys(self, entity: str, name: str) -> "AuthorizationRule":
        """A rule of the entity, else of the namespace. A server never returns its keys: raises StoreBusy."""


# Receiving


class ShownMessage(Protocol):
    @property
    def entity(self) -> str: ...

    @property
    def message(self) -> "Message": ...

    @property
    def enqueued_at(self) -> datetime: ...


class ReceiverSession(Protocol):
    @property
    def lock_s(self) -> float:
        """How long its lock lasts without a renewal."""

    async def receive_batch(self, count: int, wait_s: float | None, lock: bool) -> Sequence[ShownMessage]: ...

    def renew(self) -> None:
        """Renews the lock. Can be called from any thread."""


class Receiver(Protocol):
    """Releases the messages it still locks when it ends, for any reason. `wait_s` None: wait without limit."""

    async def receive_batch(
        self, entity: str, count: int, wait_s: float | None, lock: bool
    ) -> Sequence[ShownMessage]: ...

    def session(
        self, entity: str, session_id: str | None, wait_s: float | None
    ) -> AbstractAsyncContextManager[ReceiverSession]: ...

    def hold(self, messages: Sequence[ShownMessage]) -> AbstractAsyncContextManager[None]:
        """Renews their locks inside the block. Releases what is not completed at its end, without a delivery count."""

    async def complete(self, messages: Sequence[ShownMessage]) -> None:
        """Completes all of them, or raises LockLost and completes none."""


# History


class WantedEvents(NamedTuple):
    """Selects events: by a channel or a pattern, by kinds, and by FIELD=VALUE texts that must all match."""

    channel: str
    kinds: tuple[str, ...]
    where: tuple[str, ...]


class Tail(Protocol):
    """A position in history, and the events after it."""

    def last(self, count: int) -> "list[Event]":
        """The newest events. Moves the position to the end of history."""

    def begin(self, after: int, since_us: int) -> None:
        """Moves the position after that sequence number, and skips events before that instant."""

    def page(self) -> "tuple[list[Event], bool]":
        """The next events, and whether more may exist already. Moves the position after them."""

    def follow(self) -> None:
        """From now on `page` returns the events that arrived in the background, instead of requesting a page."""


class Watching(Protocol):
    def look(self) -> "list[TopRow]":
        """All entities except dead-letter queues, with the rates since the look before."""


class Resending(Protocol):
    """Sends messages of history again. `total` is their number; `sent` and `duplicates` count up."""

    total: int
    sent: int
    duplicates: int

    def send_next(self) -> bool:
        """Sends the next batch, all or nothing. Returns False if there is no more."""


class Exported(Protocol):
    entities: int
    messages: int
    sessions: int


class ImportRun(Protocol):
    """The import of a file that was checked. `before` is the number of messages that earlier runs imported."""

    total: int
    before: int
    kept_states: list[tuple[str, str]]

    @property
    def done(self) -> int: ...

    @property
    def is_complete(self) -> bool: ...

    def run(self, file: BinaryIO, progress: Progress) -> None: ...


# Dead-lettered messages


class DeadLetters(Protocol):
    def groups(self, chosen: "DeadLetterFilter") -> "list[DeadGroup]": ...

    def list(self, chosen: "DeadLetterFilter", limit: int | None) -> "list[DeadMessage]":
        """The oldest dead-lettered message first."""

    def try_rules(self, rules: "tuple[RecoveryRule, ...]", chosen: "DeadLetterFilter") -> "Sequence[int]":
        """How many messages each rule would match, and as the last item how many no rule would match."""

    def run(self, request: "JobRequest", progress: Progress, detach: bool) -> "ProcessingResult | int":
        """Runs the job in batches to the end, and returns its counts. KeyboardInterrupt stops it between two batches.
        With `detach` it returns the number of the job, which a server runs after this command has ended."""


class Purging(Protocol):
    """A purge of `total` messages."""

    total: int

    def run(self, progress: Progress) -> "JobCounts":
        """Purges in batches to the end. KeyboardInterrupt stops it between two batches."""
