"""The table of store schemes: one row for each kind of store that unibus has.

    sqlite:///bus.db?durability=D1
    └─ scheme ──▶ row ─┬─ journal    what opening.py makes an EmbeddedStore with
                       ├─ reader     reads the store while another process owns it
                       ├─ history    follows the whole history while another process owns it
                       ├─ inspection what `unibus check` and `unibus repair` read and write its files with
                       └─ kept_in, lock_beside, example, description

Every other module asks this table, so a new embedded store is one row here and its own folder beside `sqlite/` and
`jsonfile/`. A store of another package has no row: it registers an opener as an entry point in the group
`unibus.stores`.

This module is cheap to import, and a row imports its store only when it is used: a command that reads one message does
not load the engine.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, unquote, urlsplit

from unibus.errors import StoreUnavailable, UsageError
from unibus.limits import (
    HISTORY_BYTES_DEFAULT,
    JSON_SNAPSHOT_BYTES_MAX,
    MEMORY_HISTORY_BYTES_DEFAULT,
    SNAPSHOT_BYTES_MAX,
)
from unibus.near_names import near_name

if TYPE_CHECKING:
    from unibus.clock import Clock, Timers
    from unibus.stores.seam.journal import Journal
    from unibus.stores.seam.store import Store
    from unibus.stores.seam.store_files import SalvagedStore, StoreFiles
    from unibus.stores.seam.store_view import HistoryReader, StoreView

GROUP: Final = "unibus.stores"
PLANNED: Final = ("redis", "rediss", "postgresql", "postgres", "tidb", "mysql")
"""Schemes that this version does not have. The error names them, so that a caller does not believe them to be typos."""
ENGINES: Final = (
    *PLANNED,
    "amqp", "amqps", "cockroachdb", "duckdb", "kafka", "mariadb", "mongo", "mongodb", "mqtt", "mssql", "nats", "oracle",
    "pulsar", "rabbitmq", "sqs", "valkey", "zeromq", "zmq",
)  # fmt: skip
"""Databases and brokers that newcomers name as a store by the bare word. As a path it would silently make a file."""
SERVERS: Final = ("http", "https")
"""The addresses of a server: for commands, not for a bus."""

JSON_EVERY_CHANGES: Final = 100_000
"""JSON is slower to read than SQLite, so a snapshot is taken sooner: recovery reads what came after it."""

Opener = Callable[[str, "Clock", "Timers"], "Store"]
Reader = Callable[[str, Callable[[], int]], "StoreView"]
History = Callable[[str], "HistoryReader"]


@dataclass(frozen=True)
class JournalSettings:
    """The options of a URL that are for the journal. `reserve_bytes` are kept for the time when the disk is full."""

    domain: str
    history_age_s: float
    history_bytes: int
    reserve_bytes: int


def read_in_place(path: str, work: str) -> str:
    """The path itself: reading these files changes nothing, and creates nothing beside them."""
    return path


@dataclass(frozen=True)
class InspectedFiles:
    """How the files of a store are checked and repaired (seam/store_files.py).

    `open` takes the path to read, the URL to report, and whether an owner may change the files meanwhile. `write`
    writes a whole new store at a path where there is none. `copy` takes the path of the original and an empty folder,
    and returns the path that a repair reads instead.
    """

    open: "Callable[[str, str, bool], StoreFiles]"
    write: "Callable[[str, SalvagedStore], None]"
    copy: Callable[[str, str], str] = read_in_place
    beside_owner: bool = False  # A check needs no lock: what it reads is of one moment.


@dataclass(frozen=True)
class StoreScheme:
    """One row. `reader` and `history` take a path; a store without them is read by its owner only. One without
    `inspection` cannot be checked or repaired."""

    name: str
    example: str
    description: str  # For help texts, after the example.
    journal: "Callable[[str, JournalSettings], Journal]"
    aliases: tuple[str, ...] = ()
    kept_in: str = ""  # What the path of its URL names: a "file" or a "folder". "" for a store without a path.
    lock_beside: Callable[[str], str] = str  # From its path to the file that has the owner's lock file beside it.
    reader: Reader | None = None
    history: History | None = None
    inspection: InspectedFiles | None = None
    history_bytes: int = HISTORY_BYTES_DEFAULT
    snapshot_every: int | None = None  # None: as often as the engine does by itself.
    snapshot_bytes_max: int = SNAPSHOT_BYTES_MAX
    rewrites: bool = False  # A snapshot writes all messages of an entity again: see SnapshotLimits.


# The functions of the rows: each imports its own store


def _memory_journal(path: str, settings: JournalSettings) -> "Journal":
    from unibus.stores.memory import MemoryJournal

    return MemoryJournal(history_bytes=settings.history_bytes)


def _sqlite_journal(path: str, settings: JournalSettings) -> "Journal":
    from unibus.stores.files.reserve import Reserve
    from unibus.stores.sqlite.journal import SqliteJournal

    if os.path.isdir(path):
        raise StoreUnavailable(f"{path} is a folder, not a file", f"JSON files in a folder are jsonfile:///{path}")
    # The reserve is beside the real file, on the disk that has to have the space.
    return SqliteJournal(
        path,
        domain=settings.domain,
        history_age_s=settings.history_age_s,
        history_bytes=settings.history_bytes,
        reserve=Reserve(f"{os.path.realpath(path)}-reserve", settings.reserve_bytes),
    )


def _sqlite_reader(path: str, now_ns: Callable[[], int]) -> "StoreView":
    from unibus.stores.sqlite.reader import SqliteReader

    return SqliteReader(path, now_ns)


def _sqlite_history(path: str) -> "HistoryReader":
    from unibus.stores.sqlite.history import SqliteHistory

    return SqliteHistory(path)


def _sqlite_files(path: str, url: str, is_owned: bool) -> "StoreFiles":
    from unibus.stores.sqlite.inspection import SqliteFiles

    return SqliteFiles(path, url, is_owned)


def _write_sqlite(path: str, store: "SalvagedStore") -> None:
    from unibus.stores.sqlite.inspection import write_store

    write_store(path, store)


def _copy_sqlite(path: str, work: str) -> str:
    from unibus.stores.sqlite.inspection import copy_store

    return copy_store(path, work)


def _json_journal(path: str, settings: JournalSettings) -> "Journal":
    from unibus.stores.files.reserve import Reserve
    from unibus.stores.jsonfile.folder import RESERVE
    from unibus.stores.jsonfile.journal import JsonFileJournal

    return JsonFileJournal(
        # A trailing slash is no part of the name: lock and log files are derived from it.
        path.rstrip("/") or "/",
        domain=settings.domain,
        history_age_s=settings.history_age_s,
        history_bytes=settings.history_bytes,
        reserve=Reserve(f"{os.path.realpath(path)}/{RESERVE}", settings.reserve_bytes),
    )


def _json_lock_beside(path: str) -> str:
    from unibus.stores.jsonfile.state import STATE

    return f"{path.rstrip('/')}/{STATE}"


def _json_files(path: str, url: str, is_owned: bool) -> "StoreFiles":
    from unibus.stores.jsonfile.inspection import JsonFiles

    return JsonFiles(path, url)


def _write_json(path: str, store: "SalvagedStore") -> None:
    from unibus.stores.jsonfile.inspection import write_store

    write_store(path, store)


MEMORY: Final = StoreScheme(
    "memory",
    "memory://",
    "messages end with the process",
    _memory_journal,
    aliases=("in_memory", "inmemory"),
    history_bytes=MEMORY_HISTORY_BYTES_DEFAULT,
)
SQLITE: Final = StoreScheme(
    "sqlite",
    "sqlite:///file.db",
    "one SQLite file",
    _sqlite_journal,
    kept_in="file",
    reader=_sqlite_reader,
    history=_sqlite_history,
    # A copy for repair: opening a SQLite file may write to it, as recovery of its -wal does. `beside_owner`: a read
    # transaction sees one moment, whatever the owner writes.
    inspection=InspectedFiles(_sqlite_files, _write_sqlite, copy=_copy_sqlite, beside_owner=True),
)
JSONFILE: Final = StoreScheme(
    "jsonfile",
    "jsonfile:///folder",
    "JSON files in a folder",
    _json_journal,
    kept_in="folder",
    lock_beside=_json_lock_beside,
    inspection=InspectedFiles(_json_files, _write_json),
    snapshot_every=JSON_EVERY_CHANGES,
    snapshot_bytes_max=JSON_SNAPSHOT_BYTES_MAX,
    rewrites=True,
)
STORE_SCHEMES: Final[list[StoreScheme]] = [MEMORY, SQLITE, JSONFILE]


# Questions about a scheme


def find_scheme(name: str) -> StoreScheme | None:
    """The row with this name or alias."""
    # Not case-folded: a URL scheme is written in lower case, and `unknown_scheme` hints at the right one.
    for row in STORE_SCHEMES:
        if name == row.name or name in row.aliases:
            return row
    return None


def kept_in(scheme: str) -> str:
    """What a URL of this scheme names on this machine: "file", "folder", or "" where it names neither."""
    row = find_scheme(scheme)
    return "" if row is None else row.kept_in


def inspected_schemes() -> list[StoreScheme]:
    """The rows whose files can be checked and repaired."""
    return [row for row in STORE_SCHEMES if row.inspection is not None]


def is_store_scheme(scheme: str) -> bool:
    """True also for a store that this version cannot open, and for one of another package."""
    return find_scheme(scheme) is not None or is_planned(scheme) or scheme in installed_openers()


def is_planned(scheme: str) -> bool:
    """Also with a driver, as other libraries write it: `postgresql+asyncpg`."""
    return scheme.casefold().partition("+")[0] in PLANNED


def installed_openers() -> "dict[str, Callable[[], Opener]]":
    """What other packages register, by scheme; the first package wins. An opener is loaded only when it is used."""
    from importlib.metadata import entry_points

    # Reversed, so that in the dict the first package overwrites the others.
    return {found.name: found.load for found in reversed(list(entry_points(group=GROUP)))}


def refuse_bare_scheme(word: str) -> None:
    """Raise for a word that is the name of an engine, and not a path: `mysql`, `sqlite`. `./mysql` is a file."""
    name = word.casefold()
    # Entry points are read from the metadata of every installed package, which takes milliseconds.
    if not name.isalnum():
        return  # `bus.db` and `data/bus`: the usual path, for which no entry point has to be read.
    row = find_scheme(name)
    file = f"./{word} for a file of that name"
    if row is not None:
        raise UsageError(
            f"{word!r} names a kind of store and no {row.kept_in or 'file'}", f"write {row.example}, or {file}"
        )
    if name in installed_openers():
        raise UsageError(f"{word!r} names a kind of store and no file", f"write {name}://…, or {file}")
    if name in ENGINES or name in SERVERS:
        raise StoreUnavailable(
            f"{word!r} names no file: as a URL it is {name}://…, and this version cannot keep messages there",
            f"write {SQLITE.example}, {JSONFILE.example} or {MEMORY.example}, or {file}",
        )


def unknown_scheme(scheme: str) -> Exception:
    """The error for a scheme that no row and no other package has."""
    if scheme.casefold() in SERVERS:
        return StoreUnavailable(
            f"{scheme}:// is the address of a server, and a bus opens a store in this process",
            "name a file: sqlite:///file.db; programs reach a server over HTTP, commands by --url",
        )
    known = [f"{row.example} ({row.description})" for row in STORE_SCHEMES]
    known += [f"{name}://" for name in sorted(installed_openers())]
    available = f"use one of {', '.join(known)}"
    if is_planned(scheme):
        return StoreUnavailable(f"this version cannot keep messages in {scheme}://", available)
    if scheme.casefold() == "file":
        return UsageError("file:// names a file, and not the kind of store that is in it", available)
    near = near_name(scheme.casefold().partition("+")[0], [row.name for row in STORE_SCHEMES])
    meant = f"did you mean {near}://? " if near else ""
    return UsageError(f"unknown store scheme {scheme:.40}://", f"{meant}{available}")


# Questions about a URL


def split_url(url: str) -> SplitResult:
    """UsageError for text that is not a URL, and for line breaks: `urlsplit` would silently remove them."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"{url!r} is not a URL: {error}", "write sqlite:///file.db, or memory://") from error
    if any(each in url for each in "\r\n\t"):
        raise UsageError(f"{url!r} has a line break or a tab in it", "write it as %0A or %09")
    return parts


