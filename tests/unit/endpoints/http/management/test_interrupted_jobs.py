"""Jobs that a stop, a crash or a failure of the store has interrupted: listed, resumed, and no message moved twice."""

import asyncio
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bus.probes import GUARD_S
from tests.unit.endpoints.http.management.bulk import QUEUE, Operators, operators
from unibus import MessageBus
from unibus.bus.api.broker import Broker
from unibus.bus.management.jobs import job_run
from unibus.bus.management.jobs.dead_letters import FilterRecord
from unibus.bus.management.jobs.job_file import JobFile, path_of
from unibus.bus.management.jobs.job_records import Job, JobRecord, JobRequest
from unibus.bus.management.jobs.jobs import Jobs
from unibus.errors import StoreUnavailable
from unibus.stores.opening import open_store
from unibus.testing import VirtualClock
from unibus.testing.misbehaving_store import MisbehavingStore


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_run, "STEP_MAX", 2)


@pytest.fixture(params=["sqlite", "jsonfile"])
def url(request: pytest.FixtureRequest, folder: Path) -> str:
    return f"{request.param}:///{folder}/bus.db"


@pytest.fixture
async def http(url: str) -> AsyncIterator[Operators]:
    async with operators("front", url) as found:
        yield found


async def begun(http: Operators, count: int = 5) -> list[str]:
    """A job that has moved one of so many messages, and waits for its rate."""
    ids = await http.dead_letter(count)
    await http.post("jobs", {"kind": "retry", "filter": {}, "rate": 1}, 201)
    await http.running(1)
    return ids


async def again(http: Operators, url: str) -> MessageBus:
    """The server that is started after this one."""
    await http.service.jobs.stop()
    await http.bus.close()
    bus = MessageBus(url, clock=http.clock)
    await bus.__aenter__()
    http.use(bus)
    return bus


def listed(url: str) -> Any:
    return json.loads(Path(path_of(url)).read_bytes())


def write(url: str, content: Any) -> None:
    """In place of the list: JSON, or bytes as they are; a folder for None."""
    path = Path(path_of(url))
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def set_aside(folder: Path) -> bytes | None:
    (found,) = folder.glob("bus.db.jobs.json.damaged-*")
    return None if found.is_dir() else found.read_bytes()


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_the_list_is_in_a_private_file_beside_the_store(http: Operators, url: str, folder: Path) -> None:
    await begun(http)
    path = folder / "bus.db.jobs.json"
    assert path_of(url) == str(path)
    assert os.name != "posix" or mode_of(path) == 0o600
    (job,) = listed(url)["jobs"]
    assert (job["record"]["state"], job["limits"]) == ("running", {f"{QUEUE}/$DeadLetterQueue": 5})
    await http.finished(1)
    await http.service.jobs.stop()
    (job,) = listed(url)["jobs"]
    assert (job["record"]["state"], job["limits"]) == ("done", {})
    assert not [name for name in os.listdir(folder) if name.endswith(".new")]
    with pytest.raises(StoreUnavailable, match="part of another store"):
        MessageBus(str(path))


async def test_a_job_stops_with_the_server_and_is_resumed_by_an_operator(http: Operators, url: str) -> None:
    ids = await begun(http)
    bus = await again(http, url)
    stopped = await http.get("job?id=1")
    assert (stopped["state"], stopped["reason"], stopped["done"]) == ("interrupted", "the server stopped", 1)
    assert "`unibus dlq jobs resume 1`" in stopped["hint"]
    assert "does not resume jobs itself" in stopped["hint"]
    assert await http.counts() == (1, 4)
    assert (await http.post("jobs/resume?id=1"))["state"] == "running"
    done = await http.finished(1)
    assert (done["state"], done["counts"]["retried"], done["counts"]["gone"]) == ("done", 5, 0)
    assert sorted(each.id for each in await bus.peek(QUEUE, 10)) == sorted(ids)
    await http.job(kind="discard", filter={})
    assert [job["id"] for job in (await http.get("jobs"))["jobs"]] == [2, 1]
    await bus.close()


