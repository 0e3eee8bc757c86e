"""`bus.dead_letter_queue()`: the dead letters of a bus, for programs with and without an event loop.

The names are those that the first users of this interface were promised. All work is in recovery.py; here is how to
wait for it. A filter is a DeadLetterFilter, a dictionary, or the same as keywords: see filters.py.
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
from unibus.errors import UsageError

Which: TypeAlias = DeadMessage | str
Filter: TypeAlias = DeadLetterFilter | Mapping[str, object] | None
Rules: TypeAlias = Iterable[RecoveryRule | Mapping[str, object]] | None
Headers: TypeAlias = Mapping[str, HeaderValue] | None


class Verbs:
    """What both faces share. `guard` surrounds each batch of a bulk verb, with its answer and its progress: for those
    who must not be disturbed in the middle of one."""

    def __init__(self, queues: Queues, max_recoveries: object) -> None:
        self._recovery = Recovery(queues, max_recoveries)
        self.guard: Guard = nullcontext

    def _query(self, filters: Mapping[str, object]) -> Steps[list[DeadMessage]]:
        given = dict(filters)
        limit, after = given.pop("limit", None), given.pop("after", None)
        order = order_of(given.pop("order_by", None), after)
        return self._recovery.listed(filter_of(given, {}), limit, after, order)

    def _to_all(
        self, chosen: DeadLetterFilter, action: RecoveryAction, bulk: Bulk, target: str = ""
    ) -> Steps[ProcessingResult]:
        if action is RecoveryAction.REDIRECT and not target:
            raise UsageError("redirect_all needs a target", "a queue, a topic or a subscription")
        return self._recovery.act_on_all(chosen, action, target, bulk)


class DeadLetterManager(Verbs):
    """For async programs. May be awaited itself, and need not."""

    def __await__(self) -> Generator[object, None, "DeadLetterManager"]:
        yield from ()
        return self

    # Looking

    async def list_messages(
        self, filter: Filter = None, *, limit: int | None = None, after: DeadMessage | None = None, **criteria: object
    ) -> list[DeadMessage]:
        """Those that the filter takes, the first to die first; the next page comes `after` the last letter of one."""
        return await walk_async(self._recovery.listed(filter_of(filter, criteria), limit, after))

    async def query_dlq(self, filters: Mapping[str, object]) -> list[DeadMessage]:
        """The same, with everything in one dictionary: the filter, `limit`, `after` and `order_by` (ordering.py)."""
        return await walk_async(self._query(filters))

    async def groups(self, filter: Filter = None, **criteria: object) -> list[DeadGroup]:
        """How many there are, by place and reason."""
        return await walk_async(self._recovery.groups(filter_of(filter, criteria)))

    async def peek(self, message: Which, queue: str | None = None) -> DeadMessage | None:
        """One letter, by its id; None when there is none, or when several have the id and no queue tells which."""
        return await walk_async(self._recovery.peek(message, queue))

    async def is_agent_available(self, name: str) -> bool:
        """Whether a queue, topic or subscription of that name is there to take a message."""
        return await walk_async(self._recovery.is_available(name))

    # One letter: the answer says whether it went, and if not, why

    async def retry_message(self, message: Which, queue: str | None = None, force: bool = False) -> RecoveryResult:
        """Back to where it died. One that was brought back too often is refused unless `force` is set."""
        bulk = Bulk(force=force)
        return await walk_async(self._recovery.act(message, queue, RecoveryAction.RETRY, "", bulk))

    async def redirect_message(
        self, message: Which, target: str, queue: str | None = None, keep_record: bool = False
    ) -> RecoveryResult:
        """To another queue, topic or subscription; with the record of its death if `keep_record` is set."""
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
        """The same message with another body, or with headers on top of its own: to where it died, or to `target`."""
        return await walk_async(self._recovery.edit(message, queue, body, headers, target))

    # Many: what is dead now, in batches. See sweep.py for what happens when it is stopped.

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
        """Each back to where it died. `rate` is letters per second, `progress` is called with (done, total)."""
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
        """Let rules decide about each, the first to die first: DEFAULT_RULES unless others are given.

        All there are, `batch_size` of them in one step of the store; `limit` bounds how many are looked at.
        `is_available` tells whether the place where a letter died can take it again; by default, whether it is there.
        """
        bulk = Bulk(dry_run, rate, batch_size, progress, guard=self.guard)
        work = self._recovery.process(rules_of(rules), filter_of(filter, {}), limit, is_available, bulk)
        return await walk_async(work)

    async def try_rules(
        self, rules: Rules = None, filter: Filter = None, is_available: Available | None = None
    ) -> list[int]:
        """How many letters each rule would decide about, and last how many none would. No effect."""
        return await walk_async(self._recovery.tried(rules_of(rules), filter_of(filter, {}), is_available))


class SyncDeadLetterManager(Verbs):
    """The same names for programs without an event loop: each call returns when it is done."""

    # Looking

    def list_messages(
        self, filter: Filter = None, *, limit: int | None = None, after: DeadMessage | None = None, **criteria: object
    ) -> list[DeadMessage]:
        """Those that the filter takes, the first to die first; the next page comes `after` the last letter of one."""
        return walk(self._recovery.listed(filter_of(filter, criteria), limit, after))

    def query_dlq(self, filters: Mapping[str, object]) -> list[DeadMessage]:
        """The same, with everything in one dictionary: the filter, `limit`, `after` and `order_by` (ordering.py)."""
        return walk(self._query(filters))

    def groups(self, filter: Filter = None, **criteria: object) -> list[DeadGroup]:
        """How many there are, by place and reason."""
        return walk(self._recovery.groups(filter_of(filter, criteria)))

    def peek(self, message: Which, queue: str | None = None) -> DeadMessage | None:
        """One letter, by its id; None when there is none, or when several have the id and no queue tells which."""
        return walk(self._recovery.peek(message, queue))

    def is_agent_available(self, name: str) -> bool:
        """Whether a queue, topic or subscription of that name is there to take a message."""
        return walk(self._recovery.is_available(name))

    # One letter: the answer says whether it went, and if not, why

    def retry_message(self, message: Which, queue: str | None = None, force: bool = False) -> RecoveryResult:
        """Back to where it died. One that was brought back too often is refused unless `force` is set."""
        bulk = Bulk(force=force)
        return walk(self._recovery.act(message, queue, RecoveryAction.RETRY, "", bulk))

    def redirect_message(
        self, message: Which, target: str, queue: str | None = None, keep_record: bool = False
    ) -> RecoveryResult:
        """To another queue, topic or subscription; with the record of its death if `keep_record` is set."""
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
        """The same message with another body, or with headers on top of its own: to where it died, or to `target`."""
        return walk(self._recovery.edit(message, queue, body, headers, target))

    # Many: what is dead now, in batches. See sweep.py for what happens when it is stopped.

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
        """Each back to where it died. `rate` is letters per second, `progress` is called with (done, total)."""
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
        """Let rules decide about each, the first to die first: DEFAULT_RULES unless others are given.

        All there are, `batch_size` of them in one step of the store; `limit` bounds how many are looked at.
        `is_available` tells whether the place where a letter died can take it again; by default, whether it is there.
        """
        bulk = Bulk(dry_run, rate, batch_size, progress, guard=self.guard)
        work = self._recovery.process(rules_of(rules), filter_of(filter, {}), limit, is_available, bulk)
        return walk(work)

    def try_rules(self, rules: Rules = None, filter: Filter = None, is_available: Available | None = None) -> list[int]:
        """How many letters each rule would decide about, and last how many none would. No effect."""
        return walk(self._recovery.tried(rules_of(rules), filter_of(filter, {}), is_available))
