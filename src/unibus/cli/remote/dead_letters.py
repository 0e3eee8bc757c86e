"""Dead-lettered messages of a server: listed in pages, and changed by a job of the server, which this command watches.

Ctrl-C cancels the job between two batches and reports its progress. With `detach` the command ends and the job runs on.
"""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from unibus.bus.dead_letters.dead_message import DeadMessage
from unibus.bus.dead_letters.purge import check_purgeable
from unibus.bus.dead_letters.record import owner_of
from unibus.bus.dead_letters.results import DeadGroup, ProcessingResult
from unibus.bus.management.jobs.dead_letters import DeadGroups, DeadLetterPage, DeadLetterRecord, FilterRecord
from unibus.bus.management.jobs.job_records import AT_REST, JobCounts, JobRecord, JobRequest
from unibus.cli.connection.management import Progress
from unibus.client.answers import record_of
from unibus.client.client import Client
from unibus.client.events import EventStream
from unibus.core.codec.codec import encode
from unibus.core.flow.deadletter import is_sub_queue
from unibus.errors import BusError, EntityNotFound, ServerError

if TYPE_CHECKING:
    from unibus.bus.dead_letters.filters import DeadLetterFilter
    from unibus.bus.dead_letters.rules import RecoveryRule

PAGE: Final = 500


class RemoteDeadLetters:
    def __init__(self, client: Client) -> None:
        self._client = client

    def groups(self, chosen: "DeadLetterFilter") -> list[DeadGroup]:
        found = self._client.get("dead-letters/groups", DeadGroups, _query(chosen))
        return [DeadGroup(each.entity, each.reason, each.count, each.oldest_ns) for each in found.groups]

    def list(self, chosen: "DeadLetterFilter", limit: int | None) -> list[DeadMessage]:
        # Only `dlq show` selects by id and shows bodies; a list needs none.
        bodies = "1" if chosen.ids is not None else None
        found: list[DeadMessage] = []
        after: str | None = None
        while limit is None or len(found) < limit:
            top = PAGE if limit is None else min(PAGE, limit - len(found))
            query = {**_query(chosen), "top": top, "after": after, "bodies": bodies}
            page = self._client.get("dead-letters", DeadLetterPage, query)
            found += [_dead_message(each) for each in page.items]
            if page.next is None:
                break
            after = page.next
        return found

    def try_rules(self, rules: "tuple[RecoveryRule, ...]", chosen: "DeadLetterFilter") -> Sequence[int]:
        from unibus.bus.dead_letters.rules import RecoveryRule

        request = JobRequest("rules", FilterRecord.of(chosen), rules=RecoveryRule.dump(rules), dry_run=True)
        counts = self.ended(self.created(request), lambda done, total: None).by_rule
        return counts or [0] * (len(rules) + 1)

    def run(self, request: JobRequest, progress: Progress, detach: bool) -> ProcessingResult | int:
        job = self.created(request)
        if detach:
            return job.id
        return _result(self.ended(job, progress))

    def created(self, request: JobRequest) -> JobRecord:
        return self._client.post("jobs", JobRecord, request)

    def ended(self, job: JobRecord, progress: Progress) -> JobRecord:
        """The record of the job when it has ended. Ctrl-C cancels the job, and is raised after the server confirmed."""
        query = {"id": job.id}
        try:
            for event in EventStream(self._client.twin(), "jobs/live", query):
                job = record_of(event.data, JobRecord)
                progress(job.done, job.total)
                if job.state in AT_REST:
                    break
        except KeyboardInterrupt:
            with contextlib.suppress(BusError):  # The progress is reported in either case.
                job = self._client.post("jobs/cancel", JobRecord, None, query, is_safe=True)
                progress(job.done, job.total)
            raise
        if job.state != "done":
            raise ServerError(
                f"job {job.id} is not complete: {job.state} after {job.done:,} of {job.total:,} messages, "
                f"{job.reason or 'by an operator'}",
                job.hint or "run the same command again to continue",
            )
        return job


class RemotePurge:
    """See `management.Purging`. The server purges the messages that exist when it creates the job."""

    def __init__(self, client: Client, entity: str, dry_run: bool) -> None:
        from unibus.cli.remote.entities import all_entities

        infos = {info.name.casefold(): info for info in all_entities(client)}
        found = infos.get(entity.casefold())
        # A dead-letter queue is created with its first message: until then it is empty.
        if found is None and not (is_sub_queue(entity) and owner_of(entity).casefold() in infos):
            raise EntityNotFound(f"there is no entity {entity!r:.80}", "`unibus entities` lists all of them")
        check_purgeable(entity, "" if found is None else found.kind)
        self.total = 0 if found is None else found.active + found.locked + found.scheduled + found.deferred
        self._jobs = RemoteDeadLetters(client)
        self._request = JobRequest("purge", entity=entity if found is None else found.name, dry_run=dry_run)

    def run(self, progress: Progress) -> JobCounts:
        return self._jobs.ended(self._jobs.created(self._request), progress).counts


def _query(chosen: "DeadLetterFilter") -> dict[str, object]:
    given = msgspec.structs.asdict(FilterRecord.of(chosen))
    given["id"] = given.pop("ids")
    return given


def _dead_message(record: DeadLetterRecord) -> DeadMessage:
    return DeadMessage(
        id=record.id,
        entity=record.entity,
        sequence=record.sequence,
        source=record.source,
        failure_reason=record.reason,
        description=record.description,
        error_type=record.error_type,
        last_error=record.last_error,
        failure_ns=record.died_ns,
        attempts=record.attempts,
        recovery_attempts=record.recoveries,
        consumer=record.consumer,
        traceback=record.traceback,
        state=record.state,
        session_id=record.session_id,
        size=record.size,
        overlay={},
        data=b"" if bytes(record.message) == b"null" else encode(record.original()),
    )


def _result(job: JobRecord) -> ProcessingResult:
    counts = job.counts
    errors = [(each.id, each.error) for each in job.errors]
    # A record has the text of the first errors only, but counts all of them.
    errors += [("", "see the server's log")] * (counts.errors - len(errors))
    return ProcessingResult(
        counts.retried,
        counts.redirected,
        counts.discarded,
        counts.manual_review,
        counts.skipped,
        errors,
        job.request.dry_run,
    )
