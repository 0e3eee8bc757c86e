"""The store as commands see it that only look: beside a process that owns it, or where there is none.

They never become the owner of a store that can be read from outside: a program that starts at that very moment would be
refused because somebody looked.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from unibus.cli.terminal.output import aside
from unibus.errors import StoreVersion

if TYPE_CHECKING:
    from unibus.stores.seam.store import Store
    from unibus.stores.seam.store_view import StoreReader


@contextlib.contextmanager
def looking(url: str) -> "Iterator[StoreReader]":
    """A reader of the store, until the block is left."""
    from unibus.stores.schemes import has_reader

    if has_reader(url):
        with contextlib.closing(_reader(url)) as reader:
            yield reader
    else:
        with _own_store(url) as reader:
            aside("this store is read by its owner only: nobody else can open it meanwhile")
            yield reader


def _reader(url: str) -> "StoreReader":
    from unibus.stores.schemes import open_reader

    try:
        return open_reader(url)
    except StoreVersion:
        # Of an older version, perhaps: whoever owns it brings it up to date. Of a newer one, and this says so again.
        with _own_store(url):
            pass
        return open_reader(url)


@contextlib.contextmanager
def _own_store(url: str) -> "Iterator[StoreReader]":
    from unibus.stores.seam.store_view import OpenStoreReader

    with owning(url) as store:
        yield OpenStoreReader(store)


@contextlib.contextmanager
def owning(url: str) -> "Iterator[Store]":
    """The store itself, for those that change it. One that is missing is made."""
    from unibus.bus.timers import ThreadTimers
    from unibus.clock import SYSTEM_CLOCK
    from unibus.stores.opening import open_store

    timers = ThreadTimers(SYSTEM_CLOCK, _raise)
    try:
        with contextlib.closing(open_store(url, SYSTEM_CLOCK, timers)) as store:
            yield store
    finally:
        timers.stop()


def _raise(error: BaseException) -> None:
    raise error
