"""Everything in this folder takes minutes, so it runs with `make soak` and never with the other tests."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Called with the items of the whole run, not only with ours.
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.soak)
