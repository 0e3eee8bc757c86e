"""Snapshots follow the changes, so that the limits of history hold: by bytes, by age, and at close."""

import json
import threading
from pathlib import Path

import pytest

from unibus.limits import SNAPSHOT_AGE_S_MAX, SNAPSHOT_BYTES_MAX, SNAPSHOT_BYTES_MIN
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.engine.snapshot_limits import SnapshotLimits, limits_for
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.opening import open_store
from unibus.sync import MessageBus
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import Rig

GUARD_S = 30.0
LIMIT = 1_000_000
LARGE = "x" * 20_000

schemes = pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])


def opened(url: str, clock: VirtualClock) -> Rig:
    return Rig(open_store(url, clock, clock.timers(lambda: True)), clock)


def count_snapshots(rig: Rig) -> tuple[list[int], threading.Event]:
    """What each snapshot from now on covers, and an event that is set by each."""
    assert isinstance(rig.store, EmbeddedStore)
    committer, done, seen = rig.store._committer, threading.Event(), list[int]()
    before, snapshot = committer.on_snapshot, rig.store._snapshot

    def note() -> None:
        seen.append(snapshot.seq)
        done.set()
        before()

    committer.on_snapshot = note
    return seen, done


def pass_through(rig: Rig, times: int) -> None:
    for _ in range(times):
        rig.send("q", LARGE)
        rig.claim("q", lock=False)


