"""Every store that a test opens is checked when it closes: counts, states, indexes, and memory against the log.

A test that damages a store on purpose, or takes its disk away, says so with `@pytest.mark.unchecked`.
"""

from collections.abc import Iterator

import pytest

from unibus.errors import BusError, StoreFailed
from unibus.stores import embedded


@pytest.fixture(autouse=True)
def _stores_keep_their_invariants(request: pytest.FixtureRequest) -> Iterator[None]:
    found: list[str] = []

    def look(store: embedded.EmbeddedStore) -> None:
        if not store.health().ok:
            return
        try:
            found.extend(store.check())
        except StoreFailed:
            return  # Its disk was taken away: there is nothing to compare with.
        except BusError as error:
            found.append(f"{type(error).__name__}: {error}")

    embedded.before_close = look
    try:
        yield
    finally:
        embedded.before_close = None
    if request.node.get_closest_marker("unchecked") is None:
        assert found == []
