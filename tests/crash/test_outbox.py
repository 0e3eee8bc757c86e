"""kill -9 between and inside of every step of the outbox: each row that was committed has one message, and no other."""

from pathlib import Path

from tests.crash.outbox_kills import campaign

SECONDS = 8.0


def test_rows_and_messages_agree_after_any_crash(tmp_path: Path) -> None:
    tally = campaign(tmp_path, "outbox", SECONDS)
    assert tally.findings == []
    assert tally.counts["lives"] >= 5
    assert tally.counts["transactions"] > 100
    assert tally.counts["waiting"] > 0  # Some were killed before the relay had come by.


def test_a_relay_that_forgets_where_it_was_is_found(tmp_path: Path) -> None:
    (finding, *_) = campaign(tmp_path, "outbox", SECONDS, planted=True).findings
    assert "doubled [(" in finding