def size_of(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


@schemes
def test_history_stays_below_its_bytes(scheme: str, tmp_path: Path, virtual_clock: VirtualClock) -> None:
    rig = opened(f"{scheme}:///{tmp_path}/bus?history_bytes={LIMIT}", virtual_clock)
    rig.queue("q")
    for _ in range(10):
        pass_through(rig, 20)
        rig.advance(1)
    health = rig.store.health()
    assert health.history_bytes <= LIMIT * 1.5
    assert rig.events()[0].seq == health.oldest_seq > 1
    assert rig.drain("q") == []
    rig.store.close()
    assert size_of(tmp_path) < 3 * LIMIT


@schemes
def test_history_goes_by_its_age(scheme: str, tmp_path: Path, virtual_clock: VirtualClock) -> None:
    rig = opened(f"{scheme}:///{tmp_path}/bus?history_age=60", virtual_clock)
    seen, done = count_snapshots(rig)
    rig.queue("q")
    rig.send("q", "waits")
    rig.advance(120)
    assert done.wait(GUARD_S)
    rig.advance(120)
    assert (seen, rig.events()) == ([2], [])
    assert rig.store.health().oldest_seq == 3
    assert rig.drain("q") == ["waits"]
    rig.store.close()


@schemes
def test_a_store_that_is_idle_takes_one_snapshot_and_no_more(
    scheme: str, tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    rig = opened(f"{scheme}:///{tmp_path}/bus", virtual_clock)
    seen, done = count_snapshots(rig)
    rig.queue("q")
    rig.advance(SNAPSHOT_AGE_S_MAX - 60)
    assert seen == []
    rig.advance(120)
    assert done.wait(GUARD_S)
    rig.advance(24 * 3600)
    rig.store.close()
    assert seen == [1]


@schemes
def test_what_a_killed_process_left_is_as_old_as_its_changes(
    scheme: str, tmp_path: Path, virtual_clock: VirtualClock, log_only: None
) -> None:
    url = f"{scheme}:///{tmp_path}/bus"
    rig = opened(url, virtual_clock)
    rig.queue("q")
    rig.store.close()  # Without a snapshot: as if the process had been killed.
    virtual_clock.advance(SNAPSHOT_AGE_S_MAX)
    rig = opened(url, virtual_clock)
    seen, done = count_snapshots(rig)
    rig.advance(60)
    assert done.wait(GUARD_S)
    assert seen == [1]
    rig.store.close()


@schemes
def test_a_closed_store_is_a_snapshot(scheme: str, tmp_path: Path, virtual_clock: VirtualClock) -> None:
    url = f"{scheme}:///{tmp_path}/bus"
    rig = opened(url, virtual_clock)
    rig.queue("q")
    rig.fill("q", ["a", "b"])
    rig.complete(rig.one("q"))
    last = rig.store.health().last_seq
    rig.store.close()
    for _ in range(2):  # The second finds nothing that changed.
        rig = opened(url, virtual_clock)
        seen, _ = count_snapshots(rig)
        health = rig.store.health()
        assert (health.snapshot_seq, health.last_seq, len(rig.events())) == (last, last, last)
        rig.store.close()
        assert seen == []
    rig = opened(url, virtual_clock)
    assert rig.drain("q") == ["b"]
    rig.store.close()


@schemes
def test_processes_that_end_soon_keep_the_limit_too(scheme: str, tmp_path: Path, virtual_clock: VirtualClock) -> None:
    for _ in range(10):
        rig = opened(f"{scheme}:///{tmp_path}/bus?history_bytes={LIMIT}", virtual_clock)
        rig.queue("q")
        pass_through(rig, 20)
        rig.store.close()
    assert size_of(tmp_path) < 3 * LIMIT


def test_a_closed_folder_shows_its_messages(tmp_path: Path) -> None:
    with MessageBus(f"jsonfile:///{tmp_path}/bus") as bus:
        bus.create_queue("orders")
        bus.send("orders", {"id": 1})
        bus.send("orders", {"id": 2})
        bus.receive_batch("orders", 1, timeout=0)[0].complete()
        bus.schedule("later", {"id": 3}, 1_000.0)
    files = {each.name: json.loads(each.read_text("utf-8")) for each in (tmp_path / "bus/messages").iterdir()}
    assert {name: [item["message"]["body"] for item in file["items"]] for name, file in files.items()} == {
        "queue_orders.json": [{"id": 2}],
        "queue_later.json": [{"id": 3}],
    }
    queues = json.loads((tmp_path / "bus/entities/queues.json").read_text("utf-8"))
    assert [item["name"] for item in queues["items"]] == ["orders", "later"]
    with MessageBus(f"jsonfile:///{tmp_path}/bus") as bus:
        bus.receive_batch("orders", 1, timeout=0)[0].complete()
    assert [each.name for each in (tmp_path / "bus/messages").iterdir()] == ["queue_later.json"]


def rewriting(path: Path, clock: VirtualClock, weight: int, at_close_bytes_max: int) -> Rig:
    limits = SnapshotLimits(weight, rewrites=True, at_close_bytes_max=at_close_bytes_max)
    store = EmbeddedStore(JsonFileJournal(str(path / "bus")), clock, clock.timers(lambda: True), snapshot_limits=limits)
    return Rig(store, clock)


def test_where_messages_are_rewritten_the_log_grows_with_them(tmp_path: Path, virtual_clock: VirtualClock) -> None:
    rig = rewriting(tmp_path, virtual_clock, len(LARGE), 0)
    seen, _ = count_snapshots(rig)
    rig.queue("q")
    for _ in range(64):
        rig.send("q", LARGE)
    assert 4 <= len(seen) <= 10
    rig.store.close()


@pytest.mark.parametrize(("limit", "covered"), [(10, 0), (12, 12)])
def test_closing_does_not_rewrite_a_large_store(
    limit: int, covered: int, tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    rig = rewriting(tmp_path, virtual_clock, 10**9, limit * len(LARGE))
    rig.queue("q")
    rig.fill("q", [LARGE] * 11)
    seen, _ = count_snapshots(rig)
    rig.store.close()
    assert max(seen, default=0) == covered


def test_limits_follow_those_of_history() -> None:
    assert limits_for(4_000_000, 1_000.0, SNAPSHOT_BYTES_MAX, False) == SnapshotLimits(1_000_000, 250 * 10**9)
    assert limits_for(0, 0.0, SNAPSHOT_BYTES_MAX, False) == SnapshotLimits(SNAPSHOT_BYTES_MIN, 60 * 10**9)
    assert limits_for(10**12, 1e9, SNAPSHOT_BYTES_MAX, False) == SnapshotLimits()
