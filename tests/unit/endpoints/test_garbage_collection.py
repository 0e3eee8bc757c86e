"""The garbage collector of a server's process."""

import gc

from unibus.endpoints.server.garbage_collection import YOUNG_OBJECTS, fewer_collections


def test_the_collector_is_as_before_afterwards() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        with fewer_collections():
            assert gc.get_threshold() == (YOUNG_OBJECTS, *before[1:])
            assert gc.get_freeze_count() > frozen
        assert gc.get_threshold() == before
        assert gc.get_freeze_count() == 0
    finally:
        gc.freeze()  # As tests/conftest.py left it.
