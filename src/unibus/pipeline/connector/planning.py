"""Errors of `format("unibus")` that take one line instead of a traceback of our files.

Spark plans a read in a Python process of its own, and shows the traceback of what it raised there. For an error that
the user can correct (a file that does not exist, an unknown option) the text of the error is all that helps, so the
traceback is switched off. That process ends with the error; tasks that read data keep their tracebacks.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from unibus.errors import BusError, StoreUnavailable

HIDE: Final = "SPARK_HIDE_TRACEBACK"
_OF_SPARK: Final = "PYTHON_WORKER_FACTORY_SECRET"
"""Spark sets it in the processes that it starts, and in no other."""


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Inside the block an error of unibus is shown by Spark without its traceback."""
    try:
        yield
    except BusError:
        if _OF_SPARK in os.environ:
            os.environ[HIDE] = "1"
        raise


def check_exists(places: tuple[str, ...]) -> None:
    """Raises StoreUnavailable for a path that does not exist. A capture directory is not created by reading it."""
    for place in places:
        if "://" not in place and not os.path.lexists(place):
            raise StoreUnavailable(
                f"there is no file or folder {place}",
                "load the URL of a store, such as sqlite:////data/bus.db, or a directory that `unibus capture` wrote",
            )
