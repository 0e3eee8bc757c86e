"""Recognises that a process of Spark ended during a job: a Python worker, the JVM, or a Spark Connect server.

Such an end says nothing about the job: mostly the kernel killed the process for its memory. So the job is tried again,
and the user gets an error of one line instead of a page of Java.

    worker   the JVM still runs, and starts another worker for the next job            WorkerLost
    JVM      no call is answered any more: a new session is needed                     SparkLost
    server   the same for a remote JVM; a server that was restarted does not know      SparkLost
             our session
"""

import re
from typing import Final

from unibus.errors import JobFailed, SparkLost, WorkerLost

ATTEMPTS: Final = 3
"""How often a job is tried whose workers end each time."""

_MEMORY: Final = "was it killed for its memory? Smaller batches (--max-events) need less"
_WORKER: Final = re.compile(
    r"Python worker (?:exited unexpectedly|failed to connect back)"
    r"|java\.io\.EOFException|java\.net\.SocketException|ExecutorLostFailure"
)
_SERVER: Final = re.compile(r"StatusCode\.UNAVAILABLE|\bRETRIES_EXCEEDED\b|\bSESSION_(?:CHANGED|NOT_FOUND|CLOSED)\b")
"""In errors of the Spark Connect client when the server does not answer, or does not know our session any more."""
_CONNECTION: Final = frozenset({"Py4JNetworkError", "ConnectionError", "EOFError"})
"""Errors of Py4J when the JVM does not answer. By name: Py4J is a dependency of pyspark and not ours."""


def lost(error: Exception) -> JobFailed | None:
    """Which process ended; None for any other error."""
    if any(each.__name__ in _CONNECTION for each in type(error).__mro__):
        return SparkLost("the JVM of Spark ended during a job", _MEMORY)
    if not is_of_spark(error):
        return None
    said = str(error)
    if _WORKER.search(said):
        return WorkerLost("a Python worker of Spark ended during a job", _MEMORY)
    return SparkLost("the Spark Connect server ended during a job", _MEMORY) if _SERVER.search(said) else None


def is_of_spark(error: Exception) -> bool:
    """Also for an exception of Java that pyspark has no class for."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) or hasattr(error, "java_exception")
