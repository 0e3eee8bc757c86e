"""From a URL to a reader of the store, for those that can be read beside their owner: one line of `_READERS` each."""

from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

from unibus.errors import StoreUnavailable, UsageError
from unibus.stores.reader import StoreReader


def open_reader(url: str) -> StoreReader:
    """StoreUnavailable, or one of its kinds, when it cannot be read from outside."""
    opener = _READERS.get(url.partition("://")[0])
    if opener is None:
        raise StoreUnavailable(f"{url} cannot be read beside its owner", "open it as a bus instead")
    return opener(url)


def has_reader(url: str) -> bool:
    return url.partition("://")[0] in _READERS


def _open_sqlite(url: str) -> StoreReader:
    from unibus.stores.journals.sqlite_reader import SqliteReader

    path = unquote(urlsplit(url).path)[1:]
    if not path:
        raise UsageError(f"{url!r} names no file", "write sqlite:///file.db, or sqlite:////absolute/file.db")
    return SqliteReader(path)


_READERS: Final[dict[str, Callable[[str], StoreReader]]] = {"sqlite": _open_sqlite}
