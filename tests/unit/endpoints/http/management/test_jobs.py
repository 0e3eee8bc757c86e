"""Jobs over HTTP: created, followed, paused, resumed and cancelled; each message is moved once."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.endpoints.http.management.bulk import QUEUE, Operators, operators
from unibus.bus.management.jobs import job_records, job_run


@pytest.fixture(params=["front-memory", "front-sqlite", "fastapi-memory"])
async def http(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Operators]:
    dispatcher, store = request.param.split("-")
    async with operators(dispatcher, "memory://" if store == "memory" else f"sqlite:///{folder}/bus.db") as found:
        yield found


@pytest.fixture
async def memory() -> AsyncIterator[Operators]:
    async with operators("front", "memory://") as found:
        yield found


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_run, "STEP_MAX", 2)


# What a job does


async def test_a_retry_brings_back_what_the_filter_takes(http: Operators) -> None:
    await http.dead_letter(3, "Poison")
    await http.dead_letter(2, "Timeout")
    made = await http.post("jobs", {"kind": "retry", "filter": {"reason": "poison"}}, 201)
    assert (made["id"], made["kind"], made["state"], made["total"], made["by"]) == (
        1,
        "retry",
        "running",
        3,
        "operators",
    )
    done = await http.rested(1)
    assert (done["state"], done["done"], done["total"], done["counts"]["retried"]) == ("done", 3, 3, 3)
    assert (done["reason"], done["hint"], done["errors"]) == ("", "", [])
    assert 0 < done["created_ns"] <= done["started_ns"] <= done["ended_ns"]
    assert await http.counts() == (3, 2)
    assert [job["id"] for job in (await http.get("jobs"))["jobs"]] == [1]
    assert await http.get("job?id=1") == done


async def test_redirect_and_discard(http: Operators) -> None:
    await http.bus.create_queue("review")
    ids = await http.dead_letter(4)
    done = await http.job(kind="redirect", filter={"ids": ids[:2]}, target="review")
    assert done["counts"]["redirected"] == 2
    assert await http.counts("review") == (2, 0)
    done = await http.job(kind="discard", filter={})
    assert (done["counts"]["discarded"], await http.counts()) == (2, (0, 0))


async def test_rules_decide_and_each_is_counted(http: Operators) -> None:
    await http.dead_letter(2, "Poison")
    await http.dead_letter(3, "Timeout")
    await http.dead_letter(1, "Odd")
    rules = json.dumps([{"action": "discard", "reason": "poison"}, {"action": "retry", "reason": "timeout"}])
    tried = await http.job(kind="rules", filter={}, rules=rules, dry_run=True)
    assert (tried["by_rule"], tried["state"], await http.counts()) == ([2, 3, 1], "done", (0, 6))
    done = await http.job(kind="rules", filter={}, rules=rules)
    counts = done["counts"]
    assert (counts["discarded"], counts["retried"], counts["manual_review"]) == (2, 3, 1)
    assert (done["by_rule"], done["done"], await http.counts()) == ([2, 3, 1], 6, (3, 1))


async def test_a_purge_removes_messages_of_one_entity_and_skips_the_locked(http: Operators) -> None:
    await http.dead_letter(2)
    await http.bus.send_many(QUEUE, range(5))
    await http.bus.send(QUEUE, "later", delay=100)
    await http.bus.receive_batch(QUEUE, 1, timeout=0)
    tried = await http.job(kind="purge", entity=QUEUE, dry_run=True)
    assert (tried["counts"]["purged"], tried["counts"]["skipped"], tried["total"]) == (5, 1, 6)
    done = await http.job(kind="purge", entity=QUEUE)
    assert (done["counts"]["purged"], done["counts"]["skipped"], done["done"]) == (5, 1, 6)
    info = await http.broker.entity(QUEUE)
    assert (info.active, info.locked, info.scheduled, info.dead) == (0, 1, 0, 2)
    done = await http.job(kind="purge", entity=f"{QUEUE}/$DeadLetterQueue")
    assert (done["counts"]["purged"], (await http.counts())[1]) == (2, 0)
    done = await http.job(kind="purge", entity=f"{QUEUE}/$DeadLetterQueue")
    assert (done["state"], done["total"]) == ("done", 0)


async def test_what_cannot_go_is_an_error_of_that_message_and_the_first_are_listed(
    http: Operators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unibus.bus.management.jobs.job_work.ERRORS_MAX", 2)
    ids = await http.dead_letter(3)
    await http.bus.create_topic("news")
    done = await http.job(kind="redirect", filter={}, target="news")
    assert (done["state"], done["counts"]["errors"], done["done"]) == ("done", 3, 3)
    assert [each["id"] for each in done["errors"]] == ids[:2]
    assert "has no subscription" in done["errors"][0]["error"]
    assert await http.counts() == (0, 3)


async def test_what_was_brought_back_too_often_is_left_for_a_person(http: Operators) -> None:
    await http.dead_letter(2)
    done = await http.job(kind="retry", filter={}, max_recoveries=0)
    assert (done["counts"]["manual_review"], done["done"]) == (2, 2)
    done = await http.job(kind="retry", filter={}, max_recoveries=0, force=True)
    assert done["counts"]["retried"] == 2


# What is refused


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"kind": "eat", "filter": {}}, "kind"),
        ({"kind": "retry"}, "filter"),
        ({"kind": "retry", "filter": {}, "target": "q"}, "target"),
        ({"kind": "redirect", "filter": {}}, "target"),
        ({"kind": "discard", "filter": {}, "force": True}, "force"),
        ({"kind": "discard", "filter": {"colour": "red"}}, "colour"),
        ({"kind": "discard", "filter": {"older_than": -1}}, "older_than"),
        ({"kind": "discard", "filter": {"ids": []}}, "ids"),
        ({"kind": "rules", "filter": {}, "rules": "no json"}, "rules"),
        ({"kind": "purge"}, "entity"),
        ({"kind": "purge", "entity": "q", "filter": {}}, "filter"),
        ({"kind": "retry", "filter": {}, "rate": 0}, "rate"),
        ({"kind": "retry", "filter": {}, "rate": 1e9}, "rate"),
        ({"kind": "retry", "filter": {}, "rate": 5e-324}, "rate"),
        ({"kind": "retry", "filter": {}, "batch_size": 0}, "batch_size"),
        ({"kind": "retry", "filter": {}, "max_recoveries": -1}, "max_recoveries"),
        ({"kind": "retry", "filter": {}, "speed": 1}, "speed"),
    ],
)
async def test_a_request_that_cannot_be_is_refused_by_the_name_of_its_field(
    memory: Operators, body: dict[str, object], word: str
) -> None:
    await memory.dead_letter(1)
    answer = await memory.ask("POST", "jobs", body)
    assert answer.status == 400
    assert word in answer.body.decode()
    assert (await memory.get("jobs"))["jobs"] == []
    assert await memory.counts() == (0, 1)


async def test_names_that_do_not_exist_are_not_found(memory: Operators) -> None:
    for body in (
        {"kind": "redirect", "filter": {}, "target": "missing"},
        {"kind": "purge", "entity": "missing"},
        {"kind": "purge", "entity": "missing/$DeadLetterQueue"},
    ):
        answer = await memory.ask("POST", "jobs", body)
        assert (answer.status, answer.code()) == (404, "entity_not_found")
    for method, path in (("GET", "job"), ("GET", "jobs/live"), ("POST", "jobs/pause"), ("POST", "jobs/cancel")):
        answer = await memory.ask(method, f"{path}?id=7")
        assert (answer.status, answer.code()) == (404, "job_not_found")
    assert (await memory.ask("GET", "job")).status == 400


async def test_a_topic_is_not_purged(memory: Operators) -> None:
    memory.bus.create_topic("news").wait()
    answer = await memory.ask("POST", "jobs", {"kind": "purge", "entity": "news"})
    assert (answer.status, "news/Subscriptions/NAME" in answer.body.decode()) == (400, True)
    assert (await memory.get("jobs"))["jobs"] == []


async def test_the_last_hundred_are_listed_and_more_unfinished_ones_are_refused(
    memory: Operators, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("unibus.bus.management.jobs.jobs.JOBS_MAX", "unibus.bus.management.jobs.job_records.JOBS_MAX"):
        monkeypatch.setattr(name, 2)
    for _ in range(3):
        await memory.job(kind="discard", filter={})
    assert [job["id"] for job in (await memory.get("jobs"))["jobs"]] == [3, 2]
    await memory.dead_letter(30)
    for _ in range(2):
        await memory.post("jobs", {"kind": "retry", "filter": {}, "rate": 1}, 201)
    answer = await memory.ask("POST", "jobs", {"kind": "retry", "filter": {}})
    assert (answer.status, answer.code()) == (403, "quota_exceeded")
    assert [job["id"] for job in (await memory.get("jobs"))["jobs"]] == [5, 4]


# Pause, resume, cancel


async def test_a_job_is_paused_between_two_batches_and_goes_on(http: Operators, small_steps: None) -> None:
    await http.dead_letter(9)
    await http.post("jobs", {"kind": "retry", "filter": {}, "rate": 1}, 201)
    await http.running(1)
    paused = await http.post("jobs/pause?id=1")
    assert (paused["state"], paused["done"], paused["ended_ns"]) == ("paused", 1, 0)
    assert "resume 1" in paused["hint"]
    assert await http.counts() == (1, 8)
    assert await http.post("jobs/pause?id=1") == paused
    await http.post("jobs/resume?id=1")
    done = await http.finished(1)
    assert (done["state"], done["done"], done["counts"]["retried"], done["counts"]["gone"]) == ("done", 9, 9, 0)
    assert await http.counts() == (9, 0)


async def test_a_message_that_dies_again_is_not_moved_again_by_a_job_that_is_resumed(
    http: Operators, small_steps: None
) -> None:
    await http.dead_letter(4)
    await http.post("jobs", {"kind": "retry", "filter": {}, "rate": 1}, 201)
    await http.running(1)
    await http.post("jobs/pause?id=1")
    (again,) = await http.bus.receive_batch(QUEUE, 1, timeout=0)
    await again.dead_letter("Broken", "once more")
    other = await http.dead_letter(1)
    await http.post("jobs/resume?id=1")
    done = await http.finished(1)
    assert (done["state"], done["counts"]["retried"], done["total"]) == ("done", 4, 4)
    left = {letter.id: letter.recovery_attempts for letter in await http.bus.dead_letter_queue().list_messages()}
    assert left == {again.id: 1, other[0]: 0}


async def test_what_others_took_while_it_was_paused_is_counted_as_gone(http: Operators, small_steps: None) -> None:
    ids = await http.dead_letter(4)
    await http.post("jobs", {"kind": "discard", "filter": {}, "rate": 1}, 201)
    await http.running(1)
    await http.post("jobs/pause?id=1")
    await http.bus.dead_letter_queue().retry_message(ids[3])
    await http.post("jobs/resume?id=1")
    done = await http.finished(1)
    assert (done["counts"]["discarded"], done["counts"]["gone"], done["done"]) == (3, 1, 4)


async def test_a_cancelled_job_stays_so(http: Operators, small_steps: None) -> None:
    await http.dead_letter(9)
    await http.post("jobs", {"kind": "retry", "filter": {}, "rate": 1}, 201)
    await http.running(1)
    cancelled = await http.post("jobs/cancel?id=1")
    assert (cancelled["state"], cancelled["done"], cancelled["hint"]) == ("cancelled", 1, "")
    assert await http.post("jobs/cancel?id=1") == cancelled
    for verb in ("pause", "resume"):
        answer = await http.ask("POST", f"jobs/{verb}?id=1")
        assert (answer.status, answer.code()) == (409, "job_ended")
    assert await http.counts() == (1, 8)


async def test_one_job_runs_at_a_time_and_no_message_is_moved_by_two(memory: Operators, small_steps: None) -> None:
    await memory.dead_letter(5)
    await memory.post("jobs", {"kind": "retry", "filter": {}, "rate": 1}, 201)
    await memory.running(1)
    second = await memory.post("jobs", {"kind": "discard", "filter": {}}, 201)
    third = await memory.post("jobs", {"kind": "discard", "filter": {}}, 201)
    assert (second["state"], third["state"]) == ("queued", "queued")
    assert (await memory.post("jobs/pause?id=2"))["state"] == "paused"
    assert (await memory.post("jobs/cancel?id=2"))["state"] == "cancelled"
    await memory.finished(1)
    done = await memory.rested(3)
    assert (done["state"], done["total"], done["counts"]["discarded"], done["counts"]["gone"]) == ("done", 4, 0, 4)
    assert await memory.counts() == (5, 0)


async def test_a_dry_run_does_not_wait_for_its_rate(memory: Operators) -> None:
    await memory.dead_letter(30)
    done = await memory.job(kind="discard", filter={}, dry_run=True, rate=0.001)
    assert (done["state"], done["counts"]["discarded"], await memory.counts()) == ("done", 30, (0, 30))


# Following one


async def test_a_live_answer_shows_progress_until_the_job_rests(memory: Operators, small_steps: None) -> None:
    await memory.dead_letter(2)
    await memory.post("jobs", {"kind": "retry", "filter": {}, "rate": 1}, 201)
    connection = memory.client.connect()
    live = asyncio.create_task(memory.client.run(connection, "GET", "/unibus/v1/jobs/live?id=1"))
    await memory.running(1)
    await memory.finished(1)
    await asyncio.wait_for(live, 10)
    answer = connection.answer()
    assert answer.headers["content-type"] == "text/event-stream"
    events = [json.loads(each.partition("data: ")[2]) for each in answer.body.decode().split("\n\n")[1:-1]]
    assert [each["state"] for each in events][-1] == "done"
    assert [each["done"] for each in events] == sorted({each["done"] for each in events})


def test_every_state_of_a_record_is_known() -> None:
    assert job_records.ENDED < job_records.AT_REST


async def test_the_audit_says_what_a_job_does_and_where(memory: Operators) -> None:
    await memory.dead_letter(1)
    await memory.job(kind="redirect", filter={"queue": QUEUE}, target=QUEUE, dry_run=True)
    await memory.job(kind="purge", entity=QUEUE)
    assert (await memory.ask("POST", "jobs/cancel?id=9")).status == 404
    changes = [each for each in memory.observer.changes if each[0] in ("create_job", "cancel_job")]
    assert changes == [
        ("create_job", QUEUE, f"job 1: redirect to {QUEUE} (dry run)"),
        ("create_job", QUEUE, "job 2: purge"),
        ("cancel_job", "", "job 9"),
    ]
