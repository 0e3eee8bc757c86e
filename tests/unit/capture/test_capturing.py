"""The capture: each event once, whatever the history, the rolls and the restarts, and of one store only."""

import logging
import shutil
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.capture.captures import NOW, bodies, capture_all, captured, capturing
from tests.unit.capture.histories import Work, working
from tests.unit.capture.rows import rows_of
from unibus.capture import capturing as module
from unibus.capture import compacting
from unibus.capture import manifest as manifest_module
from unibus.capture.capturing import CaptureProgress, Capturing
from unibus.capture.manifest import Manifest
from unibus.capture.retention import keep
from unibus.capture.segments import SegmentWriter
from unibus.capture.settings import Policy, Rotation
from unibus.core.lifecycle.state.changes import Change
from unibus.errors import CaptureBusy, CaptureMismatch, StoreUnavailable
from unibus.stores.schemes import open_history
from unibus.stores.seam.store_view import PAGE_CHANGES
from unibus.stores.sqlite.history import SqliteHistory
from unibus.sync import MessageBus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "capture"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_segments_put_together_are_the_history(data: st.DataObject) -> None:
    """Random work between looks, random sizes of segments, the capture stopped and started in between."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        place, folder = Path(name) / "bus.db", Path(name) / "capture"
        with working(place, data.draw(st.text("abc", max_size=3))) as work:
            for _ in range(data.draw(st.integers(1, 4))):
                rows = data.draw(st.sampled_from((1, 7, 40, 100_000)))
                roll = Rotation(
                    rows, data.draw(st.sampled_from((2_000, 10**9))), data.draw(st.sampled_from((1e-9, 60.0)))
                )
                with capturing(work.url, folder, roll) as capture:
                    for _ in range(data.draw(st.integers(0, 3))):
                        work.steps(data.draw(st.integers(0, 12)))
                        capture.step()
                    if data.draw(st.booleans()):
                        capture.finish()
            expected = rows_of(work.events())  # First: a read makes the owner write what it has decided.
            capture_all(work.url, folder)
            assert captured(folder) == expected
            brought = [each.seq for each in work.events() if each.kind in ("sent", "scheduled", "published")]
            assert [row["seq"] for row in bodies(folder)] == brought


def test_segments_are_rolled_by_rows_and_never_split_a_batch(tmp_path: Path, folder: Path) -> None:
    with working(tmp_path / "bus.db") as work:
        for _ in range(6):
            work.fill("a", 10)
        capture_all(work.url, folder, Rotation(rows=25))
        segments = Manifest.load(str(folder)).segments
        assert len(segments) > 1
        assert all(25 <= each.rows <= 25 + 10 for each in segments[:-1])
        ends = {each.last for each in segments}
        with closing(open_history(work.url)) as reader:
            assert ends <= {first + len(group) - 1 for first, group in reader.groups_after(0, 10**9)}


def test_segments_are_rolled_by_bytes(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_CHANGES", 50)
    with working(tmp_path / "bus.db") as work:
        for _ in range(20):
            work.fill("a", 50)
        capture_all(work.url, folder, Rotation(bytes=5_000))
        assert len(Manifest.load(str(folder)).segments) > 3
        assert captured(folder) == rows_of(work.events())


def test_segments_are_rolled_by_time(tmp_path: Path, folder: Path) -> None:
    with working(tmp_path / "bus.db") as work, capturing(work.url, folder, Rotation(every_s=3_600.0)) as capture:
        capture.step()
        assert capture.progress.segments == 0
    with working(tmp_path / "bus.db") as work, capturing(work.url, folder, NOW) as capture:
        capture.step()
        work.rig.send("a", 1)
        capture.step()
        assert capture.progress.segments == 2


def test_what_was_read_and_not_sealed_is_read_again(tmp_path: Path, folder: Path) -> None:
    with working(tmp_path / "bus.db") as work:
        with capturing(work.url, folder) as capture:
            assert capture.step() > 0
        assert Manifest.load(str(folder)).last == 0
        capture_all(work.url, folder)
        assert captured(folder) == rows_of(work.events())


def test_it_ends_when_it_is_told_and_seals_what_it_has(tmp_path: Path, folder: Path) -> None:
    stop = threading.Event()
    seen: list[int] = []

    def shown(progress: CaptureProgress) -> None:
        seen.append(progress.events)
        stop.set()

    with working(tmp_path / "bus.db") as work, capturing(work.url, folder) as capture:
        capture.run(stop, shown)
        assert seen == [work.last()]
        assert Manifest.load(str(folder)).last == work.last()


class Noting(SqliteHistory):
    """Notes what the directory had when the store was synced, and what the store had then."""

    def __init__(self, path: str, folder: Path) -> None:
        super().__init__(path)
        self.noted: list[tuple[int, int]] = []
        self._folder = folder

    def settle(self) -> None:
        super().settle()
        self.noted.append((Manifest.load(str(self._folder)).last, self.bounds()[1]))


def test_the_store_is_synced_before_anything_of_it_counts(tmp_path: Path, folder: Path) -> None:
    """A power failure must not undo what a segment holds."""
    with working(tmp_path / "bus.db") as work:
        reader = Noting(str(work.path), folder)
        with closing(reader), closing(Capturing(reader, str(folder), NOW)) as capture:
            ends = [0]
            for _ in range(3):
                work.rig.send("a", 1)
                capture.step()
                ends.append(Manifest.load(str(folder)).last)
        assert [before for before, _ in reader.noted] == ends[:-1]
        assert all(synced >= end for (_, synced), end in zip(reader.noted, ends[1:], strict=True))


# What is missing, and what is another


def test_what_was_forgotten_is_a_gap(tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with working(tmp_path / "bus.db", history_bytes=0, history_age_s=0.0) as work:
        capture_all(work.url, folder)
        stood = work.last()
        work.steps(60)
        kept = work.events()
        work.clock.advance(10)
        work.forget()
        work.rig.send("a", 1)
        kept = [*[each for each in kept if each.seq <= stood], *work.events(stood)]
        oldest = work.events(stood)[0].seq
        assert oldest > stood + 1
        with caplog.at_level(logging.WARNING), capturing(work.url, folder) as capture:
            capture.finish()
            assert capture.progress.missed == oldest - stood - 1
        assert "the store pruned events" in caplog.text
        manifest = Manifest.load(str(folder))
        assert manifest.gaps == [(stood + 1, oldest - 1)]
        assert [row["seq"] for row in captured(folder)] == [*range(1, stood + 1), *range(oldest, work.last() + 1)]
        capture_all(work.url, folder)
        assert Manifest.load(str(folder)).gaps == manifest.gaps


def test_all_of_it_may_be_forgotten(tmp_path: Path, folder: Path) -> None:
    with working(tmp_path / "bus.db", history_bytes=0, history_age_s=0.0) as work:
        work.steps(60)
        work.clock.advance(10)
        work.forget()
        capture_all(work.url, folder)
        work.rig.send("a", 1)
        capture_all(work.url, folder)
        manifest = Manifest.load(str(folder))
        assert manifest.last == work.last()
        assert manifest.gaps[0][0] == 1


def replaced(tmp_path: Path, folder: Path, steps: int) -> Path:
    """A capture of one store, and another one."""
    with working(tmp_path / "one.db", "one") as work:
        work.steps(30)
        capture_all(work.url, folder)
        seq = work.last()
    other = tmp_path / "two.db"
    with working(other, "two") as work:
        while work.last() < seq + steps:
            work.rig.send("a", 1)
    return other


@pytest.mark.parametrize("steps", [-3, 0, 20])
def test_another_store_is_refused(tmp_path: Path, folder: Path, steps: int) -> None:
    other = replaced(tmp_path, folder, steps)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}
    with pytest.raises(CaptureMismatch, match="another store") as caught:
        capture_all(f"sqlite:///{other}", folder, policy=Policy(keep_s=1.0))
    assert "new directory" in caught.value.hint
    assert before == {path: path.read_bytes() for path in before}
    with pytest.raises(CaptureMismatch):  # And the lock was released.
        capture_all(f"sqlite:///{other}", folder)


@pytest.mark.parametrize("steps", [-3, 20])
def test_another_store_in_place_of_the_one_that_is_read_is_refused(tmp_path: Path, folder: Path, steps: int) -> None:
    other = replaced(tmp_path, folder, steps)
    with capturing(f"sqlite:///{tmp_path / 'one.db'}", folder) as capture:
        capture.step()
        for path in tmp_path.glob("one.db-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        other.rename(tmp_path / "one.db")
        with pytest.raises(CaptureMismatch):
            capture.step()


@pytest.mark.parametrize("shortened", [False, True])
def test_another_store_is_refused_also_when_no_segment_is_left(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, shortened: bool
) -> None:
    other = replaced(tmp_path, folder, 20)
    monkeypatch.setattr(manifest_module, "LINES_MIN", 1)
    with closing(SegmentWriter(str(folder))) as writer:
        assert keep(writer, Policy(keep_s=1.0)) > 0
        assert not shortened or writer.shorten()
    assert Manifest.load(str(folder)).segments == []
    with pytest.raises(CaptureMismatch, match="differs from the captured one"):
        capture_all(f"sqlite:///{other}", folder)
    with working(tmp_path / "one.db") as work:
        capture_all(work.url, folder)
        assert Manifest.load(str(folder)).last == work.last()


class Forgetting(SqliteHistory):
    """Of a store that prunes all but its last events, right after `bounds` was read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.first = 0

    def groups_after(self, seq: int, changes_max: int = PAGE_CHANGES) -> list[tuple[int, list[Change]]]:
        return super().groups_after(max(seq, self.first - 1), changes_max)


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_store_that_forgets_at_this_moment_is_no_other_one(tmp_path: Path, folder: Path, kept: int) -> None:
    with working(tmp_path / "bus.db") as work:
        work.rig.send("a", 1)
        capture_all(work.url, folder)
        stood = work.last()
        work.fill("a", 5)
        reader = Forgetting(str(work.path))
        reader.first = work.last() - kept + 1
        with closing(reader), closing(Capturing(reader, str(folder))) as capture:
            capture.finish()
        assert Manifest.load(str(folder)).gaps == [(stood + 1, work.last() - kept)]


