"""kill -9 while ten thousand dead-lettered messages are redriven: each ends in its new place, once."""

from pathlib import Path

from tests.crash.redrive import LETTERS, campaign

SECONDS = 4.0


def test_letters_are_neither_lost_nor_doubled(tmp_path: Path) -> None:
    score = campaign(tmp_path, "redrive", SECONDS)
    assert score.findings == []
    assert score.moved == score.files * LETTERS
    assert score.in_the_middle >= 1


def test_a_move_in_two_steps_is_found_out(tmp_path: Path) -> None:
    assert campaign(tmp_path, "redrive", SECONDS, planted=True).findings
