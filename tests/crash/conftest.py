"""The campaigns make pieces of snapshots and the write-ahead log small; nobody else shall notice."""

from collections.abc import Iterator

import pytest

from unibus.stores import snapshot
from unibus.stores.journals import jsonfile_log, sqlite, trace_index


@pytest.fixture(autouse=True)
def sizes() -> Iterator[None]:
    segment = jsonfile_log.SEGMENT_BYTES
    before = snapshot.PART_ENTRIES, sqlite.CHECKPOINT_BYTES, trace_index.BLOCK_CHANGES
    yield
    snapshot.PART_ENTRIES, sqlite.CHECKPOINT_BYTES, trace_index.BLOCK_CHANGES = before
    jsonfile_log.SEGMENT_BYTES = segment
