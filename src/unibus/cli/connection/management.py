"""What commands do with a bus, whether they open its store or reach it through a server: one interface, two ways.

    command ──▶ managed(--url) ──▶ Management ──┬── LocalManagement (local): the store, opened by this process
                                                └── RemoteManagement (remote): a server, by the client of HTTP

Both give the same records and raise the same errors, and the views are above them, so the output of a command cannot
differ. A command opens one `Management`, and closing it closes what it has opened.
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
"""Messages in one step of the store, and in one request of a server. As many may be shown again after a power cut."""


class Management(Protocol):
    """What a command needs of a bus. A call raises the errors of `unibus.errors`."""

    def close(self) -> None: ...

    def entities(self) -> "list[EntityInfo]":
        """All there are, dead-letter queues too."""

    def send(self, entity: str, bodies: Sequence[object], fields: Mapping[str, object]) -> "list[SendResult]":
        """All of them or none. A queue that is missing is created. `fields` are those of `MessageBus.send`."""

    def peek(self, entity: str, from_sequence: int, count: int) -> "Iterator[Message]":
        """In pages. `count` 0: all there are."""

    def receiver(self) -> "AbstractAsyncContextManager[Receiver]": ...

    def query(self, asked: "Asked") -> "QueryResult": ...

    def trace(self, message_id: str) -> "MessageTrace":
        """MessageNotFound if history has nothing of it."""

    def declare(self, file: str, dry_run: bool) -> "DeclaredPlan": ...

    def access(self) -> "AccessRules": ...

    def relaying(self, file: str) -> "AbstractAsyncContextManager[Relay]":
        """What relays the outbox of that file, each time that it is called."""

    def watch(self, once: bool) -> "Watching": ...

    def tail(self, wanted: "WantedEvents") -> "Tail": ...

    def replay(self, channel: str, after: int, since_ns: int) -> "Iterator[Message]": ...

    def resending(self, channel: str, target: str, after: int, since_ns: int, count: int) -> "Resending": ...

    def export(self, put: Callable[[bytes], object], progress: Progress, names: Sequence[str]) -> "Exported": ...

    def importing(self, contents: "Contents") -> "ImportRun": ...

    def dead_letters(self) -> "DeadLetters": ...

    def purge(self, entity: str, dry_run: bool) -> "Purging":
        """EntityNotFound if there is none. Nothing is removed before it runs."""


class Asked(NamedTuple):
    """A query in SQL, with its parameters and limits."""

    sql: str
    parameters: Sequence[str]
    rows: int
    time_limit_s: float
    memory_mb: float


class AccessRules(Protocol):
    """Authorization rules, without their keys but for those that a change makes and is asked to show."""

    def list(self, entity: str) -> "list[AccessRule]":
        """Those of one entity; of the namespace and of all entities where it is empty."""

    def add(self, entity: str, request: "AddRequest") -> "AccessRule": ...

    def rotate(self, entity: str, request: "RotateRequest") -> "AccessRule": ...

    def remove(self, entity: str, name: str) -> "AccessRule": ...

    def with_keys(self, entity: str, name: str) -> "AuthorizationRule":
        """A rule of the entity, else of the namespace. A server does not give its keys away: StoreBusy."""


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
        """How long its lock lasts without being renewed."""

    async def receive_batch(self, count: int, wait_s: float | None, lock: bool) -> Sequence[ShownMessage]: ...

    def renew(self) -> None:
        """From any thread."""


class Receiver(Protocol):
    """Whatever ends it, what it holds is released. `wait_s` None: as long as it takes."""

    async def receive_batch(
        self, entity: str, count: int, wait_s: float | None, lock: bool
    ) -> Sequence[ShownMessage]: ...

    def session(
        self, entity: str, session_id: str | None, wait_s: float | None
    ) -> AbstractAsyncContextManager[ReceiverSession]: ...

    def hold(self, messages: Sequence[ShownMessage]) -> AbstractAsyncContextManager[None]:
        """Their locks are renewed inside of the block; what is not completed at its end is released, uncounted."""

    async def complete(self, messages: Sequence[ShownMessage]) -> None:
        """All of them, or LockLost and none."""


# History


class WantedEvents(NamedTuple):
    """Which events are meant: a channel or a pattern, kinds, and texts FIELD=VALUE that all have to hold."""

    channel: str
    kinds: tuple[str, ...]
    where: tuple[str, ...]


class Tail(Protocol):
    """Events of history from a place on."""

    def last(self, count: int) -> "list[Event]":
        """The newest ones; the place is then the end of history."""

    def begin(self, after: int, since_us: int) -> None:
        """After that number of history, and not before that instant."""

    def page(self) -> "tuple[list[Event], bool]":
        """What is after the place, which moves on, and whether there may be more at once."""

    def follow(self) -> None:
        """From now on `page` gives what has come meanwhile, and does not ask for it."""


class Watching(Protocol):
    def look(self) -> "list[TopRow]":
        """All entities but dead-letter queues, with rates since the look before."""


class Resending(Protocol):
    """Messages of history to be sent again. `total` is how many; `sent` and `duplicates` grow."""

    total: int
    sent: int
    duplicates: int

    def send_next(self) -> bool:
        """The next batch, whole or not at all; False where there is none."""


class Exported(Protocol):
    entities: int
    messages: int
    sessions: int


class ImportRun(Protocol):
    """One import of a file that was checked. `before` is what earlier runs had done."""

    total: int
    before: int
    kept_states: list[tuple[str, str]]

    @property
    def done(self) -> int: ...

    @property
    def is_complete(self) -> bool: ...

    def run(self, file: BinaryIO, progress: Progress) -> None: ...


# Dead letters


class DeadLetters(Protocol):
    def groups(self, chosen: "DeadLetterFilter") -> "list[DeadGroup]": ...

    def list(self, chosen: "DeadLetterFilter", limit: int | None) -> "list[DeadMessage]":
        """The first to die first."""

    def try_rules(self, rules: "tuple[RecoveryRule, ...]", chosen: "DeadLetterFilter") -> "Sequence[int]":
        """How many each rule would decide about, and last how many none would."""

    def run(self, request: "JobRequest", progress: Progress, detach: bool) -> "ProcessingResult | int":
        """In batches, to the end: what became of them. KeyboardInterrupt is heard between two batches. With `detach`
        the number of the job, which goes on without this command."""


class Purging(Protocol):
    """`total` messages to be removed."""

    total: int

    def run(self, progress: Progress) -> "JobCounts":
        """In batches, to the end. KeyboardInterrupt is heard between two batches."""
