"""100,000 dead-lettered messages moved by a job whose client is gone and whose server is killed again and again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.job_kills import campaign
from tests.crash.server_process import Forked

MESSAGES = 100_000
KILLS = 10


@pytest.mark.parametrize("verb", ["retry", "redirect"])
def test_each_message_is_moved_once_and_none_is_lost(
    tmp_path: Path, report: Callable[[str], None], seed: str, verb: str
) -> None:
    server = Forked()
    try:
        score = campaign(server, tmp_path / "bus.db", seed, verb, MESSAGES, KILLS)
    finally:
        server.close()
    report(score.line(f"kill -9 of a server that runs a job to {verb} (seed {seed})"))
    assert score.findings == []
    assert score.moved == MESSAGES
    assert score.in_the_middle >= KILLS // 2
