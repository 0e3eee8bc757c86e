"""A SELECT of the user's, over the tables of the lake. What it may be is in sql_text.py, errors in sql_errors.py."""

import re
from typing import TYPE_CHECKING, Final

from pyspark.logger import PySparkLogger

from unibus.errors import QueryInvalid
from unibus.pipeline.lake import HISTORY
from unibus.pipeline.reports.answer import Answer, Column, Kind
from unibus.pipeline.reports.collecting import collected
from unibus.pipeline.reports.request import ReportRequest
from unibus.pipeline.reports.sources import opened_sources
from unibus.pipeline.reports.sql_text import ABOUT_TABLES, HARMLESS, JAVA, OPENING, tokens, wrapped
from unibus.pipeline.storage.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from unibus.pipeline.lake import Lake

NAMES: Final = (*TABLES, *HISTORY)

_HARM: Final = re.compile(rf"^[\s:+|-]*ScriptTransformation|\b(?:{'|'.join((*JAVA, *OPENING))})\(", re.MULTILINE)
_NUMBERS: Final = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})


# What is wrong with a query is told once, by us, and not as a page of JSON on the error stream.
PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def sql(spark: "SparkSession", lake: "Lake", request: ReportRequest) -> Answer:
    text = wrapped(request.text, request.limit + 1)
    register(spark, lake, {token.plain for token in tokens(request.text)})
    for name, value in HARMLESS.items():
        spark.conf.set(name, value)
    frame = spark.sql(text)
    _check_plan(frame)
    rows = collected(frame)
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
