"""No text of a query can change anything, reach anything but our tables, or go on beyond its limits.

Time is counted in looks of the guard (one for each hundred steps of SQLite's machine), not by a clock.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.unit.stores.query.attacks import ATTACKS, Attack
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import BusError
from unibus.stores.query.guard import GROWTH_BYTES_MAX
from unibus.stores.query.result import QueryResult
from unibus.stores.query.run_query import Query
from unibus.stores.seam.store_view import OpenStoreView

LOOKS_MAX = 5_000
ROWS_MAX = 1_000
MEMORY_MB = 32


class Looks:
    """A clock that advances by one at each reading."""

    def __init__(self) -> None:
        self.count = 0.0

    def __call__(self) -> float:
        self.count += 1
        return self.count


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def held(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyncMessageBus]:
    """A bus with messages in every state."""
    folder = tmp_path_factory.mktemp("bus")
    with SyncMessageBus("memory://" if request.param == "memory" else f"sqlite:///{folder}/bus.db") as bus:
        bus.send_many("orders", [{"id": number} for number in range(20)])
        for message in bus.receive_batch("orders", 2, timeout=0):
            message.complete()
        bus.receive_batch("orders", 1, timeout=0)[0].dead_letter("Broken", "no good")
        bus.receive_batch("orders", 1, timeout=0)[0].defer()
        bus.send("later", "x", delay=3_600)
        yield bus


def everything_in(bus: SyncMessageBus) -> list[object]:
    entities = bus.entities()
    peeked = [(str(m.id), m.sequence, m.body) for each in entities for m in bus.peek(each.name, 100)]
    return [*entities, *peeked, bus.health_check().ok]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_ends_and_changes_nothing(
    attack: Attack, held: SyncMessageBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bus.db").write_bytes(b"not yours")
    before, clock = everything_in(held), Looks()
    base = apsw.memory_used()
    apsw.memory_high_water(True)
    query = Query(OpenStoreView(held._runtime.queues().store), attack.sql, (), LOOKS_MAX, ROWS_MAX, MEMORY_MB, clock)
    result = run(query, attack.ends)
    if attack.rows is not None:
        assert result is not None
        assert tuple(row.as_tuple() for row in result) == attack.rows
    assert query.guard.ticks <= clock.count <= LOOKS_MAX + 100
    assert apsw.memory_high_water() - base < MEMORY_MB * 1e6 + GROWTH_BYTES_MAX
    assert everything_in(held) == before
    assert os.listdir(tmp_path) == ["bus.db"]
    assert (tmp_path / "bus.db").read_bytes() == b"not yours"


def run(query: Query, ends: type[BusError] | None) -> QueryResult | None:
    if ends is None:
        return query.run()
    with pytest.raises(ends) as caught:
        query.run()
    assert type(caught.value) is ends
    assert str(caught.value)
    return None


def test_the_bus_works_after_all_of_them(held: SyncMessageBus) -> None:
    for attack in ATTACKS:
        try:
            Query(OpenStoreView(held._runtime.queues().store), attack.sql, (), 500, 10, MEMORY_MB, Looks()).run()
        except BusError:
            pass
    assert held.query_messages("SELECT count(*) FROM messages WHERE status = 'pending'").scalar() == 18
    held.send("after", {"id": 1})
    (message,) = held.receive_batch("after", 1, timeout=0)
    assert message.body == {"id": 1}
    message.complete()
    assert held.query_messages("SELECT status FROM messages WHERE channel = 'after'").scalar() == "delivered"


def test_there_are_many_and_each_has_a_name() -> None:
    assert len(ATTACKS) >= 60
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
