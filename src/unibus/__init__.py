"""One message bus for Python. `unibus.public` lists the public names; no module of the package imports them from here.

The names are loaded lazily, on the first access to one of them: a command that prints a table, or a test run with the
pytest plugin, does not pay for importing a bus that it does not use.

Importing fails on an interpreter that runs without the global interpreter lock (GIL): the atomic steps of `core` rely
on it (decision 0003), and without it messages could be lost or delivered twice.
"""

import sys
from typing import TYPE_CHECKING


def _require_gil() -> None:
    """Raises ImportError on a free-threaded build whose GIL is disabled. Before Python 3.13 there is no such build."""
    is_gil_enabled = getattr(sys, "_is_gil_enabled", None)
    if is_gil_enabled is not None and not is_gil_enabled():
        raise ImportError(
            "unibus requires the global interpreter lock (GIL), and this free-threaded Python runs without it: "
            "unibus relies on the GIL to update its queues atomically (set PYTHON_GIL=1, or use a standard build)"
        )


_require_gil()  # First: a refused import loads nothing else.

if TYPE_CHECKING:
    from unibus.public import *  # noqa: F403
    from unibus.public import __all__ as __all__
else:

    def __getattr__(name: str) -> object:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module 'unibus' has no attribute {name!r}")
        from importlib import import_module

        # `setdefault`: a submodule that this import has put here, such as `unibus.errors`, keeps its name.
        public = import_module("unibus.public")
        for each in (*public.__all__, "__all__"):
            globals().setdefault(each, getattr(public, each))
        if name not in globals():
            raise AttributeError(f"module 'unibus' has no attribute {name!r}")
        return globals()[name]

    def __dir__() -> list[str]:
        __getattr__("__all__")
        return sorted(globals())


__version__ = "0.1.0"
