"""Dead-lettered messages of a store that this process has opened: it runs bulk operations itself, in batches."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from unibus.cli.connection.management import Progress
from unibus.cli.terminal.signals import undisturbed
from unibus.errors import UsageError
from unibus.limits import DEAD_LETTER_RECOVERIES_MAX

if TYPE_CHECKING:
    from unibus.bus.dead_letters.dead_letter_manager import SyncDeadLetterManager
    from unibus.bus.dead_letters.dead_message import DeadMessage
    from unibus.bus.dead_letters.filters import DeadLetterFilter
    from unibus.bus.dead_letters.results import DeadGroup, ProcessingResult
    from unibus.bus.dead_letters.rules import RecoveryRule
    from unibus.bus.management.jobs.job_records import JobCounts, JobRequest
    from unibus.bus.queues.operations import Queues


class LocalPurge:
    """See `management.Purging`."""

    def __init__(self, queues: "Queues", entity: str, dry_run: bool) -> None:
        from unibus.bus.management.jobs.purging import Purge

        self._purge = Purge(queues, entity, dry_run)
        self.total = self._purge.total

    def run(self, progress: Progress) -> "JobCounts":
        return self._purge.run(progress, undisturbed).counts


class LocalDeadLetters:
    def __init__(self, queues: "Callable[[], Queues]") -> None:
        self._queues = queues

    def _manager(self, max_recoveries: object = DEAD_LETTER_RECOVERIES_MAX) -> "SyncDeadLetterManager":
        from unibus.bus.dead_letters.dead_letter_manager import SyncDeadLetterManager

        return SyncDeadLetterManager(self._queues(), max_recoveries)

    def groups(self, chosen: "DeadLetterFilter") -> "list[DeadGroup]":
        return self._manager().groups(chosen)

    def list(self, chosen: "DeadLetterFilter", limit: int | None) -> "list[DeadMessage]":
        return self._manager().list_messages(chosen, limit=limit)

    def try_rules(self, rules: "tuple[RecoveryRule, ...]", chosen: "DeadLetterFilter") -> Sequence[int]:
        return self._manager().try_rules(rules, chosen)

    def run(self, request: "JobRequest", progress: Progress, detach: bool) -> "ProcessingResult | int":
        if detach:
            raise UsageError("--detach needs a server, which runs the job after this command ends", "remove --detach")
        manager = self._manager(request.max_recoveries)
        manager.guard = undisturbed
        assert request.filter is not None
        chosen, dry_run, rate, size = request.filter.as_filter(), request.dry_run, request.rate, request.batch_size
        if request.kind == "retry":
            return manager.retry_all(
                chosen, dry_run=dry_run, rate=rate, batch_size=size, progress=progress, force=request.force
            )
        if request.kind == "redirect":
            return manager.redirect_all(
                chosen, request.target or "", dry_run=dry_run, rate=rate, batch_size=size, progress=progress
            )
        if request.kind == "discard":
            return manager.discard_all(chosen, dry_run=dry_run, rate=rate, batch_size=size, progress=progress)
        return manager.process_dead_letters(
            size, request.recovery_rules(), chosen, dry_run=dry_run, rate=rate, progress=progress
        )
