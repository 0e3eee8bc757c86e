"""Cancels the Spark jobs of a request: when its time is over, or when its client has disconnected."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_AGAIN_S: Final = 0.25


@contextlib.contextmanager
def stopping(spark: "SparkSession", seconds: float | None, gone: threading.Event | None) -> Iterator[threading.Event]:
    """Watches over the jobs of this thread inside the block. The yielded event is set when they were cancelled."""
    stopped, done = threading.Event(), threading.Event()
    if seconds is None and gone is None:
        yield stopped
        return
    ends_s = None if seconds is None else time.monotonic() + seconds
    with _named(spark) as cancel:

        def watch() -> None:
            while not done.wait(_patience_s(ends_s)):
                if (gone is not None and gone.is_set()) or (ends_s is not None and time.monotonic() >= ends_s):
                    stopped.set()
                    cancel()  # Repeatedly: a job that has not started yet ignores it.

        stopper = threading.Thread(target=watch, name="stopper", daemon=True)
        stopper.start()
        try:
            yield stopped
        finally:
            done.set()
            stopper.join()


def _patience_s(ends_s: float | None) -> float:
    left_s = LOOK_AGAIN_S if ends_s is None else ends_s - time.monotonic()
    return left_s if 0 < left_s < LOOK_AGAIN_S else LOOK_AGAIN_S


@contextlib.contextmanager
def _named(spark: "SparkSession") -> Iterator[Callable[[], object]]:
    """Give the jobs of this thread a name. Yields a function that cancels all jobs of that name."""
    name = f"unibus-{uuid.uuid4().hex}"
    context = getattr(spark, "_sc", None)  # None with Spark Connect, which has tags instead of groups.
    if context is not None:
        context.setJobGroup(name, "a report", interruptOnCancel=True)
        yield lambda: context.cancelJobGroup(name)
        return
    spark.addTag(name)
    try:
        yield lambda: spark.interruptTag(name)
    finally:
        spark.removeTag(name)
