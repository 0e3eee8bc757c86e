"""Files of a partition lie in the folder of its value, so that readers who look at paths see the same rows."""

import os
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from tests.pipeline.lake_histories import history, write_segments
from tests.pipeline.lake_reference import expected, tables_of
from unibus.capture.sources import open_sources
from unibus.pipeline.lake import Lake
from unibus.pipeline.rebuild import rebuild
from unibus.pipeline.run import run_all
from unibus.pipeline.storage import files
from unibus.pipeline.upkeep import compact, retain, vacuum

EVENTS = history(9, 160)
FOLDERS = {"open=true", "open=false"}


@pytest.fixture
def capture(tmp_path: Path) -> str:
    return str(write_segments(tmp_path / "capture", EVENTS))


def fill(lake: Lake, capture: str) -> None:
    list(run_all(None, lake, open_sources(capture), max_events=60))


@pytest.fixture
def lake(tmp_path: Path, capture: str) -> Lake:
    made = Lake(str(tmp_path / "lake"))
    fill(made, capture)
    return made


@pytest.fixture
def old_lake(tmp_path: Path, capture: str, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """As versions made it that had all files of a table in one folder."""
    made = Lake(str(tmp_path / "lake"))
    with monkeypatch.context() as patch:
        patch.setattr(files, "path_of", lambda name, table, open_: name)
        fill(made, capture)
    return made


def truth() -> Counter[bool]:
    return Counter(row["open"] for row in expected(EVENTS)["messages"])


def folders_of(lake: Lake) -> set[str]:
    return {os.path.basename(os.path.dirname(path)) for path in lake.files("messages")}


def by_path(lake: Lake) -> Counter[bool | None]:
    """Readers that take the partition from the path, as Polars does."""
    paths = lake.files("messages")
    found = ds.dataset(paths, partitioning="hive", partition_base_dir=lake.folder("messages").path)
    table = found.to_table(columns=["open"] if "open" in found.schema.names else [])
    told = table["open"].to_pylist() if table.num_columns else [None] * table.num_rows
    return Counter(None if value is None else value == "true" for value in told)


def by_log(lake: Lake) -> Counter[bool]:
    """Readers that take it from the log of Delta."""
    dataset = DeltaTable(lake.folder("messages").path).to_pyarrow_dataset()
    return Counter(dataset.to_table(columns=["open"])["open"].to_pylist())


def test_files_lie_in_the_folder_of_their_partition(lake: Lake) -> None:
    assert folders_of(lake) == FOLDERS
    assert by_path(lake) == by_log(lake) == truth()
    assert {os.path.dirname(path) for path in lake.files("traces")} == {lake.folder("traces").path}


def test_upkeep_leaves_them_there(lake: Lake, capture: str) -> None:
    list(rebuild(None, lake, open_sources(capture), max_events=60))
    assert folders_of(lake) == FOLDERS
    compact(lake)
    retain(lake, {"messages": 1}, 2)
    assert vacuum(lake, hours=0)
    assert folders_of(lake) == FOLDERS
    assert by_path(lake) == by_log(lake) == truth()
    assert tables_of(lake) == expected(EVENTS)


def test_a_lake_of_an_earlier_version_is_read_and_moved_by_compaction(old_lake: Lake) -> None:
    assert folders_of(old_lake) == {"messages"}
    assert by_log(old_lake) == truth()
    assert tables_of(old_lake) == expected(EVENTS)
    before = {path: os.stat(path).st_mode for path in old_lake.files("messages")}
    compact(old_lake)
    assert folders_of(old_lake) == FOLDERS
    assert by_path(old_lake) == by_log(old_lake) == truth()
    assert all(os.path.exists(path) for path in before)  # A reader may have them open.
    assert vacuum(old_lake, hours=0)
    assert not any(os.path.exists(path) for path in before)
    assert tables_of(Lake(old_lake.path)) == expected(EVENTS)


def test_a_move_without_links_is_a_copy(old_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: str, target: str) -> None:
        raise OSError("this file system has no links")

    monkeypatch.setattr(os, "link", no_links)
    compact(old_lake)
    assert folders_of(old_lake) == FOLDERS
    assert {os.stat(path).st_mode & 0o777 for path in old_lake.files("messages")} == {0o600}
    assert tables_of(old_lake) == expected(EVENTS)


def test_an_old_lake_goes_on_with_new_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = write_segments(tmp_path / "capture", EVENTS[:100])
    lake = Lake(str(tmp_path / "lake"))
    with monkeypatch.context() as patch:
        patch.setattr(files, "path_of", lambda name, table, open_: name)
        fill(lake, str(capture))
    write_segments(capture, EVENTS[100:])
    fill(lake, str(capture))
    assert folders_of(lake) == {"messages", *FOLDERS}
    assert tables_of(lake) == expected(EVENTS)
