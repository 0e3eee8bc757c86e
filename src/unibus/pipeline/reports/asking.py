"""The table of all reports. Any other request is rejected, from the command line and from clients of a server."""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from unibus.errors import BusError, QueryStopped, SparkLost, UsageError
from unibus.pipeline.lost import ATTEMPTS, lost
from unibus.pipeline.reports.answer import Answer
from unibus.pipeline.reports.channels import channels
from unibus.pipeline.reports.consumers import consumers
from unibus.pipeline.reports.failures import failures
from unibus.pipeline.reports.latency import latency
from unibus.pipeline.reports.request import ReportRequest
from unibus.pipeline.reports.sql import NAMES, sql
from unibus.pipeline.reports.sql_errors import in_words
from unibus.pipeline.reports.stopping import stopping
from unibus.pipeline.reports.stuck import stuck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unibus.pipeline.lake import Lake

log = logging.getLogger("unibus")

REPORTS: Final[dict[str, "Callable[[SparkSession, Lake, ReportRequest], Answer]"]] = {
    "channels": channels,
    "latency": latency,
    "failures": failures,
    "stuck": stuck,
    "consumers": consumers,
}
QUESTIONS: Final = {**REPORTS, "sql": sql}


def answer(spark: "SparkSession", lake: "Lake", request: ReportRequest, gone: threading.Event | None = None) -> Answer:
    """UsageError for an unknown report; QueryStopped when its time is over or `gone` is set, because the client has
    disconnected. Errors of Spark are raised as errors of ours, of one line."""
    question = QUESTIONS.get(request.question)
    if question is None:
        raise UsageError(f"there is no report {request.question!r}", f"use one of {', '.join(QUESTIONS)}")
    started_s = time.monotonic()
    is_query = request.question == "sql"
    with stopping(spark, request.time_s if is_query else None, gone) as stopped:
        try:
            found = _again_if_lost(lambda: question(spark, lake, request), stopped)
        except BusError:
            raise
        except Exception as error:
            if stopped.is_set():  # Spark raises various errors for a cancelled job.
                raise _stopped(request, gone) from None
            explained = in_words(error, NAMES, lake.path, is_query)
            if explained is None:
                raise
            raise explained from None
    found.seconds = time.monotonic() - started_s
    return found


def _again_if_lost(ask: Callable[[], Answer], stopped: threading.Event) -> Answer:
    """Retry a report whose Python worker ended: it only reads. Not if we cancelled it ourselves."""
    for attempt in range(ATTEMPTS):
        try:
            return ask()
        except BusError:
            raise
        except Exception as error:
            ended = lost(error)
            if ended is None or stopped.is_set():
                raise
            if isinstance(ended, SparkLost) or attempt == ATTEMPTS - 1:
                raise ended from error
            log.warning("%s; the report is started again", ended.what)
    raise AssertionError("the last attempt returns or raises")


def _stopped(request: ReportRequest, gone: threading.Event | None) -> QueryStopped:
    if gone is not None and gone.is_set():
        return QueryStopped("the query was stopped: the client has disconnected")
    return QueryStopped(
        f"the query was stopped: it reached its time limit of {request.time_s:g} s", "--time-limit allows more"
    )
