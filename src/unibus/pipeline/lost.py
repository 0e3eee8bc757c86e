"""Parts of Spark that ended while they worked: a Python worker, the Java machine itself, or a Spark Connect server.

Neither says anything about the work: they were killed, mostly for their memory. So the same is tried again, and a
person gets one line. What Spark says of it is a page of Java.

    worker   the machine is whole, and starts another worker for the next job         WorkerLost
    machine  nothing answers any more: a new session is needed                         SparkLost
    server   the same for a machine elsewhere; one that was started again has no       SparkLost
             session of ours
"""

import re
from typing import Final

from unibus.errors import JobFailed, SparkLost, WorkerLost

ATTEMPTS: Final = 3
"""Of one job, whose workers end each time."""

_MEMORY: Final = "was it killed for its memory? Smaller batches (--max-events) need less"
_WORKER: Final = re.compile(
    r"Python worker (?:exited unexpectedly|failed to connect back)"
    r"|java\.io\.EOFException|java\.net\.SocketException|ExecutorLostFailure"
)
_SERVER: Final = re.compile(r"StatusCode\.UNAVAILABLE|\bRETRIES_EXCEEDED\b|\bSESSION_(?:CHANGED|NOT_FOUND|CLOSED)\b")
"""What the client of a Spark Connect server says when that does not answer, or does not know our session any more."""
_CONNECTION: Final = frozenset({"Py4JNetworkError", "ConnectionError", "EOFError"})
"""What the client of the machine raises when that does not answer. Its package is known to pyspark only."""


def lost(error: Exception) -> JobFailed | None:
    """What ended, or None for an error that says something else."""
    if any(each.__name__ in _CONNECTION for each in type(error).__mro__):
        return SparkLost("the Java machine of Spark ended while it worked", _MEMORY)
    if not is_of_spark(error):
        return None
    said = str(error)
    if _WORKER.search(said):
        return WorkerLost("a Python worker of Spark ended while it worked", _MEMORY)
    return SparkLost("the Spark Connect server ended while it worked", _MEMORY) if _SERVER.search(said) else None


def is_of_spark(error: Exception) -> bool:
    """Also of Java, where pyspark has no name of its own for it."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) or hasattr(error, "java_exception")