def path_in(url: str, row: StoreScheme) -> str:
    """The path that the URL names; "" for a store without one. Three slashes: relative to here; four: from the root."""
    if not row.kept_in:
        return ""
    parts = split_url(url)
    path = unquote(parts.path)[1:]
    # sqlite://bus.db has a host and no path: two slashes were meant to be three.
    if parts.netloc and "\0" not in parts.netloc + path:
        given = f"{parts.netloc}/{path}".rstrip("/")
        raise UsageError(
            f"{url.partition('?')[0]!r} names no {row.kept_in}: after two slashes comes a host",
            f"write {spellings(row, given)}",
        )
    if not path or "\0" in path:
        absolute = row.example.replace(":///", ":////absolute/")
        raise UsageError(f"{url!r} names no {row.kept_in}", f"write {row.example}, or {absolute}")
    if path == ":memory:" and not os.path.exists(path):
        raise in_memory_file()
    return path


def in_memory_file() -> UsageError:
    """The error for the word that SQLite has for a database in memory: as a path it would silently make a file."""
    return UsageError("':memory:' would be the name of a file", "write memory://, or leave the store out")


def spellings(row: StoreScheme, path: str) -> str:
    """Both URLs of a path, for hints: a newcomer cannot know whether three slashes are relative or absolute."""
    name = path.lstrip("/")
    return f"{row.name}:///{name} for {os.path.abspath(name)}, or {row.name}:////{name} for /{name}"


