"""Commands of the pipeline that need no Spark: how a lake stands, where a message went, and what is asked too early."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.pipeline.asked_lake import Asked, made_in
from unibus.capture.sources import open_sources
from unibus.cli.pipeline_trace import tree_of
from unibus.pipeline.lake import Lake
from unibus.pipeline.questions.tracing import find_events
from unibus.pipeline.run import run_once


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return made_in(tmp_path_factory.mktemp("asked"), 400)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["report", "latency"], 4, "there is no lake unibus-lake"),
        (["sql", "SELECT 1"], 4, "there is no lake unibus-lake"),
        (["sql", "DELETE FROM messages"], 2, "only a SELECT is answered, not DELETE"),
        (["status"], 4, "`unibus pipeline run --once` makes it"),
        (["compact"], 4, "there is no lake"),
        (["vacuum"], 4, "there is no lake"),
        (["rebuild"], 4, "there is no lake"),
        (["serve"], 4, "there is no lake"),
        (["run", "--once"], 4, "there is no history to read"),
        (["run", "--once", "--from", "nowhere"], 4, "there is no nowhere"),
        (["run", "--once", "--from", "."], 4, "holds no capture"),
        (["run", "--once", "--from", "redis://host"], 4, "cannot be read beside its owner"),
        (["run", "--once", "--from", "sqlite:///absent.db"], 4, "absent.db"),
        (["run", "--once", "--every", "2s"], 2, "contradict"),
        (["run", "--every", "soon"], 2, "is no time"),
        (["report", "latency", "--csv", "--json"], 2, "contradict"),
        (["report", "latency", "--since", "soon"], 2, "is no time"),
        (["report", "nonsense"], 2, "nonsense"),
        (["trace", "m-1"], 4, "there is no history to read"),
        (["vacuum", "--keep", "messages"], 2, "is not TABLE=TIME"),
    ],
)
def test_one_line_for_what_is_not_there(arguments: list[str], code: int, told: str, shell: Any) -> None:
    result = shell("pipeline", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("error: ")
    assert told in result.stderr
    assert len(result.stderr.splitlines()) <= 2


def test_a_lake_before_its_first_batch(shell: Any) -> None:
    Lake("unibus-lake").remember(["captured"])
    for arguments in (["report", "channels"], ["sql", "SELECT 1"]):
        result = shell("pipeline", *arguments)
        assert (result.exit_code, result.stdout) == (4, "")
        assert result.stderr.endswith("hint: `unibus pipeline run --once` fills it\n")


def test_nobody_is_asked_in_a_pipe(shell: Any, asked: Asked) -> None:
    for command in ("vacuum", "rebuild"):
        result = shell("pipeline", command, "--lake", str(asked.path))
        assert (result.exit_code, result.stdout) == (2, "")
        assert "--yes does it without asking" in result.stderr


def test_status_tells_how_far_it_is(shell: Any, asked: Asked) -> None:
    found = shell.records("pipeline", "status", "--lake", str(asked.path))[0]
    last = Counter(each["domain"] for each in asked.events)
    assert {each["domain"]: each["up_to"] for each in found["domains"]} == dict(last)
    assert {(each["events_behind"], each["seconds_behind"]) for each in found["domains"]} == {(0, 0)}
    assert sum(each["events"] for each in found["batches"]) == len(asked.events)
    assert found["batch"] == found["batches"][0]["number"] == len(found["batches"])
    sizes = {each["table"]: each for each in found["tables"]}
    assert sizes["batches"]["rows"] == found["batch"]
    assert all(each["bytes"] > 0 for each in sizes.values())
    assert (found["quarantined"], found["server"]) == (0, "")


def test_status_tells_what_waits_and_what_was_left_out(shell: Any, asked: Asked, tmp_path: Path) -> None:
    sources = open_sources(str(asked.captures))
    lake = Lake(str(tmp_path / "lake"))
    segment = sorted((asked.captures / sources[0].domain / "segments").iterdir())[0]
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-1])
    try:
        run_once(None, lake, sources[:1], max_events=1)
    finally:
        segment.write_bytes(whole)
    lake.remember([source.where for source in sources])
    found = shell.records("pipeline", "status", "--lake", lake.path)[0]
    assert found["quarantined"] == 1
    assert found["quarantine"][0]["reason"] == "size"
    behind = {each["domain"]: each for each in found["domains"]}
    assert behind[sources[1].domain]["events_behind"] == sources[1].last()
    assert behind[sources[1].domain]["seconds_behind"] > 0


def test_nothing_new_starts_no_spark(shell: Any, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    result = shell("pipeline", "run", "--once", "--lake", str(asked.path))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    result = shell("pipeline", "run", "--once", "--lake", "new", "--from", str(asked.captures))
    assert result.exit_code == 2
    assert "JAVA_HOME is /nowhere" in result.stderr


def test_compacting_keeps_what_is_counted(shell: Any, asked: Asked) -> None:
    before = sum(each["n"] for each in _rows(asked.lake, "channel_minute"))
    found = shell.records("pipeline", "compact", "--lake", str(asked.path))
    assert {each["table"] for each in found} >= {"messages", "channel_minute"}
    assert sum(each["n"] for each in _rows(asked.lake, "channel_minute")) == before == len(asked.events)


def _rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    folder = lake.folder(table)
    return list(folder.read(folder.files()).to_pylist())


# The way of a message


def way(asked: Asked, column: str, wanted: str) -> list[tuple[str, int]]:
    found = [each for each in asked.events if each[column] == wanted]
    return sorted((each["domain"], each["seq"]) for each in found)


def test_a_message_id_is_found_by_the_bloom_filters(shell: Any, asked: Asked) -> None:
    wanted = next(each["message_id"] for each in asked.of("dead_lettered"))
    found = shell.records("pipeline", "trace", wanted, "--lake", str(asked.path))
    assert sorted((each["domain"], each["seq"]) for each in found) == way(asked, "message_id", wanted)
    assert [each["at"] for each in found] == sorted(each["at"] for each in found)
    again = shell.records("pipeline", "trace", wanted, "--from", str(asked.captures))
    assert again == found


@pytest.mark.parametrize("column", ["correlation_id", "trace_id"])
def test_other_ids_are_found_over_domains(column: str, shell: Any, asked: Asked) -> None:
    counts = Counter(each[column] for each in asked.events if each[column] is not None)
    wanted = counts.most_common(1)[0][0]
    found = shell.records("pipeline", "trace", wanted, "--lake", str(asked.path))
    assert sorted((each["domain"], each["seq"]) for each in found) == way(asked, column, wanted)
    assert found


def test_an_id_that_nobody_knows(shell: Any, asked: Asked) -> None:
    result = shell("pipeline", "trace", "nobody", "--lake", str(asked.path))
    assert (result.exit_code, result.stdout) == (3, "")
    assert "no segment has anything of 'nobody'" in result.stderr


def test_every_message_is_found(asked: Asked) -> None:
    sources = open_sources(str(asked.captures))
    for wanted in {each["message_id"] for each in asked.events[::97] if each["message_id"]}:
        found = find_events(sources, wanted)
        assert sorted((each.domain, each.seq) for each in found.events) == way(asked, "message_id", wanted)


def test_a_segment_that_cannot_be_read_hides_only_itself(asked: Asked, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "captures"
    shutil.copytree(asked.captures, copy)
    domain = asked.events[0]["domain"]
    segment = sorted((copy / domain / "segments").iterdir())[0]
    segment.write_bytes(b"nothing")
    wanted = asked.events[-1]["message_id"] or next(each["message_id"] for each in asked.events[::-1])
    found = find_events(open_sources(str(copy)), wanted)
    assert found.unread == 1
    assert found.events


def test_the_way_as_a_tree(asked: Asked) -> None:
    traces = {}
    for each in asked.events:
        if each["trace_id"] and each["message_id"]:
            traces.setdefault(each["trace_id"], set()).add((each["domain"], each["message_id"]))
    wanted = max(traces, key=lambda trace: len(traces[trace]))
    found = find_events(open_sources(str(asked.captures)), wanted)
    console = Console(file=io.StringIO(), width=160)
    console.print(tree_of(found))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith(f"trace {wanted}  {len(traces[wanted])} messages in ")
    text = "\n".join(lines)
    assert all(message_id in text for _, message_id in traces[wanted])
    assert json.dumps(found.by) == '"trace_id"'
