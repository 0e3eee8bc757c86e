"""A SELECT of the user over the tables of the lake. sql_text.py decides which are allowed."""

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


# We report a wrong query in one line; pyspark would also log a page of JSON.
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
    """Create views of the tables that a query names, and only of those: each takes some time."""
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
    if dtype == "timestamp":  # Not timestamp_ntz: without a zone it is not an instant.
        return "instant"
    return "number" if dtype in _NUMBERS or dtype.startswith("decimal") else "text"


def _check_plan(frame: "DataFrame") -> None:
    """A second check, of the plan that Spark made from the text, before it runs. Spark Connect does not show it."""
    java = getattr(frame, "_jdf", None)
    if java is not None and _HARM.search(java.queryExecution().analyzed().toString()):
        raise QueryInvalid("a query may only read tables: no calls of Java, no files, no programs", ABOUT_TABLES)