def owned_file(url: str) -> str:
    """The path that the owner's lock file is beside; "" for a store without a file on this machine."""
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    row = find_scheme(parts.scheme)
    return row.lock_beside(path) if path and not parts.netloc and row is not None and row.kept_in else ""


# Reading beside the owner


def has_reader(url: str) -> bool:
    row = _row_of(url)
    return row is not None and row.reader is not None


def has_history(url: str) -> bool:
    row = _row_of(url)
    return row is not None and row.history is not None


def open_reader(url: str, now_ns: Callable[[], int] = time.time_ns) -> "StoreView":
    """Raises StoreUnavailable when the store cannot be read beside its owner. `now_ns` decides what is due."""
    row = _row_of(url)
    if row is None or row.reader is None:
        raise StoreUnavailable(f"{url} can only be read by the bus that owns it", "open it as a bus instead")
    return row.reader(path_in(url, row), now_ns)


def open_history(url: str) -> "HistoryReader":
    """The same for a reader that follows the whole history."""
    row = _row_of(url)
    if row is None or row.history is None:
        raise StoreUnavailable(
            f"{url} can only be read by the bus that owns it", f"history can be followed in {history_schemes()} stores"
        )
    return row.history(path_in(url, row))


def history_schemes() -> str:
    """Those that `open_history` takes, for hints."""
    return ", ".join([f"{row.name}://" for row in STORE_SCHEMES if row.history is not None])


def _row_of(url: str) -> StoreScheme | None:
    return find_scheme(url.partition("://")[0])
