"""From a URL to a reader of the store, for those that can be read beside their owner: one line of `_READERS` each."""

import time
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

from unibus.errors import StoreUnavailable, UsageError
from unibus.stores.seam.store_view import HistoryReader, StoreReader


def open_reader(url: str, now_ns: Callable[[], int] = time.time_ns) -> StoreReader:
    """StoreUnavailable, or one of its kinds, when it cannot be read from outside. `now_ns` says what is due."""
    opener = _READERS.get(url.partition("://")[0])
    if opener is None:
        raise StoreUnavailable(f"{url} cannot be read beside its owner", "open it as a bus instead")
    return opener(url, now_ns)


def open_history(url: str) -> HistoryReader:
    """The same for whoever follows all of history."""
    opener = _HISTORIES.get(url.partition("://")[0])
    if opener is None:
        raise StoreUnavailable(
            f"{url} cannot be read beside its owner", f"history can be followed in {', '.join(_HISTORIES)}:// stores"
        )
    return opener(url)


def has_reader(url: str) -> bool:
    return url.partition("://")[0] in _READERS


def has_history(url: str) -> bool:
    return url.partition("://")[0] in _HISTORIES


def _open_sqlite(url: str, now_ns: Callable[[], int]) -> StoreReader:
    from unibus.stores.sqlite.reader import SqliteReader

    return SqliteReader(_path(url), now_ns)


def _open_sqlite_history(url: str) -> HistoryReader:
    from unibus.stores.sqlite.history import SqliteHistory

    return SqliteHistory(_path(url))


def _path(url: str) -> str:
    path = unquote(urlsplit(url).path)[1:]
    if not path:
        raise UsageError(f"{url!r} names no file", "write sqlite:///file.db, or sqlite:////absolute/file.db")
    return path


_READERS: Final[dict[str, Callable[[str, Callable[[], int]], StoreReader]]] = {"sqlite": _open_sqlite}
_HISTORIES: Final[dict[str, Callable[[str], HistoryReader]]] = {"sqlite": _open_sqlite_history}
