"""A Java process that no caller receives is ended, at whatever point it is, and leaves nothing behind. The Java here is
a shell script, because only its end matters."""

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from unibus.errors import StoreUnavailable, Unauthorised, UsageError
from unibus.pipeline import session
from unibus.pipeline.java import Java
from unibus.pipeline.jvm import Kept, Machine, Spark
from unibus.pipeline.session import open_session

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Spark's own script starts it there")

PATIENCE_S = 60.0
NEVER_UP = "exec sleep 600"
UP = r"""
printf '\000\000\000\007\000\000\000\002ab' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.part"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.part" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
"""
READS = UP + 'cat; echo ended > "$ENDED"'
DEAF = UP + "exec sleep 600"

Fake = Callable[[str], Machine]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("UNIBUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ENDED", str(tmp_path / "ended"))
    home = tmp_path / "pyspark"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "spark-launcher_2.13-4.3.0.jar").write_bytes(b"")
    java, spark = Java(tmp_path / "java", "17.0.15"), Spark(home, "2.13", "4.3.0")
    monkeypatch.setattr(session, "find_java", lambda: java)
    monkeypatch.setattr(session, "find_spark", lambda: spark)
    monkeypatch.setattr(session, "_has_machine", lambda: False)
    monkeypatch.setattr(session, "can_start_here", lambda: True)

    def made(script: str) -> Machine:
        java.path.write_text(f"#!/bin/sh\n{script}\n")
        java.path.chmod(0o700)
        (tmp_path / "cache").mkdir()
        Kept(java, spark, tmp_path / "cache").keep_command([str(java.path), "SparkSubmit"])
        return Machine(java, spark, "1g", quick=True)

    return made


def nothing_is_left(folder: Path, machine: Machine, group: int) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while is_there(group):
        assert time.monotonic() < ends_s
        time.sleep(0.01)
    assert machine._process is None
    assert list((folder / "temporary").iterdir()) == []
    assert {each.suffix for each in (folder / "cache").iterdir()} == {".json"}  # No lock: the next start can write it.


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def group_of(machine: Machine) -> int:
    assert machine._process is not None
    return machine._process.group


def test_one_that_is_not_up_yet(fake: Fake, tmp_path: Path) -> None:
    machine = fake(NEVER_UP)
    machine.start()
    group = group_of(machine)
    assert is_there(group)
    machine.end()
    nothing_is_left(tmp_path, machine, group)


@pytest.mark.parametrize("script", [READS, DEAF])
def test_one_that_is_up_may_end_by_itself_and_ends_in_any_case(script: str, fake: Fake, tmp_path: Path) -> None:
    machine = fake(script)
    machine.start()
    group = group_of(machine)
    assert machine.wait() == (7, "ab")
    machine.end()
    nothing_is_left(tmp_path, machine, group)
    assert (tmp_path / "ended").exists() == (script == READS)


def test_the_end_of_this_process_is_enough(fake: Fake, tmp_path: Path) -> None:
    machine = fake(READS)
    machine.start()
    assert machine._process is not None
    os.close(machine._process.stdin)  # As the system does at exit, before Java has reported its port.
    ends_s = time.monotonic() + PATIENCE_S
    while is_there(machine._process.group):
        assert time.monotonic() < ends_s
        time.sleep(0.01)
    assert (tmp_path / "ended").exists()
    assert list((tmp_path / "temporary").iterdir()) == []
    assert machine._log is not None
    machine._log.close()


@pytest.mark.parametrize("script", [NEVER_UP, READS])
def test_a_ctrl_c_before_there_is_a_session(
    script: str, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = fake(script)
    groups = []

    def interrupted() -> bool:
        groups.append(group_of(machine))
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "Machine", lambda *arguments: machine)
    monkeypatch.setattr(machine, "_has_started", interrupted)
    with pytest.raises(KeyboardInterrupt), session._gateway({}, quick=True):
        pytest.fail("no process gets it")
    nothing_is_left(tmp_path, machine, groups[0])


def test_a_python_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    with pytest.raises(UsageError, match=r"'/nowhere/python', which is not a program .*PYSPARK_PYTHON"):
        open_session("local[1]")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    session._check_python("local[1]")


def test_what_a_connect_server_answers() -> None:
    url = "sc://localhost:15002/;token=t"
    refused = session._refused(url, '(grpc) status = StatusCode.UNAUTHENTICATED\n\tdetails = "Invalid token"')
    assert isinstance(refused, Unauthorised)
    assert "token=" not in refused.what
    assert "unibus pipeline serve" in refused.hint
    other = session._refused(url, "StatusCode.UNAVAILABLE\nmore\nand more")
    assert isinstance(other, StoreUnavailable)
    assert "\n" not in other.what


def test_a_note_about_a_ctrl_c_is_dropped_and_no_other() -> None:
    def record(error: BaseException) -> logging.LogRecord:
        return logging.LogRecord("root", logging.ERROR, "", 1, "it", (), (type(error), error, None))

    behind = OSError("cut")
    behind.__context__ = KeyboardInterrupt()
    assert not session._is_news(record(KeyboardInterrupt()))
    assert not session._is_news(record(behind))
    assert session._is_news(record(OSError("another")))
    ended = record(ConnectionResetError("Connection reset by peer"))
    assert session._is_news(ended)
    ended.msg = "Exception while sending command."
    assert not session._is_news(ended)
    assert session._is_news(logging.LogRecord("root", logging.ERROR, "", 1, "it", (), None))
