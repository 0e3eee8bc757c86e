"""Where history is read from: --from, else what the lake remembers, else the capture directory that is here."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unibus.cli.pipeline_options import DEFAULT_CAPTURE, extras
from unibus.errors import StoreUnavailable

if TYPE_CHECKING:
    from unibus.capture.sources import EventSource

MISSING_HINT = "--from names a capture directory, a folder of them, or a store: sqlite:///bus.db"


def places(path: Path, given: Sequence[str] | None) -> list[str]:
    """StoreUnavailable, with what to do, where nothing was named and nothing is known."""
    import json

    if given:
        return list(given)
    try:
        remembered = json.loads((path / "lake.json").read_text("utf-8")).get("sources") or []
    except (OSError, ValueError, AttributeError):
        remembered = []
    if remembered:
        return [str(each) for each in remembered]
    if Path(DEFAULT_CAPTURE).is_dir():
        return [DEFAULT_CAPTURE]
    raise StoreUnavailable("there is no history to read: nothing was named, and no capture is here", MISSING_HINT)


@contextlib.contextmanager
def opened_sources(path: Path, given: Sequence[str] | None) -> "Iterator[list[EventSource]]":
    """Until the block is left."""
    with extras():
        from unibus.capture.sources import open_sources
    names = places(path, given)
    for name in names:
        if "://" not in name and not Path(name).exists():
            raise StoreUnavailable(f"there is no {name}", MISSING_HINT)
    sources = open_sources(names)
    try:
        yield sources
    finally:
        for source in sources:
            source.close()
