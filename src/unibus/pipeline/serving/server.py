"""A running Spark that answers: requests of `unibus pipeline` through a socket, and any pyspark program as a Spark
Connect server.

Both are in one process with one JVM, and reachable from this machine only. Access is restricted: only the owner may
open the socket, and the Connect server requires a token, which is in a file that only the owner may read. A client with
the token can do with Spark what the owner can; the socket answers only known requests.
"""

import contextlib
import queue
import secrets
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from unibus.errors import BusError, SparkLost, StoreBusy
from unibus.pipeline.reports.answer import Answer
from unibus.pipeline.reports.asking import REPORTS, answer
from unibus.pipeline.reports.request import REPORT_ROWS, FoundEvents, Reply, ReportRefusal, ReportRequest
from unibus.pipeline.reports.sources import opened_sources
from unibus.pipeline.reports.tracing import find_events
from unibus.pipeline.serving.client import ServingAddress
from unibus.pipeline.serving.protocol import serve_requests
from unibus.pipeline.session import LOCAL, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unibus.pipeline.lake import Lake

AT_ONCE: Final = 4
"""Requests that are answered at the same time; further ones wait."""

KEPT: Final = 64
KEPT_ROWS: Final = 1_000
"""Answers of at most so many rows are cached until the next batch."""

HOST: Final = "127.0.0.1"
_PLUGIN: Final = "org.apache.spark.sql.connect.SparkConnectPlugin"


class Answers:
    """Answers requests about one lake, each with a session of its own: the settings and views of one do not affect
    another."""

    def __init__(self, spark: "SparkSession", lake: "Lake", lost: threading.Event | None = None) -> None:
        """`lost` is set when Spark has ended, and no request can be answered any more."""
        self._lake = lake
        self._lost = lost or threading.Event()
        self._kept: dict[ReportRequest, tuple[int, Answer]] = {}
        self._sessions: queue.LifoQueue[SparkSession] = queue.LifoQueue()
        for _ in range(AT_ONCE):
            self._sessions.put(spark.newSession())

    def __call__(self, request: ReportRequest, gone: threading.Event | None = None) -> Reply:
        """Never raises: the error is in the reply. The jobs are cancelled when `gone` is set."""
        try:
            if request.question == "trace":
                return Reply(found=self._found(request.text))
            return Reply(answer=self._answer(request, gone))
        except BusError as error:
            if isinstance(error, SparkLost):
                self._lost.set()
            return Reply(refusal=ReportRefusal.of(error))
        except Exception as error:
            text = str(error).strip().partition("\n")[0][:300]
            return Reply(
                refusal=ReportRefusal("BusError", f"unexpected {type(error).__name__} in the server: {text}", "")
            )

    def _answer(self, request: ReportRequest, gone: threading.Event | None) -> Answer:
        """From the cache, if there was no batch since."""
        version = self._lake.version("batches")
        kept = self._kept.get(request)
        if kept is not None and kept[0] == version:
            return kept[1]
        with self._session() as spark:
            found = answer(spark, self._lake, request, gone)
        if len(self._kept) >= KEPT:
            self._kept.clear()
        if len(found.rows) <= KEPT_ROWS and request.question in REPORTS:
            self._kept[request] = (version, found)
        return found

    def warm(self) -> None:
        """Run each report once, so that the first client need not wait until Spark has loaded and compiled its classes.
        A report that fails here fails again for the client that requests it."""
        for name in REPORTS:
            self(ReportRequest(name, limit=REPORT_ROWS))
        self(ReportRequest("sql", text="SELECT count(*) FROM batches"))

    @contextlib.contextmanager
    def _session(self) -> "Iterator[SparkSession]":
        spark = self._sessions.get()
        try:
            yield spark
        finally:
            self._sessions.put(spark)

    def _found(self, wanted: str) -> FoundEvents:
        with opened_sources(self._lake, keep_damaged=True) as sources:
            return find_events(sources, wanted)


def serving_session(port: int, master: str | None = None) -> "tuple[SparkSession, str]":
    """A session whose JVM is a Connect server too, and the address of that server with its token."""
    check_free(port)
    token = secrets.token_urlsafe(24)
    settings = {
        "spark.plugins": _PLUGIN,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.authenticate.token": token,
        "spark.scheduler.mode": "FAIR",  # A report must not wait for the end of a batch.
    }
    # As "localhost": for any other name pyspark refuses to send a token without TLS.
    return open_session(master or LOCAL, settings=settings), f"sc://localhost:{port}/;token={token}"


def check_free(port: int) -> None:
    """StoreBusy of one line instead of a page of Java."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
        except OSError as error:
            raise StoreBusy(f"port {port} cannot be used: {error.strerror}", "choose another with --port") from error


@contextlib.contextmanager
def answering(
    folder: Path, lake: "Lake", spark: "SparkSession", connect: str, lost: threading.Event | None = None
) -> Iterator[ServingAddress]:
    """Answer requests on the socket until the block is left. It is opened, and its address written, after `warm`."""
    answers = Answers(spark, lake, lost)
    answers.warm()
    with serve_requests(folder, connect, answers) as address:
        yield address