async def test_a_job_that_was_killed_is_interrupted_with_the_progress_that_is_known(http: Operators, url: str) -> None:
    await begun(http, 6)
    bus = await again(http, url)
    content = listed(url)
    record = content["jobs"][0]["record"]
    record |= {"state": "running", "done": 0, "reason": "", "hint": ""}
    record["counts"] |= {"retried": 0, "skipped": 3}  # As it was written before the last second.
    write(url, content)
    http.use(bus)
    killed = await http.get("job?id=1")
    assert (killed["state"], killed["reason"]) == ("interrupted", "the server ended while it ran")
    (back,) = await bus.receive_batch(QUEUE, 1, timeout=0)
    await back.dead_letter("Broken", "again")
    await http.post("jobs/resume?id=1")
    done = await http.finished(1)
    counts = done["counts"]
    assert (done["state"], counts["retried"], counts["gone"], counts["skipped"], done["done"]) == ("done", 5, 1, 0, 6)
    assert await http.counts() == (5, 1)
    (left,) = await bus.dead_letter_queue().list_messages()
    assert (left.id, left.recovery_attempts) == (back.id, 1)
    await bus.close()


async def test_a_queued_job_is_interrupted_before_it_began(http: Operators, url: str) -> None:
    await begun(http)
    await http.post("jobs", {"kind": "purge", "entity": QUEUE}, 201)
    bus = await again(http, url)
    waiting = await http.get("job?id=2")
    assert (waiting["state"], waiting["reason"]) == ("interrupted", "the server ended before it began")
    await bus.send(QUEUE, "later")
    await http.post("jobs/resume?id=2")
    done = await http.rested(2)
    assert (done["counts"]["purged"], await http.counts()) == (1, (1, 4))
    await bus.close()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff\xfe", b"[" * 2_000, b'{"unibus_jobs":2,"last_id":0,"jobs":[]}', None]
)
async def test_a_file_that_is_no_list_is_set_aside(
    http: Operators, url: str, folder: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    write(url, content)
    with caplog.at_level(logging.WARNING, "unibus"):
        assert (await http.get("jobs"))["jobs"] == []
    assert f"{path_of(url)} is not a list of jobs" in caplog.text
    assert set_aside(folder) == content
    await http.job(kind="discard", filter={})
    assert listed(url)["last_id"] == 1


async def test_a_list_that_cannot_be_written_does_not_stop_the_work(
    http: Operators, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    await http.dead_letter(5)
    monkeypatch.setattr("unibus.bus.management.jobs.job_file.replace", full)
    with caplog.at_level(logging.WARNING, "unibus"):
        done = await http.job(kind="discard", filter={})
    assert (done["state"], done["counts"]["discarded"]) == ("done", 5)
    assert caplog.text.count("cannot be written: [Errno 28]") == 1  # Once, not with every batch.


async def test_progress_is_written_at_most_once_a_second(http: Operators, monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[tuple[str, int]] = []
    now_s = [0.0]
    monkeypatch.setattr(
        JobFile, "save", lambda self, last, jobs: states.append((jobs[0].record.state, jobs[0].record.done))
    )
    http.service.jobs = Jobs(http.service, lambda: now_s[0])
    await http.dead_letter(10)
    await http.job(kind="discard", filter={})
    assert states == [("queued", 0), ("running", 0), ("done", 10)]
    states.clear()
    await http.dead_letter(4)
    await http.post("jobs", {"kind": "discard", "filter": {}, "rate": 1}, 201)
    await http.running(2)
    now_s[0] += 1
    await http.finished(2)
    assert len(states) == 4


@pytest.mark.parametrize("taking_effect", [True, False])
async def test_a_job_survives_a_store_that_failed(folder: Path, taking_effect: bool) -> None:
    clock = VirtualClock()
    store = MisbehavingStore(open_store(f"sqlite:///{folder}/bus.db", clock, clock.timers(lambda: True)))
    async with MessageBus(store, clock=clock) as bus:
        await bus.create_queue(QUEUE)
        http = Operators("front", clock)
        http.use(bus)
        await http.dead_letter(7)
        store.fail_at(2, taking_effect=taking_effect)
        failed = await http.job(kind="retry", filter={})
        assert (failed["state"], failed["done"]) == ("interrupted", 2)
        assert "planned to fail" in failed["reason"]
        assert [type(error).__name__ for error in http.held.reported] == ["StoreFailed"]
        store.heal()
        http.held.made = Broker(bus)
        await http.post("jobs/resume?id=1")
        done = await http.rested(1)
        counts = done["counts"]
        assert (counts["retried"], counts["gone"], done["done"]) == ((5, 2, 7) if taking_effect else (7, 0, 7))
        assert await http.counts() == (7, 0)


async def test_a_job_ends_when_the_store_is_taken_away(http: Operators) -> None:
    await begun(http)
    http.held.made = None
    http.held.interrupted.set()
    stopped = await http.finished(1)
    assert (stopped["state"], "it failed" in stopped["reason"]) == ("interrupted", True)
    answer = await http.ask("POST", "jobs/resume?id=1")
    assert (answer.status, answer.code()) == (503, "store_unavailable")


async def test_a_job_whose_task_is_cancelled_says_so(http: Operators, url: str) -> None:
    await begun(http)
    task = http.service.jobs._task
    assert task is not None
    task.cancel()
    await asyncio.wait([task])
    assert (await http.get("job?id=1"))["state"] == "interrupted"
    assert listed(url)["jobs"][0]["record"]["state"] == "interrupted"


async def cancelled_while_saving(call: Coroutine[object, object, JobRecord]) -> None:
    """Cancel the caller of an operation on jobs while a thread writes the list."""
    begun, go_on = asyncio.Event(), threading.Event()
    loop, save = asyncio.get_running_loop(), JobFile.save

    def slow(self: JobFile, last_id: int, jobs: list[Job]) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(GUARD_S)
        save(self, last_id, jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobFile, "save", slow)
        caller = asyncio.ensure_future(call)
        await begun.wait()
        caller.cancel()
        go_on.set()
        await asyncio.wait([caller])
    assert caller.cancelled()


async def test_a_new_job_starts_although_its_caller_is_cancelled(http: Operators) -> None:
    await http.dead_letter(3)
    await cancelled_while_saving(http.service.jobs.create(JobRequest("discard", FilterRecord()), "rule"))
    assert (await http.get("job?id=1"))["state"] != "queued"
    assert (await http.finished(1))["counts"]["discarded"] == 3


async def test_a_resumed_job_starts_although_its_caller_is_cancelled(http: Operators) -> None:
    await begun(http)
    await http.post("jobs/pause?id=1")
    await cancelled_while_saving(http.service.jobs.resume(1))
    assert (await http.get("job?id=1"))["state"] != "queued"
    assert (await http.finished(1))["counts"]["retried"] == 5


async def test_a_job_is_not_resumed_on_an_older_state_of_the_store(http: Operators, url: str) -> None:
    await begun(http)
    await http.service.jobs.stop()
    content = listed(url)
    content["jobs"][0]["limits"] = {f"{QUEUE}/$DeadLetterQueue": 1_000}
    write(url, content)
    http.use(http.bus)
    answer = await http.ask("POST", "jobs/resume?id=1")
    assert (answer.status, "does not match the store" in answer.body.decode()) == (400, True)
    assert (await http.get("job?id=1"))["state"] == "interrupted"


async def test_a_job_fails_by_an_error_of_its_own_and_may_be_resumed(http: Operators) -> None:
    await http.bus.create_queue("review")
    await http.dead_letter(3)
    await http.post("jobs", {"kind": "redirect", "filter": {}, "target": "review", "rate": 1}, 201)
    await http.running(1)
    await http.post("jobs/pause?id=1")
    await http.bus.delete_entity("review")
    await http.post("jobs/resume?id=1")
    failed = await http.rested(1)
    assert (failed["state"], "no queue" in failed["reason"]) == ("failed", True)
    await http.bus.create_queue("review")
    await http.post("jobs/resume?id=1")
    done = await http.finished(1)
    assert (done["state"], done["counts"]["redirected"]) == ("done", 3)


async def test_a_job_does_not_touch_messages_of_another_store_in_the_same_place(http: Operators, url: str) -> None:
    """The file of the store was replaced, and that of its jobs was not: sequences mean other messages."""
    await begun(http)
    await http.service.jobs.stop()
    content = listed(url)
    content["jobs"][0]["record"]["created_ns"] = int(http.broker.find(QUEUE).created_ns) - 1
    write(url, content)
    http.use(http.bus)
    await http.post("jobs/resume?id=1")
    done = await http.finished(1)
    assert (done["state"], done["counts"]["retried"], done["counts"]["gone"]) == ("done", 1, 4)
    assert len((await http.get("dead-letters"))["items"]) == 4
