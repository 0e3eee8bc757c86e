"""From a URL to a store. Other packages add schemes of their own by an entry point in the group `unibus.stores`."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

from unibus.clock import Clock, Timers
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION, TOPIC
from unibus.errors import BusError, ConfigInvalid, StoreFailed, StoreFull, StoreUnavailable, UsageError
from unibus.limits import (
    HISTORY_AGE_S_DEFAULT,
    HISTORY_BYTES_DEFAULT,
    JSON_SNAPSHOT_BYTES_MAX,
    MEMORY_BUDGET_MB_DEFAULT,
    MEMORY_HISTORY_BYTES_DEFAULT,
    RESERVE_MB_DEFAULT,
    SNAPSHOT_BYTES_MAX,
)
from unibus.near_names import hint_for_name
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.engine.snapshot import EVERY_CHANGES
from unibus.stores.engine.snapshot_limits import limits_for
from unibus.stores.files.reserve import Reserve
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.store import Store
from unibus.stores.url_parts import MEMORY_SCHEMES as MEMORY_SCHEMES
from unibus.stores.url_parts import split_url as split_url

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

log = logging.getLogger("unibus")

GROUP: Final = "unibus.stores"
PLANNED: Final = ("redis", "rediss", "postgresql", "postgres", "tidb", "mysql", "http", "https")
"""Named by the design, not built yet: refused by name, so that nobody believes that messages are kept."""

JSON_EVERY_CHANGES: Final = 100_000
"""JSON is read more slowly than what SQLite has, so a snapshot comes sooner."""

Opener = Callable[[str, Clock, Timers], Store]

_MOST: Final = {"max_queues": QUEUE, "max_topics": TOPIC, "max_subscriptions": SUBSCRIPTION}
_OPTIONS: Final = (
    "durability",
    "memory_budget_mb",
    "history_age",
    "history_bytes",
    "domain",
    "capture",
    "reserve_mb",
    *_MOST,
)
"""`capture` is the bus's business, not the store's: capture/child.py."""


def open_store(url: str, clock: Clock, timers: Timers) -> Store:
    """Open the store that the URL names. StoreUnavailable, or one of its kinds, when it cannot be opened."""
    scheme, separator, _ = url.partition("://")
    if not separator and url not in MEMORY_SCHEMES:
        raise UsageError(f"{url!r} is no URL of a store", "write sqlite:///file.db, or memory://")
    if scheme in MEMORY_SCHEMES:
        return _open_memory(url, clock, timers)
    if scheme == "sqlite":
        return open_sqlite(url, clock, timers)
    if scheme == "jsonfile":
        return open_jsonfile(url, clock, timers)
    for found in _other_stores():
        if found.name == scheme:
            opener: Opener = found.load()
            return opener(url, clock, timers)
    raise unknown_scheme(scheme)


def _other_stores() -> "EntryPoints":
    """The stores that other packages add."""
    # Imported here: it takes longer to load than a SQLite store takes to open, and built-in schemes do not need it.
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def is_store_scheme(scheme: str) -> bool:
    """Whether it is a store's, also of one that cannot be opened in this version."""
    known = ("sqlite", "jsonfile", *MEMORY_SCHEMES, *PLANNED)
    return scheme in known or any(found.name == scheme for found in _other_stores())


def unknown_scheme(scheme: str) -> Exception:
    if scheme in PLANNED:
        return StoreUnavailable(
            f"this version cannot keep messages in {scheme}://", "use sqlite:///file.db, or memory:// for this process"
        )
    known = sorted({"memory", "sqlite", "jsonfile", *(found.name for found in _other_stores())})
    return UsageError(f"unknown store {scheme}://", f"known schemes are {', '.join(known)}")


def _open_memory(url: str, clock: Clock, timers: Timers) -> EmbeddedStore:
    options = _options(split_url(url).query)
    kept = round(_number(options, "history_bytes", MEMORY_HISTORY_BYTES_DEFAULT))
    return _embedded(MemoryJournal(history_bytes=kept), _Chosen(url, options, EVERY_CHANGES), clock, timers)


