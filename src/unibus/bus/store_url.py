"""The first argument of a bus: where its messages live. In this version: in memory."""

from pathlib import PurePath
from urllib.parse import urlsplit

from unibus.errors import StoreUnavailable, UsageError

# Named by the design, not built yet: refused by name, so that nobody believes that messages are kept.
PLANNED = ("sqlite", "jsonfile", "redis", "rediss", "postgresql", "postgres", "tidb", "mysql", "http", "https")
MEMORY = ("memory", "in_memory", "inmemory")


def checked_store(store: object) -> str:
    """`memory`, or an error: a store that cannot be opened never turns into memory silently."""
    if store is None:
        return "memory"
    if isinstance(store, PurePath):
        store = f"sqlite:///{store}"
    if not isinstance(store, str):
        raise UsageError(
            f"a store is a URL or a path, not {type(store).__name__}", "MessageBus() keeps messages in memory"
        )
    scheme = urlsplit(store).scheme or store
    if scheme in MEMORY:
        return "memory"
    if scheme in PLANNED or scheme == store:
        what = "a file" if scheme == store else f"{scheme}://"
        raise StoreUnavailable(
            f"this version cannot keep messages in {what}",
            "use MessageBus() or 'memory://', which keep them in this process only",
        )
    raise UsageError(f"unknown store {scheme}://", f"known schemes are memory, {', '.join(PLANNED)}")
