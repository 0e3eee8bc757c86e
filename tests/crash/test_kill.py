"""kill -9, for real: each call that a killed process had answered has happened, the others wholly or not at all."""

import tempfile
from pathlib import Path

from tests.crash.kills import campaign, find_loss
from tests.crash.power import Tally

SECONDS = 6.0


def test_what_was_answered_survives_the_end_of_the_process(tmp_path: Path) -> None:
    check(campaign(tmp_path, "kill", SECONDS), 100)


def test_what_was_answered_survives_in_json_files(tmp_path: Path) -> None:
    """In memory, if there is such a folder: a kill loses nothing that the kernel has, and syncs would take most of a
    run."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else tmp_path) as folder:
        check(campaign(Path(folder), "kill", SECONDS / 2, ending="json"), 5)


def check(tally: Tally, acked: int) -> None:
    assert tally.findings.all() == []
    assert tally.counts["cuts"] >= 5
    assert tally.counts["acked"] > acked


def test_answers_that_come_before_the_write_are_found(tmp_path: Path) -> None:
    assert find_loss(tmp_path, "kill", "AnswersFirst").findings.lost
