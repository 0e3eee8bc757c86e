"""The first argument of a bus, as a store URL: it may be a URL, a path, or None for memory.

A text without :// is the path of a file, so a mistake would create a file of that name and seem to work. What is nearly
certainly no path is refused: a connection string, `localhost:5300`, `sqlite:bus.db`, `:memory:`, `mysql`. No error
quotes a text that may contain a key.
"""

import re
from pathlib import Path, PurePath
from typing import Final
from urllib.parse import quote

from unibus.errors import ConfigInvalid, StoreUnavailable, UsageError
from unibus.stores.schemes import MEMORY, find_scheme, in_memory_file, is_planned, refuse_bare_scheme, split_url
from unibus.stores.schemes import owned_file as owned_file  # For the endpoints, which know no stores.

_OPTIONS: Final = re.compile(r"\?[a-z_]+=")
_HOST_AND_PORT: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}/?")
_CONNECTION_STRING: Final = re.compile(
    r"(^|;)\s*(endpoint|sharedaccess\w+|usedevelopmentemulator|entitypath)\s*=", re.I
)


def url_of(store: object) -> str:
    """The store URL for the argument; "" for memory. A path without a scheme is a SQLite file."""
    if store is None:
        return ""
    if isinstance(store, PurePath):
        return sqlite_url(str(store))
    if not isinstance(store, str):
        raise UsageError(
            f"a store is a URL or a path, not {type(store).__name__}", "leave it out to keep messages in memory"
        )
    # Memory is no store of the bus: "" makes a bus that opens one with its first operation on queues.
    if find_scheme(store.partition("://")[0]) is MEMORY:
        if split_url(store).query:
            raise ConfigInvalid(f"a bus in memory takes no URL options: {store!r}", "name a file, or leave them out")
        return ""
    # Before the check for ://, which a connection string has: Endpoint=sb://… The text is not quoted in the error,
    # since it has a key.
    if is_connection_string(store):
        raise UsageError(
            "a connection string names a server, and a bus opens a store in this process",
            "name a file: MessageBus('sqlite:///bus.db'); programs reach a server over HTTP, commands by "
            "--url with the connection string",
        )
    if "://" in store:
        return store
    # From here on the text is a path, and a mistake would create a file.
    _refuse_no_path(store)
    if not store.strip():
        raise UsageError("the store is an empty string", "name a file, or leave it out for memory")
    if _OPTIONS.search(store):
        # Without this check the options would silently become a part of the file's name.
        raise UsageError(
            f"{store!r} has options, but no scheme",
            "write sqlite:///file.db?…; for a file whose name has a question mark pass a Path",
        )
    return sqlite_url(store)


def is_connection_string(text: str) -> bool:
    """Whether the text has a key of a connection string, also without an Endpoint."""
    return _CONNECTION_STRING.search(text) is not None


def is_address(text: str) -> bool:
    """Whether the text is host:port, and no file has that name."""
    return _HOST_AND_PORT.fullmatch(text) is not None and not Path(text).exists()


def _refuse_no_path(text: str) -> None:
    """Raises UsageError for a text without :// that would become a file by mistake, unless that file exists."""
    scheme, colon, rest = text.partition(":")
    # A file of that name settles the question: the user means it.
    if Path(text).exists():
        return
    if not colon:
        refuse_bare_scheme(text.strip())
        return
    if text.strip() == ":memory:":
        raise in_memory_file()
    if is_address(text):
        raise UsageError(
            f"{text} looks like the address of a server, and a bus opens a store in this process",
            f"name a file: sqlite:///bus.db, or ./{text} for a file of that name; commands reach a server by --url",
        )
    row = find_scheme(scheme)
    if row is not None or is_planned(scheme):
        meant = row.example.replace(row.example.partition(":///")[2], rest.lstrip("/")) if row is not None else ""
        raise UsageError(
            f"'{scheme}:' without // would be the name of a file", f"write {meant or f'{scheme}://…'}, or ./{scheme}:…"
        )


def sqlite_url(path: str) -> str:
    if "\0" in path:
        raise StoreUnavailable(f"path {path!r:.80} contains a NUL character", "remove it")
    try:
        # Quoted: ? and # in the name of a file would begin the options or a fragment of the URL.
        return f"sqlite:///{quote(path)}"
    except UnicodeEncodeError as error:
        raise StoreUnavailable(f"path {path!r:.80} is not valid UTF-8", "rename the file") from error
