"""The watch of a feed: called once for each start, whatever comes between, and never in the way of others."""

from collections.abc import Callable

import pytest

from unibus.bus.persistent.store_watch import StoreWatch
from unibus.errors import BusClosed


class Store:
    """Calls who watches when the test says so, and remembers who has stopped."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.stopped: list[int] = []
        self.meanwhile: Callable[[], None] = lambda: None  # While `watch` has registered, and not returned yet.

    def watch(self, entity: str, call: Callable[[], None]) -> Callable[[], None]:
        number = len(self.calls)
        self.calls.append(call)
        self.meanwhile()
        return lambda: self.stopped.append(number)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def woken() -> list[int]:
    return []


@pytest.fixture
def watch(store: Store, woken: list[int]) -> StoreWatch:
    return StoreWatch(store, "q", lambda: woken.append(1))  # type: ignore[arg-type]


def test_it_watches_once_and_again_after_a_call(store: Store, watch: StoreWatch, woken: list[int]) -> None:
    watch.start()
    watch.start()
    assert len(store.calls) == 1
    store.calls[0]()
    assert woken == [1]
    watch.start()
    assert len(store.calls) == 2
    watch.end()()
    assert store.stopped == [1]  # Not the first, which was called and is over.


def test_a_call_before_watch_returns_counts(store: Store, watch: StoreWatch, woken: list[int]) -> None:
    store.meanwhile = lambda: store.calls[-1]()
    watch.start()
    assert (woken, store.stopped) == ([1], [])
    store.meanwhile = lambda: None
    watch.start()
    assert len(store.calls) == 2


def test_a_stop_before_watch_returns_leaves_nothing_behind(store: Store, watch: StoreWatch, woken: list[int]) -> None:
    store.meanwhile = lambda: watch.end()()
    watch.start()
    assert store.stopped == [0]
    store.calls[0]()  # It was under way already. It is for others, and the stop has passed it on.
    assert woken == []


def test_a_stop_and_a_start_before_watch_returns_leave_one(store: Store, watch: StoreWatch) -> None:
    def again() -> None:
        store.meanwhile = lambda: None
        watch.end()()
        watch.start()

    store.meanwhile = again
    watch.start()
    assert (len(store.calls), store.stopped) == (2, [0])
    watch.end()()
    assert store.stopped == [0, 1]


def test_a_start_before_the_store_is_told_of_the_end_is_a_watch_of_its_own(
    store: Store, watch: StoreWatch, woken: list[int]
) -> None:
    watch.start()
    stop = watch.end()
    watch.start()
    stop()
    assert (len(store.calls), store.stopped) == (2, [0])
    store.calls[1]()
    assert woken == [1]


def test_a_store_that_refuses_may_be_watched_later(store: Store, watch: StoreWatch) -> None:
    def refuse() -> None:
        raise BusClosed("the store is closed", "open it again")

    store.meanwhile = refuse
    with pytest.raises(BusClosed):
        watch.start()
    store.meanwhile = lambda: None
    watch.start()
    assert len(store.calls) == 2
