"""Where a commit is made: on the loop while the disk is quick, in the writer's thread when it is not."""

import time

import pytest

from unibus.stores.seam import commit_placement as pace
from unibus.stores.seam.commit_placement import PAUSE_NS, PAUSE_NS_MAX, QUICK_NS, CommitPlacement

MS = 1_000_000


def fed(target: CommitPlacement, lasted_ns: int, times: int, now_ns: int) -> int:
    for _ in range(times):
        target.took(now_ns, now_ns + lasted_ns)
        now_ns += lasted_ns
    return now_ns


@pytest.fixture
def target() -> CommitPlacement:
    return CommitPlacement()


def is_quick_at(target: CommitPlacement, now_ns: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(pace.time, "monotonic_ns", lambda: now_ns)
    return target.is_quick()


def test_a_quick_disk_is_waited_for(target: CommitPlacement, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = fed(target, QUICK_NS // 2, 1_000, time.monotonic_ns())
    assert is_quick_at(target, now_ns, monkeypatch)


def test_a_slow_disk_is_left_to_the_thread_for_longer_each_time(
    target: CommitPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = time.monotonic_ns()
    pauses = []
    for _ in range(10):
        tries = 0
        while is_quick_at(target, now_ns, monkeypatch):
            now_ns = fed(target, 10 * MS, 1, now_ns)
            tries += 1
        assert 1 <= tries <= 3, "a slow disk is noticed at once"
        began_ns = now_ns
        while not is_quick_at(target, now_ns, monkeypatch):
            now_ns += PAUSE_NS // 4
        pauses.append(round((now_ns - began_ns) / PAUSE_NS))
    assert pauses == [min(2**n, PAUSE_NS_MAX // PAUSE_NS) for n in range(10)]


def test_one_hesitation_changes_nothing(target: CommitPlacement, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = fed(target, QUICK_NS // 3, 50, time.monotonic_ns())
    now_ns = fed(target, 500 * MS, 1, now_ns)
    assert is_quick_at(target, now_ns, monkeypatch)


def test_a_disk_that_recovers_is_trusted_as_before(target: CommitPlacement, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = time.monotonic_ns()
    for _ in range(3):
        now_ns = fed(target, 20 * MS, 3, now_ns) + PAUSE_NS_MAX
    now_ns = fed(target, MS // 5, 1_000_000, now_ns)
    now_ns = fed(target, 20 * MS, 3, now_ns)
    assert not is_quick_at(target, now_ns, monkeypatch)
    assert is_quick_at(target, now_ns + PAUSE_NS, monkeypatch), "the first pause again"


def until_paused(target: CommitPlacement, lasted_ns: int, monkeypatch: pytest.MonkeyPatch) -> int:
    now_ns = time.monotonic_ns()
    while is_quick_at(target, now_ns, monkeypatch):
        now_ns = fed(target, lasted_ns, 1, now_ns)
    return now_ns


def test_where_the_thread_is_much_slower_the_loop_goes_on_waiting(
    target: CommitPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = until_paused(target, 3 * MS, monkeypatch)
    for _ in range(20):
        target.took_there(now_ns, now_ns + 12 * MS)
        now_ns += 12 * MS
    assert is_quick_at(target, now_ns, monkeypatch)
    now_ns = fed(target, 3 * MS, 100, now_ns)
    assert is_quick_at(target, now_ns, monkeypatch), "it is known to be no worse"


@pytest.mark.parametrize("disk_ms", [10, 50])
def test_a_disk_that_is_slow_either_way_is_left_to_the_thread(
    target: CommitPlacement, disk_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = until_paused(target, disk_ms * MS, monkeypatch)
    for _ in range(PAUSE_NS // (disk_ms * MS) - 1):
        target.took_there(now_ns, now_ns + disk_ms * MS + MS // 10)
        now_ns += disk_ms * MS
        assert not is_quick_at(target, now_ns, monkeypatch)


def test_no_loop_is_held_up_for_long_however_slow_the_thread_is(
    target: CommitPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = until_paused(target, 20 * MS, monkeypatch)
    for _ in range(10):
        target.took_there(now_ns, now_ns + 90 * MS)
        now_ns += 90 * MS
    assert not is_quick_at(target, now_ns, monkeypatch)


def test_where_the_thread_is_about_as_quick_it_is_left_to_it(
    target: CommitPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = until_paused(target, 5 * MS, monkeypatch)
    for _ in range(20):
        target.took_there(now_ns, now_ns + 6 * MS)
        now_ns += 6 * MS
    assert is_quick_at(target, now_ns, monkeypatch) is (20 * 6 * MS > PAUSE_NS)