def test_rare_events_in_turns_are_each_captured_once(tmp_path: Path, folder: Path) -> None:
    """A page of rare kinds only: session_taken, session_left, session_taken. The capture is restarted before it."""
    url = f"sqlite:///{tmp_path / 'bus.db'}"
    with MessageBus(url) as bus:
        bus.create_queue("chat", requires_session=True)
        bus.send("chat", 1, session_id="s")
        capture_all(url, folder)
        with bus.accept_session("chat", "s", timeout=0):
            pass
        with bus.accept_session("chat", "s", timeout=0):
            capture_all(url, folder)
            capture_all(url, folder)
        bus.send("chat", 2, session_id="s")
        capture_all(url, folder)
    rows = captured(folder)
    assert [row["seq"] for row in rows] == list(range(1, 8))
    assert [row["kind"] for row in rows][2:5] == ["session_taken", "session_left", "session_taken"]


def test_the_same_store_in_another_place_goes_on(tmp_path: Path, folder: Path) -> None:
    with working(tmp_path / "one.db") as work:
        work.steps(30)
        capture_all(work.url, folder)
    shutil.copy(tmp_path / "one.db", tmp_path / "two.db")
    with working(tmp_path / "two.db", "other") as work:
        work.rig.send("a", 1)
        capture_all(work.url, folder)
        assert captured(folder) == rows_of(work.events())


