"""A part of Spark that ended: which error says so, and how often the same is tried again. Without Spark."""

import logging
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException

from unibus.cli.pipeline import maintenance as pipeline_care
from unibus.cli.pipeline import run as pipeline_run
from unibus.cli.pipeline.serve import _wait
from unibus.errors import BusError, JobFailed, SparkLost, WorkerLost
from unibus.pipeline import run
from unibus.pipeline.lake import Lake
from unibus.pipeline.lost import ATTEMPTS, lost
from unibus.pipeline.reports import asking
from unibus.pipeline.reports.answer import Answer
from unibus.pipeline.reports.request import ReportRequest
from unibus.pipeline.serving.server import Answers

CRASHED = (
    "Job aborted due to stage failure: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)."
)
PAGE = "\n".join([CRASHED, *["\tat org.apache.spark.Somewhere.run(Somewhere.scala:1)"] * 130])


UNAVAILABLE = """<_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses; last error: UNKNOWN: Connection refused"
>"""  # As pyspark 4.3 raises it.


class Py4JNetworkError(Exception):  # By its name, as the real one is known.
    pass


class JavaError(Exception):
    """As py4j raises it: with the object of Java."""

    java_exception = None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PySparkException(PAGE), WorkerLost),
        (JavaError(PAGE), WorkerLost),
        (JavaError("An error occurred while calling o6.x.\n: java.net.SocketException: Broken pipe"), WorkerLost),
        (Py4JNetworkError("Answer from Java side is empty"), SparkLost),
        (ConnectionRefusedError("refused"), SparkLost),
        (PySparkException("division by zero"), type(None)),
        (PySparkException(UNAVAILABLE), SparkLost),
        (PySparkException("[INVALID_HANDLE.SESSION_NOT_FOUND] The handle 7 is invalid."), SparkLost),
        (PySparkException("[INVALID_HANDLE.SESSION_CHANGED] The handle 7 is invalid."), SparkLost),
        (ValueError(UNAVAILABLE), type(None)),
        (ValueError(CRASHED), type(None)),
    ],
)
def test_what_ended_is_known_from_the_error(error: Exception, kind: type) -> None:
    found = lost(error)
    assert type(found) is kind
    assert found is None or len(str(found).splitlines()) == 1


class Spark:
    """Jobs with given results, one after the other."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)

    def addTag(self, tag: str) -> None: ...

    def interruptTag(self, tag: str) -> None: ...

    def range(self, *numbers: int) -> "Spark":
        return self

    def mapInArrow(self, function: object, schema: str) -> "Spark":
        return self

    def collect(self) -> list[dict[str, str]]:
        end = self.ends.pop(0)
        if end is not None:
            raise end
        return [{"answer": '{"events":7}'}]

    def newSession(self) -> "Spark":
        return self


def job(spark: Spark, folder: Path) -> list[Any]:
    return run._run(cast(Any, spark), cast(Any, [None]), str(folder), lambda share: None)


def test_a_job_whose_worker_ended_is_started_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        [done] = job(Spark(JavaError(PAGE), JavaError(PAGE), None), tmp_path)
    assert done.events == 7
    assert [each.getMessage() for each in caplog.records] == [
        "a Python worker of Spark ended during a job; the job is started again"
    ] * 2


def test_a_worker_that_ends_each_time_is_one_line(tmp_path: Path) -> None:
    spark = Spark(*[JavaError(PAGE)] * ATTEMPTS)
    with pytest.raises(WorkerLost) as caught:
        job(spark, tmp_path)
    assert len(str(caught.value).splitlines()) == 1
    assert spark.ends == []


def test_an_error_of_java_is_one_line(tmp_path: Path) -> None:
    page = PAGE.replace(CRASHED, "An error occurred while calling o6.collect.\n: java.lang.OutOfMemoryError: Java heap")
    with pytest.raises(JobFailed, match=r"the Spark job failed: java\.lang\.OutOfMemoryError: Java heap") as caught:
        job(Spark(JavaError(page)), tmp_path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_machine_that_ended_is_replaced_once(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    used: list[object] = []

    def run_all(spark: object, lake: object, sources: object, **named: object) -> Any:
        used.append(spark)
        if spark == "first":
            raise SparkLost("the JVM of Spark ended during a job")
        yield from ()

    monkeypatch.setattr(run, "run_all", run_all)
    stop = threading.Event()
    given: list[Any] = [cast(Any, None), [], 5, "quarantine"]
    batches = pipeline_run.Batches(cast(Any, "first"), *given, reopen=lambda: cast(Any, "second"))
    batches.follow(None, stop)
    batches.follow(None, stop)
    assert used == ["first", "second", "second"]
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(SparkLost):
        pipeline_run.Batches(cast(Any, "first"), *given).follow(None, stop)
    with pytest.raises(SparkLost):
        pipeline_run.Batches(cast(Any, "first"), *given, reopen=lambda: cast(Any, "first")).follow(None, stop)


def test_a_rebuild_whose_machine_ended_begins_again_once(capsys: Any) -> None:
    ends: list[Exception | None] = [SparkLost("the Spark Connect server ended during a job"), None]

    def make_all() -> int:
        end = ends.pop(0)
        if end is not None:
            raise end
        return 3

    assert pipeline_care.again_if_lost(make_all) == 3
    assert capsys.readouterr().err.splitlines() == [
        "warning: the Spark Connect server ended during a job; a new one is started, and the rebuild begins again"
    ]
    ends += [SparkLost("one"), SparkLost("two")]
    with pytest.raises(SparkLost, match="two"):
        pipeline_care.again_if_lost(make_all)
    ends += [JobFailed("no memory")]
    with pytest.raises(JobFailed, match="no memory"):
        pipeline_care.again_if_lost(make_all)


def answers_of(monkeypatch: pytest.MonkeyPatch, *ends: Exception | None) -> list[Exception | None]:
    left = list(ends)

    def question(spark: object, lake: object, request: object) -> Answer:
        end = left.pop(0)
        if end is not None:
            raise end
        return Answer([], [])

    monkeypatch.setitem(cast(Any, asking.QUESTIONS), "channels", question)
    return left


def test_a_question_whose_worker_ended_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    left = answers_of(monkeypatch, JavaError(PAGE), None)
    spark: Any = Spark()
    assert asking.answer(spark, Lake(str(tmp_path)), ReportRequest("channels")).rows == []
    assert left == []
    answers_of(monkeypatch, Py4JNetworkError("empty"))
    with pytest.raises(SparkLost):
        asking.answer(spark, Lake(str(tmp_path)), ReportRequest("channels"))


def test_a_server_whose_spark_ended_ends_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers_of(monkeypatch, Py4JNetworkError("empty"))
    ended = threading.Event()
    spark: Any = Spark()
    reply = Answers(spark, Lake(str(tmp_path)), ended)(ReportRequest("channels"))
    assert reply.refusal is not None
    error: BusError = reply.refusal.as_error()
    assert isinstance(error, SparkLost)
    assert ended.is_set()
    with pytest.raises(SparkLost, match="so the server ends, too"):
        _wait(threading.Event(), ended)
