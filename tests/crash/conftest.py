"""The campaigns use small snapshot slices and a small write-ahead log; other tests must not be affected."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from unibus.stores.engine import snapshot
from unibus.stores.jsonfile import log as jsonfile_log
from unibus.stores.sql import trace_index
from unibus.stores.sqlite import journal as sqlite


@contextmanager
def kept() -> Iterator[None]:
    segment = jsonfile_log.SEGMENT_BYTES
    before = snapshot.PART_ENTRIES, sqlite.CHECKPOINT_BYTES, trace_index.BLOCK_CHANGES
    yield
    snapshot.PART_ENTRIES, sqlite.CHECKPOINT_BYTES, trace_index.BLOCK_CHANGES = before
    jsonfile_log.SEGMENT_BYTES = segment


@pytest.fixture(autouse=True)
def sizes_of_a_test() -> Iterator[None]:
    with kept():
        yield


@pytest.fixture(autouse=True, scope="module")
def sizes_of_a_module() -> Iterator[None]:
    """Before the fixtures of a module that make a store for all its tests."""
    with kept():
        yield
