"""Upkeep of a lake with an interrupted batch, or that a newer version has changed."""

import json
import os
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from tests.pipeline.lake_histories import history, write_segments
from tests.pipeline.lake_reference import expected, tables_of
from unibus.capture.sources import open_sources
from unibus.cli.pipeline.maintenance import vacuum as vacuum_command
from unibus.errors import LakeIncomplete, StoreVersion
from unibus.pipeline.lake import Lake
from unibus.pipeline.rebuild import rebuild
from unibus.pipeline.run import run_all, run_once
from unibus.pipeline.storage.delta import DeltaFolder
from unibus.pipeline.upkeep import compact, retain, vacuum

EVENTS = history(9, 120)


class Stopped(Exception):
    pass


@pytest.fixture
def capture(tmp_path: Path) -> str:
    return str(write_segments(tmp_path / "capture", EVENTS))


@pytest.fixture
def lake(tmp_path: Path, capture: str) -> Lake:
    made = Lake(str(tmp_path / "lake"))
    list(run_all(None, made, open_sources(capture)))
    return made


def stop_exchanging(lake: Lake, capture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild that ends after files were moved, and before the commit that names them."""
    commit = DeltaFolder.commit

    def stopped(folder: DeltaFolder, *given: object, **named: object) -> None:
        if ".rebuild" not in folder.path:
            raise Stopped
        commit(folder, *given, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(DeltaFolder, "commit", stopped)
        with pytest.raises(Stopped):
            list(rebuild(None, lake, open_sources(capture)))
    assert os.path.exists(os.path.join(lake.path, "swap.json"))


def test_vacuum_finishes_a_rebuild_first(lake: Lake, capture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_exchanging(lake, capture, monkeypatch)
    vacuum(Lake(lake.path), hours=0)
    assert tables_of(lake) == expected(EVENTS)
    assert not os.path.exists(os.path.join(lake.path, "swap.json"))


@pytest.mark.parametrize("older", ["59m", "1s"])
def test_a_part_of_an_hour_is_no_less_than_an_hour(
    lake: Lake, capture: str, capsys: pytest.CaptureFixture[str], older: str
) -> None:
    list(rebuild(None, lake, open_sources(capture)))
    vacuum_command(older=older, yes=True, lake=Path(lake.path))
    assert json.loads(capsys.readouterr().out)["files"] == 0
    assert vacuum(lake, hours=0)


def test_vacuum_removes_what_ended_work_has_left(lake: Lake) -> None:
    for name in (".staging", ".rebuild"):
        os.makedirs(os.path.join(lake.path, name, "messages"))
    gone = vacuum(lake, hours=24)
    assert sorted(os.path.basename(path) for path in gone) == [".rebuild", ".staging"]
    assert not any(os.path.exists(path) for path in gone)


def test_a_rebuild_whose_files_are_gone_is_made_again(
    lake: Lake, capture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_exchanging(lake, capture, monkeypatch)
    for path in (Path(lake.path) / ".rebuild").rglob("*.parquet"):
        path.unlink()
    again = Lake(lake.path)
    with pytest.raises(LakeIncomplete, match="rebuild"):
        list(run_all(None, again, open_sources(capture)))
    list(rebuild(None, again, open_sources(capture)))
    assert tables_of(again) == expected(EVENTS)
    assert list(run_all(None, again, open_sources(capture))) == []


@pytest.mark.parametrize("verb", [compact, vacuum, lambda lake: retain(lake, {"messages": 0}, 0)])
def test_a_batch_that_was_ended_half_way_is_finished_first(tmp_path: Path, capture: str, verb: object) -> None:
    lake = Lake(str(tmp_path / "half"))

    def stop(step: str, share: float) -> None:
        if step == "messages":
            raise Stopped

    with pytest.raises(Stopped):
        run_once(None, lake, open_sources(capture), progress=stop)
    with pytest.raises(LakeIncomplete, match="run --once"):
        verb(lake)  # type: ignore[operator]
    (result,) = run_all(None, lake, open_sources(capture))
    assert result.closed == sum(not row["open"] for row in tables_of(lake)["messages"])
    verb(lake)  # type: ignore[operator]


@pytest.mark.parametrize("table", ["messages", "channel_minute"])
def test_columns_of_a_newer_version_are_never_lost(tmp_path: Path, lake: Lake, capture: str, table: str) -> None:
    folder = lake.folder(table)
    DeltaTable(folder.path).alter.add_columns([Field("region", PrimitiveType("string"), nullable=True)])
    write_segments(Path(capture), history(9, 200))
    with pytest.raises(StoreVersion, match="'region' of a newer version"):
        list(run_all(None, Lake(lake.path), open_sources(capture)))
    assert "region" in Lake(lake.path).folder(table).schema().names
