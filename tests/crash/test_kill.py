"""kill -9, for real: each call that a killed process had answered has happened, the others wholly or not at all."""

from pathlib import Path

from tests.crash.kills import campaign

SECONDS = 6.0


def test_what_was_answered_survives_the_end_of_the_process(tmp_path: Path) -> None:
    tally = campaign(tmp_path, "kill", SECONDS)
    assert tally.findings.all() == []
    assert tally.counts["cuts"] >= 5
    assert tally.counts["acked"] > 100


def test_answers_that_come_before_the_write_are_found(tmp_path: Path) -> None:
    assert campaign(tmp_path, "kill", SECONDS / 2, planted="AnswersFirst").findings.lost
