"""Atomic methods: one step for other threads, compiled and plain."""

import threading

import pytest

from unibus.core import COMPILED
from unibus.core.atomic import LOCK, atomic
from unibus.core.flow.queue import PriorityQueue

GUARD_S = 10.0


class Ledger:
    """Two numbers that must stay equal; a step in between lets others in."""

    def __init__(self) -> None:
        self.one = 0
        self.two = 0
        self.inside = threading.Event()
        self.go_on = threading.Event()

    def add(self, amount: int, *, wait: bool = False) -> int:
        """Adds to both."""
        self.one += amount
        if wait:
            self.inside.set()
            assert self.go_on.wait(GUARD_S)
        self.two += amount
        return self.two

    def look(self) -> tuple[int, int]:
        return (self.one, self.two)

    def add_twice(self, amount: int) -> int:
        self.add(amount)
        return self.add(amount)

    def fail(self) -> None:
        raise ValueError("inside")


plain_only = pytest.mark.skipif(COMPILED, reason="compiled methods need no lock")


@pytest.mark.skipif(not COMPILED, reason="the plain mode wraps")
def test_compiled_nothing_is_wrapped() -> None:
    class Other(Ledger):
        pass

    before = Other.add
    atomic(Other, "add")
    assert Other.add is before
    assert not hasattr(PriorityQueue.push_with_priority, "__wrapped__")


@plain_only
def test_plain_the_named_methods_are_wrapped_and_keep_their_name_and_docstring() -> None:
    class Other(Ledger):
        pass

    before = Other.add
    atomic(Other, "add")
    assert Other.add is not before
    assert (Other.add.__name__, Other.add.__doc__) == ("add", "Adds to both.")
    assert Other.look is Ledger.look
    assert Other().add(2, wait=False) == 2
    assert hasattr(PriorityQueue.push_with_priority, "__wrapped__")


@plain_only
def test_plain_no_other_thread_sees_the_middle_of_a_step() -> None:
    class Other(Ledger):
        pass

    atomic(Other, "add", "look")
    ledger = Other()
    seen: list[tuple[int, int]] = []
    adding = threading.Thread(target=ledger.add, args=(1,), kwargs={"wait": True}, daemon=True)
    adding.start()
    assert ledger.inside.wait(GUARD_S)
    looking = threading.Thread(target=lambda: seen.append(ledger.look()), daemon=True)
    looking.start()
    assert not LOCK.acquire(blocking=False)
    ledger.go_on.set()
    adding.join(GUARD_S)
    looking.join(GUARD_S)
    assert seen == [(1, 1)]


@plain_only
def test_plain_a_step_may_be_part_of_another() -> None:
    class Other(Ledger):
        pass

    atomic(Other, "add", "add_twice")
    assert Other().add_twice(3) == 6


@plain_only
def test_plain_an_error_gives_the_lock_back() -> None:
    class Other(Ledger):
        pass

    atomic(Other, "fail")
    with pytest.raises(ValueError, match="inside"):
        Other().fail()
    got: list[bool] = []

    def take() -> None:
        with LOCK:
            got.append(True)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(GUARD_S)
    assert got == [True]


@plain_only
def test_plain_an_unknown_method_name_is_a_mistake_that_shows() -> None:
    with pytest.raises(AttributeError):
        atomic(Ledger, "no_such_method")
