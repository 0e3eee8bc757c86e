"""Opens a store for commands that only read it, with or without a process that owns it.

A reader never takes the ownership of a store that can be read without it: a program that starts at that moment would
get StoreBusy only because a command reads.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from unibus.cli.terminal.output import aside
from unibus.errors import StoreVersion

if TYPE_CHECKING:
    from unibus.stores.seam.store import Store
    from unibus.stores.seam.store_view import StoreView


@contextlib.contextmanager
def reading(url: str) -> "Iterator[StoreView]":
    """A reader of the store, closed when the block ends."""
    from unibus.stores.schemes import has_reader

    if has_reader(url):
        with contextlib.closing(_reader(url)) as reader:
            yield reader
    else:
        with _own_store(url) as reader:
            aside("only the owner can read this kind of store: no other process can open it until this command ends")
            yield reader


def _reader(url: str) -> "StoreView":
    from unibus.stores.schemes import open_reader

    try:
        return open_reader(url)
    except StoreVersion:
        # An older version: opening the store as its owner migrates it. A newer version: this raises StoreVersion again.
        with _own_store(url):
            pass
        return open_reader(url)


@contextlib.contextmanager
def _own_store(url: str) -> "Iterator[StoreView]":
    from unibus.stores.seam.store_view import OpenStoreView

    with owning(url) as store:
        yield OpenStoreView(store)


@contextlib.contextmanager
def owning(url: str) -> "Iterator[Store]":
    """The store itself, for commands that change it. Creates a missing store."""
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
