"""Whether the Python that Spark runs has unibus: without it Spark only reports DATA_SOURCE_NOT_FOUND.

Spark starts Python processes of its own, with PYSPARK_PYTHON or else the first `python3` on the path. In a shell whose
virtual environment is not activated that is the Python of the system, which does not have the packages of the
program. `register` finds that out before the first query, and says in one line what to do.
"""

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from unibus.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON: Final = "PYSPARK_PYTHON"
_LOOK: Final = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pyspark_unibus') is None)"
_PATIENCE_S: Final = 30.0


def register(spark: "SparkSession") -> None:
    """Check that this session finds `format("unibus")`, and register it. UsageError if Spark runs another Python.

    Spark finds the format by itself where its Python has unibus; call this to get an error that says what is missing.
    The Python of a Spark Connect server, or of the machines of a cluster, cannot be checked from here.
    """
    context = getattr(spark, "_sc", None)
    if context is not None and context.master.startswith("local"):
        check_python(context.pythonExec)
    from unibus.pipeline.connector.source import UnibusSource

    spark.dataSource.register(UnibusSource)


def check_python(program: str) -> None:
    """UsageError if this Python does not exist or has no unibus. It is started only if it is not this one."""
    if program == sys.executable:
        return
    found = shutil.which(program)
    if found is None:
        raise UsageError(f"Spark runs the Python {program!r}, which is not a program", f"unset {PYTHON}")
    if os.path.abspath(found) == sys.executable or _has_unibus(found):
        return
    raise UsageError(
        f"Spark runs the Python {found}, which has no unibus",
        f"set {PYTHON}={sys.executable} before the session starts, or activate the environment of this Python",
    )


def _has_unibus(program: str) -> bool:
    try:
        ended = subprocess.run([program, "-c", _LOOK], capture_output=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0
