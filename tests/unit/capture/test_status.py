"""The status reports what the directory and the store hold."""

import os
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from tests.unit.capture.captures import capture_all, capturing
from tests.unit.capture.histories import working
from unibus.capture.redaction import rule_of
from unibus.capture.segments import SegmentWriter
from unibus.capture.settings import Policy
from unibus.capture.status import status_of
from unibus.errors import CaptureMismatch, StoreUnavailable
from unibus.stores.schemes import open_history


def test_how_far_how_large_how_old(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    with working(tmp_path / "bus.db") as work, closing(open_history(work.url)) as reader:
        work.steps(10)
        rows = work.events()
        capture_all(work.url, folder, policy=Policy(keep_s=1e9, redact=(rule_of("a=drop"),)))
        stood = work.last()
        now_us = rows[-1].ts + 5_000_000
        status = status_of(str(folder), reader, now_us)
        assert (status.first, status.last, status.events, status.segments) == (1, stood, stood, 1)
        assert (status.lag_events, status.lag_s, status.missed) == (0, 0.0, 0)
        assert (status.oldest_us, status.newest_us) == (rows[0].ts, max(each.ts for each in rows))
        assert status.bytes == sum(path.stat().st_size for path in (folder / "segments").iterdir())
        assert status.bodies_bytes == sum(path.stat().st_size for path in (folder / "bodies").iterdir())
        assert (status.keep_s, status.redact, status.running) == (1e9, ["a=drop"], None)
        work.rig.send("a", 1)
        work.rig.send("a", 2)
        waiting = work.events(stood)
        status = status_of(str(folder), reader, waiting[0].ts + 7_000_000)
        assert (status.lag_events, status.lag_s) == (len(waiting), 7.0)
        assert status_of(str(folder)).lag_events is None


def test_who_is_at_it(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    with working(tmp_path / "bus.db") as work, capturing(work.url, folder):
        status = status_of(str(folder))
        assert (status.running, status.segments, status.sealed_s, status.oldest_us) == (os.getpid(), 0, None, None)
    assert status_of(str(folder)).running is None
    (folder / "capture.lock").write_text('{"pid": 999999999, "host": "elsewhere", "program": "x"}')
    assert status_of(str(folder)).running == 999999999  # Not verifiable from this host.
    (folder / "capture.lock").write_text("no text of ours")
    assert status_of(str(folder)).running is None


def test_a_lock_file_of_another_user_does_not_hide_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SegmentWriter(str(tmp_path), "d").close()

    def refused(path: str, mode: str) -> NoReturn:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("unibus.capture.status.open", refused, raising=False)
    assert status_of(str(tmp_path)).running is None


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    SegmentWriter(str(tmp_path / "capture"), "other").close()
    with (
        working(tmp_path / "bus.db") as work,
        closing(open_history(work.url)) as reader,
        pytest.raises(CaptureMismatch, match="'other'"),
    ):
        status_of(str(tmp_path / "capture"), reader)
    with pytest.raises(StoreUnavailable):
        status_of(str(tmp_path / "nowhere"))
