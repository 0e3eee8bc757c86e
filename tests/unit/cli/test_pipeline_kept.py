"""The cache that makes Spark start faster: one writer at a time, separate versions, and no incomplete entries."""

import os
import time
from pathlib import Path

import pytest

from unibus.pipeline.java import Java
from unibus.pipeline.jvm import TRAINER_S, UNUSED_S, Kept, Spark, cache_folder, can_start_here


@pytest.fixture
def spark(tmp_path: Path) -> Spark:
    home = tmp_path / "pyspark"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "spark-launcher_2.13-4.3.0.jar").write_bytes(b"")
    return Spark(home, "2.13", "4.3.0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir()
    return made


JAVA = Java(Path("java"), "17.0.15")


def test_versions_are_kept_apart(spark: Spark, folder: Path) -> None:
    kept = [Kept(JAVA, spark, folder), Kept(Java(JAVA.path, "21.0.1"), spark, folder)]
    kept.append(Kept(JAVA, Spark(spark.home, "2.13", "4.4.0"), folder))
    assert len({each.archive for each in kept}) == 3
    assert Kept(JAVA, spark, folder).archive == kept[0].archive


def test_one_at_a_time_makes_the_archive(spark: Spark, folder: Path) -> None:
    first, second = Kept(JAVA, spark, folder), Kept(JAVA, spark, folder)
    assert first.may_train()
    assert not second.may_train()
    long_ago = time.time() - TRAINER_S - 1
    os.utime(first.lock, (long_ago, long_ago))
    assert second.may_train()  # The process that began has ended.


def test_an_archive_is_used_once_it_is_there_and_forgotten_when_nobody_uses_it(spark: Spark, folder: Path) -> None:
    kept = Kept(JAVA, spark, folder)
    assert kept.archive_to_use() is None
    kept.archive.write_bytes(b"archive")
    long_ago = time.time() - UNUSED_S - 1
    os.utime(kept.archive, (long_ago, long_ago))
    assert kept.archive_to_use() == kept.archive
    assert kept.archive.stat().st_mtime > long_ago
    os.utime(kept.archive, (long_ago, long_ago))
    assert Kept(Java(JAVA.path, "21"), spark, folder).may_train()
    assert not kept.archive.exists()


@pytest.mark.parametrize("content", [None, "", "{", '{"a": 1}', "[1]"])
def test_a_command_that_is_no_command_is_worked_out_again(content: str | None, spark: Spark, folder: Path) -> None:
    kept = Kept(JAVA, spark, folder)
    if content is not None:
        kept.archive.with_suffix(".json").write_text(content)
    assert kept.command() is None
    kept.keep_command(["java", "-cp", "x"])
    assert kept.command() == ["java", "-cp", "x"]


def test_where_nothing_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNIBUS_CACHE", str(tmp_path / "file" / "below"))
    assert cache_folder() is None
    monkeypatch.setenv("UNIBUS_CACHE", str(tmp_path / "new"))
    assert cache_folder() == tmp_path / "new"


def test_settings_of_somebodys_own_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    assert can_start_here() == (os.name == "posix")
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert not can_start_here()
