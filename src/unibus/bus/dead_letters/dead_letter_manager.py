"""`bus.dead_letter_queue()`: operations on the dead-lettered messages of a bus, for async and for sync programs.

    DeadLetterManager ────┐ await                         filters.py   which messages
                          ├──▶ Recovery (recovery.py) ──▶ rules.py     what to do with each
    SyncDeadLetterManager ┘ block                         sweep.py     in batches of the store

Both classes have the same methods; they differ only in how they wait (steps.py). A filter is a DeadLetterFilter, a
dictionary, or the same as keywords: see filters.py.
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import nullcontext
from typing import TypeAlias

from unibus.bus.dead_letters.dead_message import DeadMessage
from unibus.bus.dead_letters.filters import DeadLetterFilter, filter_of
from unibus.bus.dead_letters.ordering import order_of
from unibus.bus.dead_letters.recovery import SAME, Available, Recovery
from unibus.bus.dead_letters.results import DeadGroup, ProcessingResult, RecoveryResult
from unibus.bus.dead_letters.rules import RecoveryAction, RecoveryRule, rules_of
from unibus.bus.dead_letters.steps import Steps, walk, walk_async
from unibus.bus.dead_letters.sweep import BATCH_SIZE, Bulk, Guard, Progress
from unibus.bus.queues.operations import Queues
from unibus.core.envelope.message_properties import HeaderValue
from unibus.display import described, without_secrets
from unibus.errors import UsageError

Which: TypeAlias = DeadMessage | str
Filter: TypeAlias = DeadLetterFilter | Mapping[str, object] | None
Rules: TypeAlias = Iterable[RecoveryRule | Mapping[str, object]] | None
Headers: TypeAlias = Mapping[str, HeaderValue] | None


class Verbs:
    """What both classes share. `guard` is a context manager around each batch of a bulk operation, with its commit and
    its progress call: a caller that handles signals defers them with it to the end of the batch."""

    def __init__(self, queues: Queues, max_recoveries: object) -> None:
        self._recovery = Recovery(queues, max_recoveries)
        self.guard: Guard = nullcontext

    def __repr__(self) -> str:
        return described(self, lambda: f"of {without_secrets(self._recovery.store_url)}")

    def _query(self, filters: Mapping[str, object]) -> Steps[list[DeadMessage]]:
        given = dict(filters)
        limit, after = given.pop("limit", None), given.pop("after", None)
        order = order_of(given.pop("order_by", None), after)
        return self._recovery.listed(filter_of(given, {}), limit, after, order)

    def _to_all(
        self, chosen: DeadLetterFilter, action: RecoveryAction, bulk: Bulk, target: str = ""
    ) -> Steps[ProcessingResult]:
        if action is RecoveryAction.REDIRECT and not target:
            raise UsageError("redirect_all needs a target", "pass target=, a queue, a topic or a subscription")
        return self._recovery.act_on_all(chosen, action, target, bulk)


class DeadLetterManager(Verbs):
    """For async programs. The object itself may be awaited, but need not be."""

    def __await__(self) -> Generator[object, None, "DeadLetterManager"]:
        yield from ()
        return self

    # Reading

    async def list_messages(
        self, filter: Filter = None, *, limit: int | None = None, after: DeadMessage | None = None, **criteria: object
    ) -> list[DeadMessage]:
        """The messages that match the filter, in the order in which they were dead-lettered. For the next page pass the
        last message of this one as `after`."""
        return await walk_async(self._recovery.listed(filter_of(filter, criteria), limit, after))

    async def query_dlq(self, filters: Mapping[str, object]) -> list[DeadMessage]:
        """As `list_messages`, with one dictionary for the filter, `limit`, `after` and `order_by` (ordering.py)."""
        return await walk_async(self._query(filters))

    async def groups(self, filter: Filter = None, **criteria: object) -> list[DeadGroup]:
        """The number of dead-lettered messages by entity and reason."""
        return await walk_async(self._recovery.groups(filter_of(filter, criteria)))

    async def peek(self, message: Which, queue: str | None = None) -> DeadMessage | None:
        """One message by its id. None if no dead-lettered message has the id, or if several do: then name the queue."""
        return await walk_async(self._recovery.peek(message, queue))

    async def is_agent_available(self, name: str) -> bool:
        """Whether a queue, topic or subscription of that name exists."""
        return await walk_async(self._recovery.is_available(name))

    # One message: the result says whether it succeeded, and if not, why

    async def retry_message(self, message: Which, queue: str | None = None, force: bool = False) -> RecoveryResult:
        """Send it again to its source. A message that reached the maximum of recoveries needs `force=True`."""
        bulk = Bulk(force=force)
        return await walk_async(self._recovery.act(message, queue, RecoveryAction.RETRY, "", bulk))

    async def redirect_message(
        self, message: Which, target: str, queue: str | None = None, keep_record: bool = False
    ) -> RecoveryResult:
        """Move it to another queue, topic or subscription; `keep_record=True` keeps the headers of the failure."""
        bulk = Bulk(keep_record=keep_record)
        return await walk_async(self._recovery.act(message, queue, RecoveryAction.REDIRECT, target, bulk))

    async def discard_message(self, message: Which, queue: str | None = None) -> RecoveryResult:
        return await walk_async(self._recovery.act(message, queue, RecoveryAction.DISCARD, "", Bulk()))

    async def edit_and_resend(
        self,
        message: Which,
        body: object = SAME,
        headers: Headers = None,
        target: str | None = None,
        queue: str | None = None,
    ) -> RecoveryResult:
        """Send the message with a new body or additional headers, to its source or to `target`."""
        return await walk_async(self._recovery.edit(message, queue, body, headers, target))

    # Many: what is dead-lettered now, in batches. sweep.py says what an interruption leaves.

    async def retry_all(
        self,
        filter: Filter = None,
        *,
        dry_run: bool = False,
        rate: float | None = None,
        batch_size: int = BATCH_SIZE,
        progress: Progress | None = None,
        force: bool = False,
        **criteria: object,
    ) -> ProcessingResult:
        """Send each again to its source. `rate` is messages per second, `progress` is called with (done, total)."""
        bulk = Bulk(dry_run, rate, batch_size, progress, force=force, guard=self.guard)
        return await walk_async(self._to_all(filter_of(filter, criteria), RecoveryAction.RETRY, bulk))

    async def redirect_all(
        self,
        filter: Filter = None,
        target: str = "",
        *,
        dry_run: bool = False,
        rate: float | None = None,
        batch_size: int = BATCH_SIZE,
        progress: Progress | None = None,
        **criteria: object,
    ) -> ProcessingResult:
        bulk = Bulk(dry_run, rate, batch_size, progress, guard=self.guard)
        return await walk_async(self._to_all(filter_of(filter, criteria), RecoveryAction.REDIRECT, bulk, target))

    async def discard_all(
        self,
        filter: Filter = None,
        *,
        dry_run: bool = False,
        rate: float | None = None,
        batch_size: int = BATCH_SIZE,
        progress: Progress | None = None,
        **criteria: object,
    ) -> ProcessingResult:
        bulk = Bulk(dry_run, rate, batch_size, progress, guard=self.guard)
        return await walk_async(self._to_all(filter_of(filter, criteria), RecoveryAction.DISCARD, bulk))

    async def process_dead_letters(
        self,
        batch_size: int = 100,
        rules: Rules = None,
        filter: Filter = None,
        *,
        dry_run: bool = False,
        rate: float | None = None,
        progress: Progress | None = None,
        limit: int | None = None,
        is_available: Available | None = None,
    ) -> ProcessingResult:
        """Apply rules to each message, in the order in which they were dead-lettered. Default: DEFAULT_RULES.

        `batch_size` messages are one batch of the store; `limit` bounds how many messages are processed.
        `is_available` says whether the source of a message can accept it again; by default, whether it exists.
        """
        bulk = Bulk(dry_run, rate, batch_size, progress, guard=self.guard)
        work = self._recovery.process(rules_of(rules), filter_of(filter, {}), limit, is_available, bulk)
        return await walk_async(work)

    async def try_rules(
        self, rules: Rules = None, filter: Filter = None, is_available: Available | None = None
    ) -> list[int]:
        """The number of messages that each rule would decide, and last the number that none would. Changes nothing."""
        return await walk_async(self._recovery.tried(rules_of(rules), filter_of(filter, {}), is_available))


class SyncDeadLetterManager(Verbs):
    """The same methods for programs without an event loop: each call returns when its work is done."""

    # Reading

    def list_messages(
        self, filter: Filter = None, *, limit: int | None = None, after: DeadMessage | None = None, **criteria: object
    ) -> list[DeadMessage]:
        """The messages that match the filter, in the order in which they were dead-lettered. For the next page pass the
        last message of this one as `after`."""
        return walk(self._recovery.listed(filter_of(filter, criteria), limit, after))

    def query_dlq(self, filters: Mapping[str, object]) -> list[DeadMessage]:
        """As `list_messages`, with one dictionary for the filter, `limit`, `after` and `order_by` (ordering.py)."""
        return walk(self._query(filters))

    def groups(self, filter: Filter = None, **criteria: object) -> list[DeadGroup]:
        """The number of dead-lettered messages by entity and reason."""
        return walk(self._recovery.groups(filter_of(filter, criteria)))

    def peek(self, message: Which, queue: str | None = None) -> DeadMessage | None:
        """One message by its id. None if no dead-lettered message has the id, or if several do: then name the queue."""
        return walk(self._recovery.peek(message, queue))

    def is_agent_available(self, name: str) -> bool:
        """Whether a queue, topic or subscription of that name exists."""
        return walk(self._recovery.is_available(name))

    # One message: the result says whether it succeeded, and if not, why

    def retry_message(self, message: Which, queue: str | None = None, force: bool = False) -> RecoveryResult:
        """Send it again to its source. A message that reached the maximum of recoveries needs `force=True`."""
        bulk = Bulk(force=force)
        return walk(self._recovery.act(message, queue, RecoveryAction.RETRY, "", bulk))

    def redirect_message(
        self, message: Which, target: str, queue: str | None = None, keep_record: bool = False
    ) -> RecoveryResult:
        """Move it to another queue, topic or subscription; `keep_record=True` keeps the headers of the failure."""
        bulk = Bulk(keep_record=keep_record)
        return walk(self._recovery.act(message, queue, RecoveryAction.REDIRECT, target, bulk))

    def discard_message(self, message: Which, queue: str | None = None) -> RecoveryResult:
        return walk(self._recovery.act(message, queue, RecoveryAction.DISCARD, "", Bulk()))

    def edit_and_resend(
        self,
        message: Which,
        body: object = SAME,
        headers: Headers = None,
        target: str | None = None,
        queue: str | None = None,
    ) -> RecoveryResult:
        """Send the message with a new body or additional headers, to its source or to `target`."""
        return walk(self._recovery.edit(message, queue, body, headers, target))

    # Many: what is dead-lettered now, in batches. sweep.py says what an interruption leaves.

    def retry_all(
        self,
        filter: Filter = None,
        *,
        dry_run: bool = False,
        rate: float | None = None,
        batch_size: int = BATCH_SIZE,
        progress: Progress | None = None,
        force: bool = False,
        **criteria: object,
    ) -> ProcessingResult:
        """Send each again to its source. `rate` is messages per second, `progress` is called with (done, total)."""
        bulk = Bulk(dry_run, rate, batch_size, progress, force=force, guard=self.guard)
        return walk(self._to_all(filter_of(filter, criteria), RecoveryAction.RETRY, bulk))

    def redirect_all(
        self,
        filter: Filter = None,
        target: str = "",
        *,
        dry_run: bool = False,
        rate: float | None = None,
        batch_size: int = BATCH_SIZE,
        progress: Progress | None = None,
        **criteria: object,
    ) -> ProcessingResult:
        bulk = Bulk(dry_run, rate, batch_size, progress, guard=self.guard)
        return walk(self._to_all(filter_of(filter, criteria), RecoveryAction.REDIRECT, bulk, target))

    def discard_all(
        self,
        filter: Filter = None,
        *,
        dry_run: bool = False,
        rate: float | None = None,
        batch_size: int = BATCH_SIZE,
        progress: Progress | None = None,
        **criteria: object,
    ) -> ProcessingResult:
        bulk = Bulk(dry_run, rate, batch_size, progress, guard=self.guard)
        return walk(self._to_all(filter_of(filter, criteria), RecoveryAction.DISCARD, bulk))

    def process_dead_letters(
        self,
        batch_size: int = 100,
        rules: Rules = None,
        filter: Filter = None,
        *,
        dry_run: bool = False,
        rate: float | None = None,
        progress: Progress | None = None,
        limit: int | None = None,
        is_available: Available | None = None,
    ) -> ProcessingResult:
        """Apply rules to each message, in the order in which they were dead-lettered. Default: DEFAULT_RULES.

        `batch_size` messages are one batch of the store; `limit` bounds how many messages are processed.
        `is_available` says whether the source of a message can accept it again; by default, whether it exists.
        """
        bulk = Bulk(dry_run, rate, batch_size, progress, guard=self.guard)
        work = self._recovery.process(rules_of(rules), filter_of(filter, {}), limit, is_available, bulk)
        return walk(work)

    def try_rules(self, rules: Rules = None, filter: Filter = None, is_available: Available | None = None) -> list[int]:
        """The number of messages that each rule would decide, and last the number that none would. Changes nothing."""
        return walk(self._recovery.tried(rules_of(rules), filter_of(filter, {}), is_available))
