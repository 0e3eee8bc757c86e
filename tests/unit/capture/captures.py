"""Captures for tests: a store, a directory, and what is in it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa

from tests.unit.capture.rows import plain
from unibus.capture import schema
from unibus.capture.capturing import Capturing
from unibus.capture.segments import SegmentWriter
from unibus.capture.settings import Policy, Rotation
from unibus.capture.sources import CaptureSource
from unibus.stores.files.disk import Files
from unibus.stores.schemes import open_history

NOW = Rotation(every_s=1e-9)
"""Every look is sealed."""


@contextmanager
def capturing(
    url: str, folder: Path | str, roll: Rotation | None = None, policy: Policy | None = None, files: Files | None = None
) -> Iterator[Capturing]:
    with (
        closing(open_history(url)) as reader,
        closing(Capturing(reader, str(folder), roll, policy, files=files)) as capture,
    ):
        yield capture


def capture_all(
    url: str, folder: Path | str, roll: Rotation | None = None, policy: Policy | None = None, files: Files | None = None
) -> None:
    with capturing(url, folder, roll, policy, files) as capture:
        capture.finish()


def captured(folder: Path) -> list[dict[str, object]]:
    source = CaptureSource(str(folder))
    batches = [batch for piece in source.pieces(0, 1 << 60) for batch in source.read(piece)]
    return plain(pa.Table.from_batches(batches, schema.EVENTS))


def bodies(folder: Path) -> list[dict[str, object]]:
    source = CaptureSource(str(folder))
    return [
        row for piece in source.pieces(0, 1 << 60) for batch in source.read_bodies(piece) for row in batch.to_pylist()
    ]


def captured_on(files: Files, folder: str) -> list[dict[str, object]]:
    """On a disk of its own: all segments as they count, each checked."""
    writer = SegmentWriter(folder, files=files)
    tables = [writer.read(segment) for segment in writer.manifest.segments]
    for segment in writer.manifest.segments:
        if segment.bodies is not None:
            writer.read_bodies(segment)
    return plain(pa.concat_tables([*tables, schema.EVENTS.empty_table()]))
