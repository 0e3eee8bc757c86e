"""The questions that there are. Nothing else is answered, whoever asks."""

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
    """With how long it took. UsageError for what is no question, QueryStopped when time is over or who asked is `gone`;
    what Spark raises is told in words."""
    question = QUESTIONS.get(request.question)
    if question is None:
        raise UsageError(f"there is no question {request.question!r}", f"there are {', '.join(QUESTIONS)}")
    started_s = time.monotonic()
    is_query = request.question == "sql"
    with stopping(spark, request.time_s if is_query else None, gone) as stopped:
        try:
            found = _again_if_lost(lambda: question(spark, lake, request), stopped)
        except BusError:
            raise
        except Exception as error:
            if stopped.is_set():  # Whatever it is that Spark raises then.
                raise _stopped(request, gone) from None
            told = in_words(error, NAMES, lake.path, is_query)
            if told is None:
                raise
            raise told from None
    found.seconds = time.monotonic() - started_s
    return found


def _again_if_lost(ask: Callable[[], Answer], stopped: threading.Event) -> Answer:
    """A question changes nothing, so one whose worker ended is asked again; not where we stopped the work ourselves."""
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
            log.warning("%s; the question is asked again", ended.what)
    raise AssertionError("the last attempt returns or raises")


def _stopped(request: ReportRequest, gone: threading.Event | None) -> QueryStopped:
    if gone is not None and gone.is_set():
        return QueryStopped("the query was stopped: nobody waits for the answer any more")
    return QueryStopped(
        f"the query was stopped: it reached its time limit of {request.time_s:g} s", "--time-limit allows more"
    )
