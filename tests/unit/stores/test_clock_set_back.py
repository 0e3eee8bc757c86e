"""The clock of the machine is set back between two runs: a lock does not last longer than its duration from then on."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.commands import COMPLETE, DEAD_LETTER
from unibus.stores.engine import snapshot_limits
from unibus.stores.opening import open_store
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import Rig, settling

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

schemes = pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])
saved = pytest.mark.parametrize("is_saved", [True, False], ids=["snapshot", "log"])


def opened(scheme: str, path: Path, now: datetime) -> Rig:
    clock = VirtualClock(now)
    return Rig(open_store(f"{scheme}:///{path}/bus", clock, clock.timers(lambda: True)), clock)


@schemes
@saved
def test_locks_end_after_their_duration(
    scheme: str, is_saved: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not is_saved:
        request.getfixturevalue("log_only")
    rig = opened(scheme, tmp_path, NOON)
    rig.queue("q", lock_duration=5)
    rig.queue("s", lock_duration=5, requires_session=True)
    rig.send("q", "locked")
    rig.send("q", "later", visible_ns=rig.now_ns() + 10**9)
    rig.send("s", "in a session", session_id="x")
    rig.one("q")
    rig.claim_in(rig.accept("s"))
    rig.store.close()
    rig = opened(scheme, tmp_path, NOON - timedelta(hours=1))
    rig.advance(4)
    assert rig.drain("q") == []
    rig.advance(2)
    assert rig.drain("q") == ["locked"], "a scheduled message waits for the wall clock"
    assert [claimed.sequence for claimed in rig.claim_in(rig.accept("s", "x"))] == [1]
    rig.advance(3600)
    assert rig.drain("q") == ["later"]
    assert rig.store.check() == []
    rig.store.close()


@schemes
@saved
def test_dedup_windows_end_after_their_length(
    scheme: str, is_saved: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not is_saved:
        request.getfixturevalue("log_only")
    rig = opened(scheme, tmp_path, NOON)
    rig.queue("q", dedup_window=60)
    rig.queue("r", default_ttl=60)
    rig.send("q", message_id="old")
    rig.send("r", message_id="old")
    rig.settle(COMPLETE, rig.one("r"), processed_key="old")
    rig.store.close()
    rig = opened(scheme, tmp_path, NOON - timedelta(hours=5))
    rig.advance(30)
    rig.send("q", message_id="new")
    assert rig.send("q", message_id="old").duplicate
    assert rig.was_processed("r", "old")
    rig.store.close()
    rig = opened(scheme, tmp_path, NOON - timedelta(hours=5) + timedelta(seconds=59))  # A restart prolongs nothing.
    assert rig.send("q", message_id="old").duplicate
    assert rig.was_processed("r", "old")
    rig.advance(2)
    assert not rig.was_processed("r", "old")
    assert not rig.send("q", message_id="old").duplicate
    assert rig.send("q", message_id="new").duplicate
    assert rig.store.check() == []
    rig.store.close()


@schemes
def test_an_expired_key_of_the_later_clock_removes_no_other_key(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = opened(scheme, tmp_path, NOON)
    rig.queue("q", dedup_window=60)
    rig.queue("r", default_ttl=60)
    rig.send("q", message_id="old")
    rig.send("r")
    rig.settle(COMPLETE, rig.one("r"), processed_key="old")
    rig.store.close()  # The snapshot has the key, and keeps it: the next run ends without one.
    with monkeypatch.context() as patch:
        patch.setattr(snapshot_limits, "AT_CLOSE", False)
        rig = opened(scheme, tmp_path, NOON + timedelta(seconds=100))
        rig.send("q", message_id="new")
        rig.send("r")
        rig.settle(COMPLETE, rig.one("r"), processed_key="new")
        rig.store.close()
    earlier = NOON - timedelta(hours=5)
    opened(scheme, tmp_path, earlier).store.close()
    rig = opened(scheme, tmp_path, earlier + timedelta(seconds=30))
    assert rig.send("q", message_id="new").duplicate
    assert rig.was_processed("r", "new")
    rig.store.close()


@schemes
def test_a_window_is_cut_once_also_by_a_run_that_does_nothing(scheme: str, tmp_path: Path) -> None:
    rig = opened(scheme, tmp_path, NOON)
    rig.queue("q", dedup_window=60)
    rig.send("q", message_id="m")
    rig.store.close()
    opened(scheme, tmp_path, NOON - timedelta(hours=5)).store.close()
    rig = opened(scheme, tmp_path, NOON - timedelta(hours=5) + timedelta(seconds=60))
    assert not rig.send("q", message_id="m").duplicate
    assert rig.store.check() == []
    rig.store.close()


@schemes
def test_a_window_that_is_not_prolonged_is_left_alone(scheme: str, tmp_path: Path) -> None:
    rig = opened(scheme, tmp_path, NOON)
    rig.queue("q", dedup_window=60)
    rig.send("q", message_id="m")
    last = rig.store.health().last_seq
    rig.store.close()
    rig = opened(scheme, tmp_path, NOON)
    assert len(rig.events()) == last
    rig.advance(59)
    assert rig.send("q", message_id="m").duplicate
    rig.advance(1)
    assert not rig.send("q", message_id="m").duplicate
    rig.store.close()


@schemes
def test_a_lock_that_ends_in_time_is_left_alone(scheme: str, tmp_path: Path) -> None:
    rig = opened(scheme, tmp_path, NOON)
    rig.queue("q", lock_duration=60)
    rig.send("q")
    rig.one("q")
    last = rig.store.health().last_seq
    rig.store.close()
    rig = opened(scheme, tmp_path, NOON + timedelta(seconds=10))
    assert len(rig.events()) == last
    rig.advance(51)
    assert rig.info("q").active == 1
    rig.store.close()


@schemes
def test_a_locked_dead_letter_keeps_the_lock_duration_of_its_queue(scheme: str, tmp_path: Path) -> None:
    rig = opened(scheme, tmp_path, NOON)
    rig.queue("q", lock_duration=300)
    rig.send("q", "dead")
    rig.run(settling(DEAD_LETTER, rig.one("q")))
    rig.one(sub_queue("q"))
    rig.store.close()
    rig = opened(scheme, tmp_path, NOON + timedelta(seconds=1))
    rig.advance(200)
    assert rig.drain(sub_queue("q")) == []
    rig.advance(100)
    assert rig.drain(sub_queue("q")) == ["dead"]
    rig.store.close()
