"""kill -9 and SIGTERM of a server in the middle of a job: each message is moved once. More of it: `make soak`."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.job_kills import Operator, campaign
from tests.crash.redrive import buried
from tests.crash.server_process import PATIENCE_S, Forked, arguments_of, kill

MESSAGES = 900


@pytest.fixture(scope="module")
def server() -> Iterator[Forked]:
    started = Forked()
    yield started
    started.close()


@pytest.mark.parametrize(("verb", "kills"), [("retry", 2), ("redirect", 1)])
def test_a_job_of_a_killed_server_is_resumed_and_moves_each_message_once(
    server: Forked, tmp_path: Path, verb: str, kills: int
) -> None:
    score = campaign(server, tmp_path / "bus.db", "jobs", verb, MESSAGES, kills)
    assert score.findings == []
    assert score.moved == MESSAGES
    assert score.in_the_middle >= 1


def test_a_job_ends_between_two_batches_when_its_server_is_stopped(server: Forked, tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    buried(path, 300)
    server.start(arguments_of(path), path.with_suffix(".log"))
    operator = Operator(server.port(time.monotonic() + PATIENCE_S))
    operator.ask("POST", "jobs", {"kind": "retry", "filter": {}, "rate": 1})
    seen = operator.wait(1, 1)
    operator.close()
    assert kill(server, signal.SIGTERM) == 0
    (job,) = json.loads((tmp_path / "bus.db.jobs.json").read_bytes())["jobs"]
    record = job["record"]
    assert (record["state"], record["reason"]) == ("interrupted", "the server stopped")
    assert record["done"] >= seen["done"]
    assert "Traceback" not in path.with_suffix(".log").read_text()
