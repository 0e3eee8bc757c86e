"""kill -9 of `unibus serve` under load: nothing that was answered is lost or undone. Minutes of it: `make soak`."""

from pathlib import Path

from tests.crash.server_kills import campaign


def test_a_killed_server_loses_nothing_that_it_answered(tmp_path: Path) -> None:
    tally = campaign(tmp_path, "server", kills=4, forked=False)
    assert tally.findings.all() == []
    assert tally.counts["acknowledged sends"] > 20
    assert tally.counts["deliveries"] > 5


def test_many_lives_of_a_forked_server(tmp_path: Path) -> None:
    tally = campaign(tmp_path, "forked", kills=8)
    assert tally.findings.all() == []
    assert tally.counts["kills"] >= 5
    assert tally.counts["acknowledged complete"] > 10
    assert tally.counts["unknown sends"] > 0  # Some were killed with requests in flight.


def test_a_server_that_answers_before_it_has_written_is_found(tmp_path: Path) -> None:
    tally = campaign(tmp_path, "planted", kills=20, planted="AnswersFirst")
    assert tally.findings.lost
