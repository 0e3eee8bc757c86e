"""Stops what Spark does for a question: when its time is over, or when nobody waits for the answer any more."""

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
    """For the jobs of this thread, until the block is left. The event that comes is set when they were stopped."""
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
                    cancel()  # Again and again: a job that has not begun yet is not stopped.

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
    """Jobs of this thread get a name; what comes is how all of that name are cancelled."""
    name = f"unibus-{uuid.uuid4().hex}"
    context = getattr(spark, "_sc", None)  # None by Connect, which knows tags instead of groups.
    if context is not None:
        context.setJobGroup(name, "a question", interruptOnCancel=True)
        yield lambda: context.cancelJobGroup(name)
        return
    spark.addTag(name)
    try:
        yield lambda: spark.interruptTag(name)
    finally:
        spark.removeTag(name)
