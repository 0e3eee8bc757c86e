"""The whole contract of a store, on stores whose answers are late, lost and asked for again: with several seeds, and
with every answer lost."""

from pathlib import Path

import pytest

from tests.contract.test_stores import TINY_MB, late, on_jsonfile, on_memory, on_sqlite
from unibus.testing import late_calls
from unibus.testing.store_contract import OpenStore, StoreContract

SEEDS = (11, 12, 13)


@pytest.fixture(params=SEEDS)
def late_seed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    if request.param == SEEDS[-1]:
        monkeypatch.setattr(late_calls, "LOST_CHANCE", 1.0)
    return int(request.param)


class TestLateMemory(StoreContract):
    @pytest.fixture
    def open_store(self, late_seed: int) -> OpenStore:
        return lambda clock: late(on_memory(clock), clock, late_seed)


class TestLateSqlite(StoreContract):
    @pytest.fixture
    def open_store(self, folder: Path, late_seed: int) -> OpenStore:
        return lambda clock: late(on_sqlite(folder, clock, 5, TINY_MB), clock, late_seed)


class TestLateJsonFile(StoreContract):
    @pytest.fixture
    def open_store(self, folder: Path, late_seed: int) -> OpenStore:
        return lambda clock: late(on_jsonfile(folder, clock, 5, TINY_MB), clock, late_seed)
