"""One message bus for Python. Its public names stand in `unibus.public`; nothing inside imports them from here.

They are loaded when the first of them is asked for: a command that shows a table, or a run of tests with our plugin,
should not wait for a bus that it does not use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unibus.public import *  # noqa: F403
    from unibus.public import __all__ as __all__
else:

    def __getattr__(name: str) -> object:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module 'unibus' has no attribute {name!r}")
        from importlib import import_module

        # What loading it puts here, such as `unibus.errors`, stays reachable as well.
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
