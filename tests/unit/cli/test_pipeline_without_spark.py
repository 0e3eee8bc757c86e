"""Commands of the pipeline without Spark: the status, the trace, and errors that are found before Spark starts."""

import io
import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.pipeline.asked_lake import Asked, made_in
from unibus.capture.sources import open_sources
from unibus.cli.pipeline.maintenance import report_rebuilt
from unibus.cli.pipeline.trace import tree_of
from unibus.pipeline.lake import Lake
from unibus.pipeline.reports.tracing import find_events
from unibus.pipeline.run import run_once
from unibus.sync import MessageBus


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    return made_in(tmp_path_factory.mktemp("asked"), 400)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["report", "latency"], 4, "lake unibus-lake does not exist"),
        (["sql", "SELECT 1"], 4, "lake unibus-lake does not exist"),
        (["sql", "DELETE FROM messages"], 2, "only a SELECT is allowed, not DELETE"),
        (["status"], 4, "`unibus pipeline run --once` creates it; --lake or UNIBUS_LAKE names another"),
        (["compact"], 4, "lake unibus-lake does not exist"),
        (["vacuum"], 4, "lake unibus-lake does not exist"),
        (["rebuild"], 4, "lake unibus-lake does not exist"),
        (["serve"], 4, "lake unibus-lake does not exist"),
        (["run", "--once"], 4, "there is no history to read"),
        (["run", "--once", "--from", "nowhere"], 4, "source nowhere does not exist"),
        (["run", "--once", "--from", "."], 4, "holds no capture"),
        (["run", "--once", "--from", "redis://host"], 4, "can only be read by the bus that owns it"),
        (["run", "--once", "--from", "sqlite:///absent.db"], 4, "absent.db"),
        (["run", "--once", "--from", "absent.db"], 4, "source absent.db does not exist"),
        (["run", "--once", "--every", "2s"], 2, "exclude each other"),
        (["run", "--every", "soon"], 2, "is not a duration"),
        (["report", "latency", "--csv", "--json"], 2, "exclude each other"),
        (["report", "latency", "--since", "soon"], 2, "is not a time"),
        (["report", "latency", "--since", "1767654000"], 2, "could be a duration or a date"),
        (["report", "nonsense"], 2, "nonsense"),
        (["trace", "m-1"], 4, "there is no history to read"),
        (["trace", "m-1", "--lake", "typo"], 4, "lake typo does not exist"),
        (["report"], 2, "Choose from: channels, latency, "),
        (["vacuum", "--keep", "messages"], 2, "is not TABLE=DURATION"),
        (["run", "--once", "--lake", "s3://bucket/lake"], 2, "a lake cannot be at 's3://bucket/lake'"),
        (["run", "--once", "--from", "s3://bucket/history"], 2, "s3:// is not supported"),
        (["serve", "--every", "2s", "--lake", "abfss://a@b/lake"], 2, "abfss:// is not supported"),
        (["status", "--lake", "gs://bucket/lake"], 2, "gs:// is not supported"),
        (["trace", "m-1", "--lake", "gs://bucket/lake"], 2, "gs:// is not supported"),
        (["generate", "--messages", "9", "--out", "s3://bucket/history"], 2, "s3:// is not supported"),
        (["status", "--lake", "file:///absent/lake"], 4, "lake /absent/lake does not exist"),
    ],
)
def test_one_line_for_what_is_not_there(arguments: list[str], code: int, told: str, shell: Any) -> None:
    result = shell("pipeline", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("error: ")
    assert told in result.stderr
    assert len(result.stderr.splitlines()) <= 2
    assert list(shell.folder.iterdir()) == []


def test_a_lake_in_the_environment_that_is_no_folder(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIBUS_LAKE", "s3://bucket/lake")
    result = shell("pipeline", "status")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "s3:// is not supported" in result.stderr


def test_a_lake_before_its_first_batch(shell: Any) -> None:
    Lake("unibus-lake").remember([])
    for arguments in (["report", "channels"], ["sql", "SELECT 1"]):
        result = shell("pipeline", *arguments)
        assert (result.exit_code, result.stdout) == (4, "")
        assert result.stderr.endswith("hint: `unibus pipeline run --once` fills it\n")


def test_nobody_is_asked_in_a_pipe(shell: Any, asked: Asked) -> None:
    for command in ("vacuum", "rebuild"):
        result = shell("pipeline", command, "--lake", str(asked.path))
        assert (result.exit_code, result.stdout) == (2, "")
        assert "add --yes to run without asking" in result.stderr


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
    lake.remember(sources)
    found = shell.records("pipeline", "status", "--lake", lake.path)[0]
    assert found["quarantined"] == 1
    assert found["quarantine"][0]["reason"] == "size"
    behind = {each["domain"]: each for each in found["domains"]}
    assert behind[sources[1].domain]["events_behind"] == sources[1].last()
    assert behind[sources[1].domain]["seconds_behind"] > 0


def test_status_tells_of_the_others_where_a_source_cannot_be_read(shell: Any, asked: Asked, tmp_path: Path) -> None:
    shutil.copytree(asked.captures, "captures")
    lake = Lake(str(tmp_path / "lake"))
    sources = open_sources("captures")
    run_once(None, lake, sources)
    first, second = (source.domain for source in sources)
    last = sources[1].last()
    about = Path("captures", first, "capture.json")
    about.write_bytes(b"{")
    found = _domains(shell, lake)
    assert (found[second]["last"], found[second]["error"]) == (last, "")
    assert found[first]["up_to"] == sources[0].last()
    assert f"{about.absolute()} is damaged" in found[first]["error"]
    shutil.rmtree(about.parent)
    found = _domains(shell, lake)
    assert (found[second]["last"], found[first]["error"]) == (last, "no source has it any more")
    shutil.rmtree("captures")
    found = _domains(shell, lake)
    assert found[""]["error"] == f"source {Path('captures').absolute()} does not exist"
    assert {first, second} < set(found)


def _domains(shell: Any, lake: Lake) -> dict[str, dict[str, Any]]:
    [found] = shell.records("pipeline", "status", "--lake", lake.path)
    return {each["domain"]: each for each in found["domains"]}


def test_a_person_reads_times_in_utc(terminal: Any, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    last = asked.lake.last_batch()
    assert last is not None
    shown = terminal("pipeline", "status", "--lake", str(asked.path), columns=200)
    assert shown.read_all() == 0
    assert "at (UTC)" in shown.output
    assert f"{last['at']:%Y-%m-%d %H:%M:%S}" in shown.output


def test_the_path_of_a_file_is_a_store(shell: Any) -> None:
    with MessageBus("bus.db") as bus:
        bus.send("orders", 1)
        wanted = bus.peek("orders")[0].id
    found = shell.records("pipeline", "trace", wanted, "--from", "bus.db")
    assert [each["kind"] for each in found] == ["sent"]
    assert found == shell.records("pipeline", "trace", wanted, "--from", "sqlite:///bus.db")


def test_a_lake_that_cannot_be_made(shell: Any, asked: Asked) -> None:
    Path("file").touch()
    for lake in ("file", "file/below", *(["/proc/below"] if sys.platform == "linux" else [])):
        result = shell("pipeline", "run", "--once", "--from", str(asked.captures), "--lake", lake)
        assert (result.exit_code, result.stdout) == (4, "")
        assert result.stderr.endswith("hint: name another folder: --lake DIR\n")
    assert [path.name for path in Path().iterdir()] == ["file"]


def test_a_log_that_cannot_be_written(shell: Any, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIBUS_SPARK_LOG", "absent/log")
    for arguments in (["run", "--from", str(asked.captures)], ["report", "channels", "--lake", str(asked.path)]):
        result = shell("pipeline", *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "UNIBUS_SPARK_LOG is absent/log, which is not writable" in result.stderr


def test_a_damaged_lake_is_told_by_every_command(shell: Any) -> None:
    Path("unibus-lake").mkdir()
    Path("unibus-lake", "lake.json").write_bytes(b"{")
    told = {shell("pipeline", *words).stderr for words in (["run", "--once"], ["status"], ["trace", "x"], ["rebuild"])}
    assert len(told) == 1
    assert "lake.json is damaged" in told.pop()


def test_what_is_asked_before_something_goes(terminal: Any, asked: Asked) -> None:
    lake = ("--lake", str(asked.path))
    for words, question in (
        (["rebuild"], f"Rebuild all tables of {asked.path} from"),
        (["vacuum", "--older", "1s"], "that are unused for one whole hour"),
        (["vacuum", "--older", "61m"], "that are unused for 2 whole hours"),
    ):
        asking = terminal("pipeline", *words, *lake, columns=200)
        asking.read_until(question)
        asking.read_until("[y/N]")
        asking.type(b"n\n")
        assert asking.read_all() == 1


def test_a_rebuild_tells_its_batches_and_where_the_lake_is(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    report_rebuilt(1, 3)
    assert json.loads(capsysbinary.readouterr().out) == {"rebuilt": True, "batches": 1, "batch": 3}


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


# The path of a message


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
    assert "no segment has an event of 'nobody'" in result.stderr


def test_every_message_is_found(asked: Asked) -> None:
    sources = open_sources(str(asked.captures))
    for wanted in {each["message_id"] for each in asked.events[::97] if each["message_id"]}:
        found = find_events(sources, wanted)
        assert sorted((each.domain, each.seq) for each in found.events) == way(asked, "message_id", wanted)


def test_a_segment_that_cannot_be_read_hides_only_itself(shell: Any, asked: Asked, tmp_path: Path) -> None:
    copy = tmp_path / "captures"
    shutil.copytree(asked.captures, copy)
    domain = asked.events[0]["domain"]
    segment = sorted((copy / domain / "segments").iterdir())[0]
    segment.write_bytes(b"nothing")
    wanted = asked.events[-1]["message_id"] or next(each["message_id"] for each in asked.events[::-1])
    found = find_events(open_sources(str(copy)), wanted)
    assert found.unread == [str(segment)]
    assert found.events
    told = shell("pipeline", "trace", "nobody", "--from", copy).stderr
    assert told.startswith(f"1 segment could not be read: {segment}\nerror: no segment has an event of 'nobody'\n")


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


def test_a_source_that_is_set_aside_is_a_warning(shell: Any, asked: Asked, tmp_path: Path) -> None:
    shutil.copytree(asked.captures, tmp_path / "captures")
    shutil.copytree(asked.path, tmp_path / "lake")
    first, second = sorted(path.name for path in (tmp_path / "captures").iterdir())
    with open(tmp_path / "captures" / first / "manifest.jsonl", "ab") as file:
        file.write(b"junk\n")
    run = ("pipeline", "run", "--once", "--lake", str(tmp_path / "lake"), "--from", str(tmp_path / "captures"))
    result = shell(*run)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"warning: '{first}' ({tmp_path}/captures/{first}) is set aside" in result.stderr
    assert result.stderr.count("warning: ") == 1
    [found] = shell.records("pipeline", "status", "--lake", str(tmp_path / "lake"))
    domains = {each["domain"]: each for each in found["domains"]}
    assert (domains[first]["set_aside"], domains[second]["set_aside"]) == (True, False)
    assert "manifest.jsonl is damaged" in domains[first]["error"]
    result = shell(*run, "--bad", "fail")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "manifest.jsonl is damaged" in result.stderr


def test_a_trace_is_found_beside_a_source_that_is_damaged(shell: Any, asked: Asked, tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    shutil.copytree(asked.captures, captures)
    first, second = sorted(path.name for path in captures.iterdir())
    wanted = next(each["message_id"] for each in asked.of("sent") if each["domain"] == second)
    (captures / first / "capture.json").write_bytes(b"{")
    result = shell("pipeline", "trace", wanted, "--from", str(captures))
    assert result.exit_code == 0
    assert {json.loads(line)["domain"] for line in result.stdout.splitlines()} == {second}
    assert result.stderr == f"1 source could not be read: {captures / first}\n"
