"""Buses with messages to ask for, in memory and in a file whose bodies stay on disk."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.stores.query.result import Value

Asked: TypeAlias = Callable[..., list[tuple[Value, ...]]]


@pytest.fixture(params=["memory", "sqlite"])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SyncMessageBus]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/bus.db?memory_budget_mb=0.0001"
    with SyncMessageBus(url) as made:
        yield made


@pytest.fixture
def ask(bus: SyncMessageBus) -> Asked:
    """The rows of a query as tuples."""

    def asked(sql: str, parameters: Any = ()) -> list[tuple[Value, ...]]:
        return [row.as_tuple() for row in bus.query_messages(sql, parameters)]

    return asked


@pytest.fixture
def sync_bus() -> Iterator[SyncMessageBus]:
    """In memory, for what has nothing to do with the store."""
    with SyncMessageBus() as made:
        yield made
