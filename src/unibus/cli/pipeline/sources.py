"""Where history is read from: --from, else the stored sources of the lake, else the capture in the current folder."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unibus.bus.store_url import sqlite_url
from unibus.cli.pipeline.options import DEFAULT_CAPTURE, extras
from unibus.errors import BusError, StoreUnavailable
from unibus.stores.files.local_folder import scheme_of

if TYPE_CHECKING:
    from unibus.capture.event_source import EventSource

MISSING_HINT = "--from names a capture directory, a folder of them, or a store: sqlite:///bus.db"


def places(path: Path, given: Sequence[str] | None) -> list[str]:
    """The names of the sources. Raises StoreUnavailable if none is given, stored or found."""
    if given:
        return [_readable(each) for each in given]
    with extras():
        from unibus.pipeline.lake import Lake
    remembered = Lake(str(path)).sources()  # Raises for a damaged lake.
    if remembered:
        return remembered
    if Path(DEFAULT_CAPTURE).is_dir():
        return [DEFAULT_CAPTURE]
    raise StoreUnavailable(
        f"there is no history to read: no source is given, and the folder {DEFAULT_CAPTURE} does not exist",
        MISSING_HINT,
    )


def _readable(place: str) -> str:
    """A path to a file is a store; a capture is a folder."""
    return sqlite_url(place) if not scheme_of(place) and Path(place).is_file() else place


@contextlib.contextmanager
def opened_sources(
    path: Path, given: Sequence[str] | None, keep_damaged: bool = False
) -> "Iterator[list[EventSource]]":
    """Closed when the block ends. `keep_damaged`: include sources that cannot be opened, for a run to set aside."""
    with extras():
        from unibus.capture.sources import open_sources
    names = places(path, given)
    for name in names:
        _check_there(name)
    sources = open_sources(names, keep_damaged)
    try:
        yield sources
    finally:
        for source in sources:
            source.close()


def _check_there(name: str) -> None:
    if not scheme_of(name) and not Path(name).exists():
        raise StoreUnavailable(f"source {name} does not exist", MISSING_HINT)


@contextlib.contextmanager
def sources_that_open(path: Path) -> "Iterator[tuple[list[EventSource], dict[str, str]]]":
    """For the status: the sources that can be opened, and the errors of the others by their path."""
    with extras():
        from unibus.capture.sources import open_sources
    opened: list[EventSource] = []
    wrong: dict[str, str] = {}
    try:
        for place in (place for name in places(path, None) for place in _inside(name)):
            try:
                _check_there(place)
                opened += open_sources(place, keep_damaged=True)
            except BusError as error:
                wrong[place] = error.what
            except OSError as error:
                wrong[place] = str(error)
        yield opened, wrong
    finally:
        for source in opened:
            source.close()


def _inside(name: str) -> list[str]:
    """The captures in a folder of captures; else the name itself, even if nothing has it."""
    if scheme_of(name):
        return [name]
    folder = os.path.abspath(name)
    try:
        inside = [os.path.join(folder, each) for each in sorted(os.listdir(folder))]
    except OSError:
        return [folder]
    found = [] if _has_about(folder) else [each for each in inside if _has_about(each)]
    return found or [folder]


def _has_about(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, "capture.json"))
