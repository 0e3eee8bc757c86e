"""The order of sequences: starts anywhere, skips removed messages, and stays bounded."""

from hypothesis import given
from hypothesis import strategies as st

from unibus.core.lifecycle.state.peek_order import PeekOrder


def test_a_page_begins_anywhere() -> None:
    order = PeekOrder([2, 3, 5, 9])
    entries = {2, 3, 5, 9}
    assert order.page(entries, 0, 2) == [2, 3]
    assert order.page(entries, 4, 9) == [5, 9]
    assert order.page(entries, 10, 9) == []


def test_what_is_gone_is_met_once() -> None:
    order = PeekOrder(list(range(1_000)))
    assert order.page({990, 995}, 0, 1) == [990]
    assert order.sequences[:2] == [990, 991]
    assert order.page({990, 995}, 0, 9) == [990, 995]
    assert order.sequences == [990, 995]


def test_a_list_that_is_mostly_gone_is_compacted() -> None:
    order = PeekOrder([])
    for sequence in range(5_000):
        order.append(sequence, 3)
        if order.is_wasteful:
            order.compact({sequence})
    assert len(order.sequences) < 2_000
    assert order.page({4_999}, 0, 9) == [4_999]


def test_a_sequence_that_comes_late_takes_its_place() -> None:
    order = PeekOrder([1, 5])
    order.append(3, 9)
    assert order.page({1, 3, 5}, 2, 9) == [3, 5]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(1, 10)), max_size=80))
def test_it_shows_what_a_walk_would(steps: list[tuple[bool, int, int]]) -> None:
    entries: dict[int, None] = {}
    order = PeekOrder([])
    last = 0
    for comes, where, count in steps:
        if comes or not entries:
            last += 1
            entries[last] = None
            order.append(last, len(entries))
        else:
            del entries[list(entries)[where % len(entries)]]
        expected = [each for each in entries if each >= where][:count]
        assert order.page(entries, where, count) == expected
        later = order.sequences[order.index_after(where) :]
        assert [each for each in later if each in entries] == [each for each in entries if each > where]
