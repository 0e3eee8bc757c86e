"""The questions that there are. Nothing else is answered, whoever asks."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from unibus.errors import UsageError
from unibus.pipeline.questions.answer import Answer
from unibus.pipeline.questions.channels import channels
from unibus.pipeline.questions.consumers import consumers
from unibus.pipeline.questions.failures import failures
from unibus.pipeline.questions.latency import latency
from unibus.pipeline.questions.request import Request
from unibus.pipeline.questions.sql import sql
from unibus.pipeline.questions.stuck import stuck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unibus.pipeline.lake import Lake

REPORTS: Final[dict[str, "Callable[[SparkSession, Lake, Request], Answer]"]] = {
    "channels": channels,
    "latency": latency,
    "failures": failures,
    "stuck": stuck,
    "consumers": consumers,
}
QUESTIONS: Final = {**REPORTS, "sql": sql}


def answer(spark: "SparkSession", lake: "Lake", request: Request) -> Answer:
    """With how long it took. UsageError for what is no question."""
    question = QUESTIONS.get(request.question)
    if question is None:
        raise UsageError(f"there is no question {request.question!r}", f"there are {', '.join(QUESTIONS)}")
    started_s = time.monotonic()
    found = question(spark, lake, request)
    found.seconds = time.monotonic() - started_s
    return found
