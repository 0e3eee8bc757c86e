"""The rules of honest timing: contenders take turns, the best round counts, lost messages are an error."""

import gc

import pytest

from benchmarks.measure import Options, Undelivered, best_of, check_delivered, counting_handlers, rounds_of, turns


def test_contenders_take_turns_and_the_first_place_moves_on() -> None:
    calls: list[tuple[str, int]] = []

    def contender(name: str):  # type: ignore[no-untyped-def]
        return lambda count: calls.append((name, count)) or 1.0

    rounds_of({"a": contender("a"), "b": contender("b")}, 100, Options(rounds=3))
    warm_up, measured = calls[:2], calls[2:]
    assert warm_up == [("a", 10), ("b", 10)]
    assert measured == [("a", 100), ("b", 100), ("b", 100), ("a", 100), ("a", 100), ("b", 100)]


def test_the_best_round_counts_and_the_warm_up_does_not() -> None:
    times = iter([1.0, 30.0, 20.0, 40.0])
    assert best_of({"only": lambda count: next(times)}, 100, Options(rounds=3)) == {"only": 20.0}


def test_measuring_with_the_collector_off_is_refused() -> None:
    gc.disable()
    try:
        with pytest.raises(RuntimeError, match="garbage collector"):
            best_of({"only": lambda count: 1.0}, 100, Options())
    finally:
        gc.enable()


@pytest.mark.parametrize("received", [9, 11])
def test_a_trial_that_loses_or_invents_messages_fails(received: int) -> None:
    with pytest.raises(Undelivered, match=f"10 messages were sent, {received} arrived"):
        check_delivered(received, 10)


def test_different_handlers_share_one_count() -> None:
    handlers, received = counting_handlers(3)
    for handler in handlers:
        handler("message")
    assert len(set(map(id, handlers))) == 3
    assert received() == 3


def test_turns_go_round_the_items_and_stop_at_the_count() -> None:
    assert list(turns(["a", "b", "c"], 5)) == ["a", "b", "c", "a", "b"]


def test_quick_means_fewer_messages_and_rounds_unless_rounds_are_given() -> None:
    assert Options.of(rounds=None, quick=False) == Options(rounds=7, quick=False)
    assert Options.of(rounds=None, quick=True) == Options(rounds=3, quick=True)
    assert Options.of(rounds=5, quick=True).rounds == 5
    assert Options.of(rounds=None, quick=True).count(100_000) == 10_000
    assert Options.of(rounds=None, quick=False).count(100_000) == 100_000


def test_the_warm_up_can_be_left_to_the_trial() -> None:
    counts: list[int] = []
    best_of({"only": lambda count: counts.append(count) or 1.0}, 100, Options(rounds=2), warm_up=False)
    assert counts == [100, 100]
