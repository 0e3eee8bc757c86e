"""From a URL to a store. Other packages add schemes of their own by an entry point in the group `unibus.stores`."""

import os
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from unibus.clock import Clock, Timers
from unibus.core.life.entity import QUEUE, SUBSCRIPTION, TOPIC
from unibus.errors import ConfigInvalid, StoreUnavailable, UsageError
from unibus.limits import HISTORY_AGE_S_DEFAULT, HISTORY_BYTES_DEFAULT, MEMORY_BUDGET_MB_DEFAULT, RESERVE_MB_DEFAULT
from unibus.stores.durability import Durability
from unibus.stores.embedded import EmbeddedStore
from unibus.stores.journal import Journal
from unibus.stores.journals.memory import MemoryJournal
from unibus.stores.reserve import Reserve
from unibus.stores.snapshot import EVERY_CHANGES
from unibus.stores.store import Store

GROUP: Final = "unibus.stores"
MEMORY_SCHEMES: Final = ("memory", "in_memory", "inmemory")
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
"""`capture` is the bus's business, not the store's: bus/capture_child.py."""


def open_store(url: str, clock: Clock, timers: Timers) -> Store:
    """Open the store that the URL names. StoreUnavailable, or one of its kinds, when it cannot be opened."""
    scheme, separator, _ = url.partition("://")
    if not separator and url not in MEMORY_SCHEMES:
        raise UsageError(f"{url!r} is no URL of a store", "write sqlite:///file.db, or memory://")
    if scheme in MEMORY_SCHEMES:
        return _embedded(MemoryJournal(), _options(urlsplit(url).query), clock, timers)
    if scheme == "sqlite":
        return open_sqlite(url, clock, timers)
    if scheme == "jsonfile":
        return open_jsonfile(url, clock, timers)
    for found in entry_points(group=GROUP):
        if found.name == scheme:
            opener: Opener = found.load()
            return opener(url, clock, timers)
    raise unknown_scheme(scheme)


def unknown_scheme(scheme: str) -> Exception:
    if scheme in PLANNED:
        return StoreUnavailable(
            f"this version cannot keep messages in {scheme}://", "use sqlite:///file.db, or memory:// for this process"
        )
    known = sorted({"memory", "sqlite", "jsonfile", *(found.name for found in entry_points(group=GROUP))})
    return UsageError(f"unknown store {scheme}://", f"known schemes are {', '.join(known)}")


def open_sqlite(url: str, clock: Clock, timers: Timers) -> EmbeddedStore:
    """`sqlite:///file.db?durability=D1`. Three slashes: relative to here; four: from the root."""
    from unibus.stores.journals.sqlite import SqliteJournal

    path, options = _parts(url, "file", "write sqlite:///file.db, or sqlite:////absolute/file.db")
    if os.path.isdir(path):
        raise StoreUnavailable(f"{path} is a folder, not a file", f"JSON files in a folder are jsonfile:///{path}")
    journal = SqliteJournal(
        path,
        domain=options.get("domain", "local"),
        history_age_s=_number(options, "history_age", HISTORY_AGE_S_DEFAULT),
        history_bytes=round(_number(options, "history_bytes", HISTORY_BYTES_DEFAULT)),
        reserve=_reserve(f"{path}-reserve", options),
    )
    return _embedded(journal, options, clock, timers)


def open_jsonfile(url: str, clock: Clock, timers: Timers) -> EmbeddedStore:
    """`jsonfile:///folder`, with the options of SQLite."""
    from unibus.stores.journals.jsonfile import JsonFileJournal
    from unibus.stores.journals.jsonfile_folder import RESERVE

    path, options = _parts(url, "folder", "write jsonfile:///folder, or jsonfile:////absolute/folder")
    journal = JsonFileJournal(
        path.rstrip("/") or "/",
        domain=options.get("domain", "local"),
        history_age_s=_number(options, "history_age", HISTORY_AGE_S_DEFAULT),
        history_bytes=round(_number(options, "history_bytes", HISTORY_BYTES_DEFAULT)),
        reserve=_reserve(f"{os.path.realpath(path)}/{RESERVE}", options),
    )
    return _embedded(journal, options, clock, timers, JSON_EVERY_CHANGES)


def _parts(url: str, what: str, hint: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if parts.netloc or not path:
        raise UsageError(f"{url!r} names no {what}", hint)
    return path, _options(parts.query)


def _reserve(path: str, options: dict[str, str]) -> Reserve:
    return Reserve(path, round(_number(options, "reserve_mb", RESERVE_MB_DEFAULT) * 1024 * 1024))


def _embedded(
    journal: Journal, options: dict[str, str], clock: Clock, timers: Timers, every: int = EVERY_CHANGES
) -> EmbeddedStore:
    level = options.get("durability")
    try:
        most = {kind: round(_number(options, name, 0)) for name, kind in _MOST.items() if name in options}
        return EmbeddedStore(
            journal,
            clock,
            timers,
            durability=None if level is None else Durability.of(level),
            memory_budget_mb=_number(options, "memory_budget_mb", MEMORY_BUDGET_MB_DEFAULT),
            snapshot_every=every,
            most=most,
        )
    except BaseException:
        journal.close()
        raise


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise ConfigInvalid(f"a store has no option {unknown[0]!r}", f"known are {', '.join(_OPTIONS)}")
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