def test_a_copy_that_takes_the_name_goes_on(tmp_path: Path, folder: Path) -> None:
    """What was read from the old file and is not sealed does not become part of the new one."""
    with working(tmp_path / "one.db") as work:
        capture_all(work.url, folder)
    shutil.copy(tmp_path / "one.db", tmp_path / "two.db")
    with working(tmp_path / "one.db", "x") as work:
        work.steps(20)
    with working(tmp_path / "two.db", "y") as work:
        work.steps(25)
        expected = rows_of(work.events())
    with capturing(f"sqlite:///{tmp_path / 'one.db'}", folder) as capture:
        capture.step()
        for path in tmp_path.glob("one.db-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (tmp_path / "two.db").rename(tmp_path / "one.db")
        capture.finish()
    assert captured(folder) == expected


def test_one_capture_per_directory(tmp_path: Path, folder: Path) -> None:
    with working(tmp_path / "bus.db") as work, capturing(work.url, folder), pytest.raises(CaptureBusy):
        capture_all(work.url, folder)


def test_stores_that_cannot_be_read_beside_their_owner_are_named(folder: Path) -> None:
    with pytest.raises(StoreUnavailable, match="sqlite://"):
        capture_all("jsonfile:///x", folder)


# Its position


def test_the_owner_sees_where_it_stands(tmp_path: Path, folder: Path) -> None:
    with working(tmp_path / "bus.db") as work:
        assert work.store.history.cursor("capture") == 0
        with capturing(work.url, folder) as capture:
            capture.step()
            assert work.store.history.cursor("capture") == 0
            capture.seal()
            assert work.store.history.cursor("capture") == work.last()


def test_a_cursor_that_cannot_be_shown_is_no_reason_to_stop(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with working(tmp_path / "bus.db") as work:
        (tmp_path / "bus.db-cursors").write_text("in the way")
        with caplog.at_level(logging.WARNING):
            capture_all(work.url, folder, Rotation(rows=2))
        assert caplog.text.count("cannot write the position") == 1
        assert captured(folder) == rows_of(work.events())


# Tidying


def small_segments(work: Work, folder: Path, count: int) -> None:
    with capturing(work.url, folder, NOW) as capture:
        for number in range(count):
            work.rig.send("a", {"n": number})
            capture.step()


def test_many_small_segments_become_few(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEND_S", 0.0)
    monkeypatch.setattr(compacting, "NEIGHBOURS", 4)
    with working(tmp_path / "bus.db") as work:
        small_segments(work, folder, 70)
        capture_all(work.url, folder)
        segments = Manifest.load(str(folder)).segments
        assert len(segments) < 12  # At most three of each size, and one more.
        assert captured(folder) == rows_of(work.events())
        assert [row["seq"] for row in bodies(folder)] == [each.seq for each in work.events() if each.kind == "sent"]


def test_a_damaged_segment_is_left_alone_and_told(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with working(tmp_path / "bus.db") as work:
        small_segments(work, folder, 8)
        (folder / Manifest.load(str(folder)).segments[3].file).write_bytes(b"nothing")
        monkeypatch.setattr(module, "TEND_S", 0.0)
        monkeypatch.setattr(compacting, "NEIGHBOURS", 4)
        with caplog.at_level(logging.WARNING):
            small_segments(work, folder, 3)
        assert caplog.text.count("compaction is switched off") == 1
        assert Manifest.load(str(folder)).last == work.last()


def test_retention_and_bodies_that_go_earlier(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEND_S", 0.0)
    with working(tmp_path / "bus.db") as work:
        small_segments(work, folder, 5)  # In the year of the test's clock: long ago.
        capture_all(work.url, folder, policy=Policy(bodies_keep_s=3_600.0))
        work.rig.send("a", 1)
        with capturing(work.url, folder, NOW) as capture:
            capture.step()
            capture.step()
        manifest = Manifest.load(str(folder))
        assert [each.bodies for each in manifest.segments] == [None] * len(manifest.segments)
        assert not list((folder / "bodies").iterdir())
        assert captured(folder) == rows_of(work.events())
        with capturing(work.url, folder, policy=Policy(keep_s=3_600.0)) as capture:
            capture.step()
        manifest = Manifest.load(str(folder))
        assert (manifest.segments, manifest.last) == ([], work.last())
        capture_all(work.url, folder)
        assert captured(folder) == []


def test_without_bodies_there_are_none(tmp_path: Path, folder: Path) -> None:
    with working(tmp_path / "bus.db") as work:
        work.steps(20)
        capture_all(work.url, folder, policy=Policy(bodies=False))
        assert bodies(folder) == []
        assert not list((folder / "bodies").iterdir())
