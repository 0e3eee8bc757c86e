"""Minutes of kill -9 on programs that write rows and messages in one commit."""

from collections.abc import Callable
from pathlib import Path

from tests.crash.outbox_kills import campaign


def test_killed_programs_have_one_message_for_each_row(
    tmp_path: Path, seconds: float, report: Callable[[str], None], seed: str
) -> None:
    tally = campaign(tmp_path, seed, seconds / 2)
    report(tally.line(f"outbox, kill -9 (seed {seed})"))
    assert tally.findings == []
