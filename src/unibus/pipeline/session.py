"""A Spark session with the settings of the pipeline: in a local JVM, on a cluster, or by Spark Connect.

pyspark logs a traceback for each Ctrl-C as well as raising it, and installs a signal handler that breaks the call in
progress. Both are undone here: the program that uses the session decides what a Ctrl-C does.
"""

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import uuid
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from unibus.errors import BusError, ExtraMissing, SparkLost, StoreUnavailable, Unauthorised, UsageError
from unibus.pipeline.java import find_java
from unibus.pipeline.jvm import NEEDED_EXTRA, Machine, can_start_here, find_spark
from unibus.pipeline.lost import lost
from unibus.pipeline.spark_python import PYTHON, check_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session: TypeAlias = "SparkSession"
"""For modules that pass a session on and must not import pyspark."""

SETTINGS: Final[dict[str, str]] = {
    "spark.app.name": "unibus",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    # With more files than this Spark starts a job to list them, which takes seconds for a thousand files.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_QUICK: Final = {"spark.sql.adaptive.enabled": "false"}
"""Adaptive planning between stages helps only queries that run for long."""
LOCAL: Final = "local[*]"
CONNECT_PORT: Final = 15_002
CONNECT_PATIENCE_S: Final = 5.0
RETRIES_MAX: Final = 8
RETRY_MS_MAX: Final = 5_000
"""Calls to a Spark Connect server that does not answer are retried for about 25 seconds, for short network failures."""
_LOCAL_CORES: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")
_DRIVER_MEMORY: Final = "spark.driver.memory"
_WAREHOUSE: Final = "spark.sql.warehouse.dir"
_GIB: Final = 1 << 30
_HADOOP: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_CALL_FAILED: Final = "Exception while sending command."
"""What Py4J logs, as well as raising it."""
_TOKEN_HINT: Final = "`unibus pipeline serve` prints its address with the token in it: --connect needs the whole of it"


def open_session(
    master: str | None = None,
    connect: str | None = None,
    settings: dict[str, str] | None = None,
    quick: bool = False,
) -> "SparkSession":
    """`quick` is for a process that asks once and ends: without it, code that runs for long is compiled better. The
    first quick session creates a cache that makes the next ones start faster (jvm.py).

    ExtraMissing without Java or pyspark, StoreUnavailable if no server answers.
    """
    if master and connect:
        raise UsageError("--master and --connect cannot be used together", "choose one")
    if connect:
        return connected_session(connect, settings)
    return _classic_session(master or LOCAL, settings or {}, quick)


def local_session(cores: str = "*", settings: dict[str, str] | None = None) -> "SparkSession":
    """A session whose tasks run on this machine, with so many cores."""
    return _classic_session(f"local[{cores}]", settings or {}, quick=False)


def connected_session(url: str, settings: dict[str, str] | None = None) -> "SparkSession":
    """A session on a Spark Connect server. Only SQL settings can be changed there."""
    host, port = _place(url, "sc", CONNECT_PORT)
    _answers(host, port, f"no Spark Connect server answers at {url}", "`unibus pipeline serve` starts one")
    find_spark()
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client import SparkConnectClient  # noqa: F401 — its error names a missing package
    except ImportError as error:
        raise ExtraMissing(f"Spark Connect needs a package: {error}", NEEDED_EXTRA) from error
    try:
        # Not getOrCreate: it returns an existing session for any address, also of a server that has ended.
        session = SparkSession.builder.remote(url).create()
        _set_up(session, settings)
    except PySparkException as error:
        raise _refused(url, str(error)) from error
    return session


def _set_up(session: "SparkSession", settings: dict[str, str] | None) -> None:
    """Apply the SQL settings, and limit how long calls retry: the default of pyspark is ten minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # It is also raised as an error.
    session.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES_MAX, max_backoff=RETRY_MS_MAX)])
    for name, value in {**SETTINGS, **(settings or {})}.items():
        if name.startswith("spark.sql."):
            session.conf.set(name, value)


def _refused(url: str, said: str) -> BusError:
    """The error for a first call that the server or the client rejected."""
    line = said.strip().partition("\n")[0][:300]
    if "unauthenticated" in said.lower() or "invalid token" in said.lower():
        return Unauthorised(f"the Spark Connect server at {_without_token(url)} requires its token", _TOKEN_HINT)
    return StoreUnavailable(f"{_without_token(url)} does not work as a Spark Connect server: {line}", "")


def _classic_session(master: str, settings: dict[str, str], quick: bool) -> "SparkSession":
    _checked(master)
    _check_python(master)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1") if master.startswith("local") else None
    # Spark creates this folder when a query names a table that does not exist; by default in the current directory.
    warehouse = os.path.join(tempfile.gettempdir(), f"unibus-warehouse-{uuid.uuid4().hex}")
    chosen = {**SETTINGS, "spark.sql.shuffle.partitions": _partitions(master), _WAREHOUSE: warehouse}
    chosen |= {**(_QUICK if quick else {}), **settings}
    with _handler_kept(), _gateway(chosen, quick):
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master)
        for name, value in chosen.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        # Deleted by the JVM, which outlives this process even if that is killed.
        getattr(session.sparkContext._jvm, "java.io.File")(warehouse).deleteOnExit()
    return session


def _check_python(master: str) -> None:
    """UsageError of one line instead of a page of Java. On a cluster the path belongs to the machines there."""
    named = os.environ.setdefault(PYTHON, sys.executable)
    if master.startswith("local"):
        check_python(named)


@contextlib.contextmanager
def _gateway(settings: dict[str, str], quick: bool) -> Iterator[None]:
    """Start a JVM, and let pyspark find it inside the block. If we cannot start one, pyspark does."""
    if _has_machine():
        yield
        return
    java, spark = find_java(), find_spark()
    if not can_start_here():
        yield
        return
    machine = Machine(java, spark, settings.get(_DRIVER_MEMORY) or _memory(), quick)
    try:
        machine.start()
        import pyspark.sql  # noqa: F401 — while the JVM starts

        port, secret = machine.wait()
        with _gateway_variables(port, secret):
            yield
    except BaseException:
        machine.end()
        _forget_machine()
        raise


@contextlib.contextmanager
def _gateway_variables(port: int, secret: str) -> Iterator[None]:
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    try:
        yield
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def _forget_machine() -> None:
    """The JVM ended: make pyspark start another for the next session."""
    if "pyspark.sql" not in sys.modules:
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None


@contextlib.contextmanager
def _handler_kept() -> Iterator[None]:
    """Restore the handler of SIGINT that pyspark replaces."""
    logging.getLogger().addFilter(_is_news)  # Adding the same filter twice has no effect.
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _is_news(record: logging.LogRecord) -> bool:
    """False for a log record of a page about an interrupted call or a JVM that ended: the caller gets the exception."""
    error = record.exc_info[1] if record.exc_info else None
    if record.msg == _CALL_FAILED and isinstance(error, Exception) and isinstance(lost(error), SparkLost):
        return False
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or "reentrant call" in str(error):
            return False
        error = error.__cause__ or error.__context__
    return True


def _has_machine() -> bool:
    """Whether this process already has a JVM: it stays when a session is stopped. A JVM that has ended is replaced."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    if SparkContext._gateway is None:
        return False
    try:
        SparkContext._gateway.jvm.System.currentTimeMillis()
    except Exception as error:
        if not isinstance(lost(error), SparkLost):
            raise
        _forget_machine()
        return False
    return True


def _partitions(master: str) -> str:
    """Two for each local core; enough for many machines on a cluster, where Spark merges small ones."""
    found = _LOCAL_CORES.fullmatch(master)
    if found is None:
        return "64"
    cores = os.cpu_count() or 1 if found[1] == "*" else int(found[1] or 1)
    return str(max(4, 2 * cores))


def _memory() -> str:
    """A quarter of the memory, at least 1 GiB and at most 4 GiB, which is enough for any job of the pipeline."""
    named = os.environ.get("SPARK_DRIVER_MEMORY")
    if named:
        return named
    try:
        quarter = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    except (ValueError, OSError):
        quarter = _GIB
    return f"{min(max(quarter, _GIB), 4 * _GIB) // (1 << 20)}m"


def _checked(master: str) -> None:
    if master.startswith("yarn") and not any(os.environ.get(name) for name in _HADOOP):
        # Spark would try to find one on this machine for 15 minutes.
        raise UsageError(f"--master {master} needs the configuration of the cluster", f"set {_HADOOP[0]}")
    if _LOCAL_CORES.fullmatch(master) or master.startswith(("local-cluster[", "yarn", "k8s://")):
        return
    # Spark would retry for minutes. One of several masters has to answer.
    places = master.removeprefix("spark://").split(",") if master.startswith("spark://") else [""]
    error: StoreUnavailable | None = None
    for place in places:
        host, port = _place(f"spark://{place}" if place else master, "spark", 7_077)
        try:
            _answers(host, port, f"no Spark master answers at {master}", "is it running, and is the port right?")
            return
        except StoreUnavailable as refused:
            error = refused
    assert error is not None
    raise error


def _place(url: str, scheme: str, port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        found = parts.hostname, parts.port or port
    except ValueError:
        found = None, port
    if found[0] is None or not url.startswith(f"{scheme}://"):
        raise UsageError(f"{url!r} is not a Spark address", f"for instance {scheme}://host:{port}")
    return found[0], found[1]


def _without_token(url: str) -> str:
    return url.partition("/;")[0]


def _answers(host: str, port: int, what: str, hint: str) -> None:
    try:
        socket.create_connection((host, port), CONNECT_PATIENCE_S).close()
    except OSError as error:
        raise StoreUnavailable(f"{what}: {error.strerror or error}", hint) from error
