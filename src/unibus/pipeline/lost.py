"""Parts of Spark that ended while they worked: a Python worker, or the Java machine itself.

Neither says anything about the work: they were killed, mostly for their memory. So the same is tried again, and a
person gets one line. What Spark says of it is a page of Java.

    worker   the machine is whole, and starts another worker for the next job         WorkerLost
    machine  nothing answers any more: a new session is needed                         SparkLost
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
_CONNECTION: Final = frozenset({"Py4JNetworkError", "ConnectionError", "EOFError"})
"""What the client of the machine raises when that does not answer. Its package is known to pyspark only."""


def lost(error: Exception) -> JobFailed | None:
    """What ended, or None for an error that says something else."""
    if any(each.__name__ in _CONNECTION for each in type(error).__mro__):
        return SparkLost("the Java machine of Spark ended while it worked", _MEMORY)
    if is_of_spark(error) and _WORKER.search(str(error)):
        return WorkerLost("a Python worker of Spark ended while it worked", _MEMORY)
    return None


def is_of_spark(error: Exception) -> bool:
    """Also of Java, where pyspark has no name of its own for it."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) or hasattr(error, "java_exception")