def open_sqlite(url: str, clock: Clock, timers: Timers) -> EmbeddedStore:
    """`sqlite:///file.db?durability=D1`. Three slashes: relative to here; four: from the root."""
    from unibus.stores.sqlite.journal import SqliteJournal

    path, options = _parts(url, "file", "write sqlite:///file.db, or sqlite:////absolute/file.db")
    chosen = _Chosen(url, options, EVERY_CHANGES)
    if os.path.isdir(path):
        raise StoreUnavailable(f"{path} is a folder, not a file", f"JSON files in a folder are jsonfile:///{path}")
    with _opening(path):
        journal = SqliteJournal(
            path,
            domain=chosen.domain,
            history_age_s=chosen.history_age_s,
            history_bytes=chosen.history_bytes,
            reserve=Reserve(f"{os.path.realpath(path)}-reserve", chosen.reserve_bytes),
        )
        return _embedded(journal, chosen, clock, timers)


def open_jsonfile(url: str, clock: Clock, timers: Timers) -> EmbeddedStore:
    """`jsonfile:///folder`, with the options of SQLite."""
    from unibus.stores.jsonfile.folder import RESERVE
    from unibus.stores.jsonfile.journal import JsonFileJournal

    path, options = _parts(url, "folder", "write jsonfile:///folder, or jsonfile:////absolute/folder")
    chosen = _Chosen(url, options, JSON_EVERY_CHANGES)
    with _opening(path):
        journal = JsonFileJournal(
            path.rstrip("/") or "/",
            domain=chosen.domain,
            history_age_s=chosen.history_age_s,
            history_bytes=chosen.history_bytes,
            reserve=Reserve(f"{os.path.realpath(path)}/{RESERVE}", chosen.reserve_bytes),
        )
        return _embedded(journal, chosen, clock, timers)


@contextmanager
def _opening(path: str) -> Iterator[None]:
    """A disk that fails while a store is opened: the store is not available, and no call has an unknown outcome."""
    try:
        yield
    except (OSError, StoreFull) as error:  # A StoreFailed is an OSError too.
        if isinstance(error, (StoreFailed, StoreFull)):
            what = error.what
        else:
            what = f"cannot open {path}: {error.strerror or error}"
        raise StoreUnavailable(what, "free space or repair the disk, and open the store again") from error


def _parts(url: str, what: str, hint: str) -> tuple[str, dict[str, str]]:
    parts = split_url(url)
    path = unquote(parts.path)[1:]
    if parts.netloc or not path or "\0" in path:
        raise UsageError(f"{url!r} names no {what}", hint)
    return path, _options(parts.query)


class _Chosen:
    """The options of a URL as values. They are checked before the store is opened: a mistake in them makes no file."""

    def __init__(self, url: str, options: dict[str, str], snapshot_every: int) -> None:
        level = options.get("durability")
        self.durability = None if level is None else Durability.of(level)
        if self.durability is not None and self.durability > Durability.D2:
            raise UsageError(f"{url} gives D2 at best, not {self.durability.name}", "choose another store")
        self.domain = options.get("domain", "local")
        self.history_age_s = _number(options, "history_age", HISTORY_AGE_S_DEFAULT)
        self.history_bytes = round(_number(options, "history_bytes", HISTORY_BYTES_DEFAULT))
        self.memory_budget_mb = _number(options, "memory_budget_mb", MEMORY_BUDGET_MB_DEFAULT)
        self.reserve_bytes = round(_number(options, "reserve_mb", RESERVE_MB_DEFAULT) * 1024 * 1024)
        self.most = {kind: round(_number(options, name, 0)) for name, kind in _MOST.items() if name in options}
        self.snapshot_every = snapshot_every
        rewrites = snapshot_every == JSON_EVERY_CHANGES
        bytes_max = JSON_SNAPSHOT_BYTES_MAX if rewrites else SNAPSHOT_BYTES_MAX
        self.snapshot_limits = limits_for(self.history_bytes, self.history_age_s, bytes_max, rewrites)


def _embedded(journal: Journal, chosen: _Chosen, clock: Clock, timers: Timers) -> EmbeddedStore:
    try:
        return EmbeddedStore(
            journal,
            clock,
            timers,
            durability=chosen.durability,
            memory_budget_mb=chosen.memory_budget_mb,
            snapshot_every=chosen.snapshot_every,
            snapshot_limits=chosen.snapshot_limits,
            most=chosen.most,
        )
    except BaseException:
        try:
            journal.close()
        except BusError as error:
            log.warning("closing %s after an error: %s", journal.url, error)  # The first error is the one to raise.
        raise


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise ConfigInvalid(f"a store has no option {unknown[0]!r}", hint_for_name(unknown[0], _OPTIONS))
    return options


def _number(options: dict[str, str], name: str, default: float) -> float:
    given = options.get(name)
    if given is None:
        return default
    try:
        number = float(given)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e18:
        raise ConfigInvalid(f"{name} is {given!r}", "a number of 0 or more")
    return number
