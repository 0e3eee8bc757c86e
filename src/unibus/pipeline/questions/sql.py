"""A SELECT of the user's, over the tables of the lake. What it may be is in sql_text.py, errors in sql_errors.py."""

import contextlib
import re
import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from unibus.errors import QueryInvalid, QueryStopped
from unibus.pipeline.lake import HISTORY
from unibus.pipeline.questions.answer import Answer, Column, Kind
from unibus.pipeline.questions.collecting import collected
from unibus.pipeline.questions.request import Request
from unibus.pipeline.questions.sources import opened_sources
from unibus.pipeline.questions.sql_errors import in_words, of_java
from unibus.pipeline.questions.sql_text import ABOUT_TABLES, HARMLESS, JAVA, OPENING, tokens, wrapped
from unibus.pipeline.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unibus.pipeline.lake import Lake

NAMES: Final = (*TABLES, *HISTORY)

_HARM: Final = re.compile(rf"^[\s:+|-]*ScriptTransformation|\b(?:{'|'.join((*JAVA, *OPENING))})\(", re.MULTILINE)
STOP_AGAIN_S: Final = 0.25
_NUMBERS: Final = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})


# What is wrong with a query is told once, by us, and not as a page of JSON on the error stream.
PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def sql(spark: "SparkSession", lake: "Lake", request: Request) -> Answer:
    text = wrapped(request.text, request.limit + 1)
    register(spark, lake, {token.plain for token in tokens(request.text)})
    for name, value in HARMLESS.items():
        spark.conf.set(name, value)
    with _stopped_after(spark, request.time_s) as stopped:
        try:
            frame = spark.sql(text)
            _check_plan(frame)
            rows = collected(frame)
        except PySparkException as error:
            if stopped.is_set():
                raise _stopped(request) from None
            raise in_words(error, NAMES) from None
        except Exception as error:
            if stopped.is_set():  # Whatever it is that Spark raises then.
                raise _stopped(request) from None
            java = getattr(error, "java_exception", None)
            if java is None:
                raise
            raise of_java(java.toString()) from None  # One that pyspark has no name for.
    return Answer(columns_of(frame), rows[: request.limit], more=len(rows) > request.limit)


def register(spark: "SparkSession", lake: "Lake", names: set[str]) -> None:
    """Views of what a query speaks of, as it is now: each of them takes a moment."""
    for name in names & TABLES.keys():
        lake.view(spark, name).createOrReplaceTempView(name)
    if not names & HISTORY.keys():
        return
    with opened_sources(lake) as sources:
        for name in names & HISTORY.keys():
            lake.history(spark, name, sources).createOrReplaceTempView(name)


def columns_of(frame: "DataFrame") -> list[Column]:
    return [Column(name, _kind(kind)) for name, kind in frame.dtypes]


def _kind(dtype: str) -> Kind:
    if dtype == "timestamp":  # One without a zone is no instant.
        return "instant"
    return "number" if dtype in _NUMBERS or dtype.startswith("decimal") else "text"


def _check_plan(frame: "DataFrame") -> None:
    """Once more, by what Spark has understood. Only where the plan is at hand, and before anything is run."""
    java = getattr(frame, "_jdf", None)
    if java is not None and _HARM.search(java.queryExecution().analyzed().toString()):
        raise QueryInvalid("a query only reads: it calls no Java, opens no files and starts no programs", ABOUT_TABLES)


@contextlib.contextmanager
def _stopped_after(spark: "SparkSession", seconds: float) -> Iterator[threading.Event]:
    """The event is set when time was over."""
    stopped, done = threading.Event(), threading.Event()
    name = f"unibus-{uuid.uuid4().hex}"
    context = getattr(spark, "_sc", None)  # None by Connect, which knows tags instead of groups.
    if context is not None:
        context.setJobGroup(name, "a query", interruptOnCancel=True)
    else:
        spark.addTag(name)

    def stop() -> None:
        # Again and again: a job that has not begun yet is not stopped.
        if done.wait(seconds):
            return
        stopped.set()
        while not done.is_set():
            spark.interruptTag(name) if context is None else context.cancelJobGroup(name)
            done.wait(STOP_AGAIN_S)

    stopper = threading.Thread(target=stop, name="stopper", daemon=True)
    stopper.start()
    try:
        yield stopped
    finally:
        done.set()
        stopper.join()
        if context is None:
            spark.removeTag(name)


def _stopped(request: Request) -> QueryStopped:
    return QueryStopped(
        f"the query was stopped: it reached its time limit of {request.time_s:g} s", "--time-limit allows more"
    )
