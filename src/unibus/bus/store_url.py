"""The first argument of a bus, as a store URL: it may be a URL, a path, or None for memory."""

import re
from pathlib import PurePath
from typing import Final
from urllib.parse import quote

from unibus.errors import ConfigInvalid, StoreUnavailable, UsageError
from unibus.stores.schemes import MEMORY, find_scheme, split_url
from unibus.stores.schemes import owned_file as owned_file  # For the endpoints, which know no stores.

_OPTIONS: Final = re.compile(r"\?[a-z_]+=")


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
    if find_scheme(store.partition("://")[0]) is MEMORY:
        if split_url(store).query:
            raise ConfigInvalid(f"a bus in memory takes no URL options: {store!r}", "name a file, or leave them out")
        return ""
    if "://" in store:
        return store
    if not store.strip():
        raise UsageError("the store is an empty string", "name a file, or leave it out for memory")
    if _OPTIONS.search(store):
        # Without this check the options would silently become a part of the file's name.
        raise UsageError(
            f"{store!r} has options, but no scheme",
            "write sqlite:///file.db?…; for a file whose name has a question mark pass a Path",
        )
    return sqlite_url(store)


def sqlite_url(path: str) -> str:
    if "\0" in path:
        raise StoreUnavailable(f"path {path!r:.80} contains a NUL character", "remove it")
    try:
        return f"sqlite:///{quote(path)}"
    except UnicodeEncodeError as error:
        raise StoreUnavailable(f"path {path!r:.80} is not valid UTF-8", "rename the file") from error
