"""Columns made of many changes are the rows that `event_of` gives, whatever the history."""

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.capture.histories import working
from tests.unit.capture.rows import plain, rows_of
from unibus.capture import columns
from unibus.capture.columns import EventColumns, by_type
from unibus.core.lifecycle.events import event_of
from unibus.core.lifecycle.state.changes import Change
from unibus.stores.schemes import open_history


@pytest.mark.parametrize("seed", range(6))
def test_both_ways_give_the_same_rows(tmp_path: Path, seed: int) -> None:
    with working(tmp_path / "bus.db", str(seed)) as work:
        work.steps(150)
        with closing(open_history(work.url)) as reader:
            page = reader.groups_after(0, 10**9)
            table = EventColumns("local").table(by_type(page), reader.names_of)
        events = work.events()
        assert len({event.kind for event in events}) > 12
        assert plain(table) == rows_of(events)
        assert table.schema.equals(columns.EVENTS)
        table.validate(full=True)


def every_kind(folder: Path) -> tuple[list[Change], dict[int, str]]:
    """Some changes of each type that random work makes, the rare ones as often as the others."""
    found: dict[type, list[Change]] = {}
    with working(folder / "bus.db", "every") as work:
        work.steps(400)
        with closing(open_history(work.url)) as reader:
            for _, group in reader.groups_after(0, 10**9):
                for change in group:
                    found.setdefault(type(change), []).append(change)
            names = dict(reader.names_of(range(100)))
    assert len(found) > 12
    return [change for some in found.values() for change in some[:3]], names


def test_whatever_is_mixed_comes_out_in_order_and_once(tmp_path: Path) -> None:
    """Also a page of rare kinds only, and one of a single kind."""
    pool, names = every_kind(tmp_path)

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.sampled_from(range(len(pool))), min_size=1, max_size=12), st.integers(1, 10**6))
    def check(chosen: list[int], first: int) -> None:
        mixed = [pool[at] for at in chosen]
        table = EventColumns("local").table(by_type([(first, mixed)]), lambda entities: names)
        assert table["seq"].to_pylist() == list(range(first, first + len(mixed)))
        expected = [event_of(first + at, change, "local", names) for at, change in enumerate(mixed)]
        assert plain(table) == rows_of(expected)

    check()


def test_nothing_gives_no_rows() -> None:
    assert EventColumns("local").table({}, lambda entities: {}).num_rows == 0


def test_an_entity_that_nobody_knows_is_its_number(tmp_path: Path) -> None:
    with working(tmp_path / "bus.db") as work:
        work.rig.send("a", 1)
        with closing(open_history(work.url)) as reader:
            page = reader.groups_after(work.last() - 1)
        assert EventColumns("local").table(by_type(page), lambda entities: {})["channel"].to_pylist() == ["#1"]


def test_a_refused_forward_has_its_reason_in_both(tmp_path: Path) -> None:
    with working(tmp_path / "bus.db") as work:
        work.rig.queue("begin", forward_to="missing")
        work.rig.topic("topic")
        work.rig.subscription("topic", "s", forward_to="missing")
        for name in ("begin", "topic", "a"):
            work.rig.send(name, 1)
        with closing(open_history(work.url)) as reader:
            table = EventColumns("local").table(by_type(reader.groups_after(0, 10**9)), reader.names_of)
        refusals = [dict(attrs or ()).get("refusal") for attrs in table["attrs"].to_pylist()]
        assert [each for each in refusals if each] == ["ForwardTargetNotFound: no entity 'missing'"] * 2
        assert plain(table) == rows_of(work.events())


def test_maps_hold_what_is_there(tmp_path: Path) -> None:
    """Some rows with two attributes, some with one, some with none, in one kind."""
    with working(tmp_path / "bus.db") as work:
        for number in range(40):
            fields = {"dedup_key": f"k{number}"} if number % 3 == 0 else {}
            work.rig.send("a", number, 0 if number % 2 else 7, **fields)
        with closing(open_history(work.url)) as reader:
            table = EventColumns("local").table(by_type(reader.groups_after(0)), reader.names_of)
        assert plain(table) == rows_of(work.events())
