"""An answer on its way: to tasks, to threads, to callbacks, with and without an error."""

import asyncio
import threading

import pytest

from unibus.stores.pending import Pending, answered, finish_all

GUARD_S = 10.0


def finished_by_a_thread(pendings: list[Pending[int]], error: BaseException | None = None) -> threading.Thread:
    thread = threading.Thread(target=finish_all, args=(pendings, error))
    thread.start()
    return thread


async def test_what_is_answered_needs_no_turn_of_the_loop() -> None:
    turns = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    assert await answered(5) == 5
    assert turns == []
    assert answered(6).wait() == 6


async def test_a_task_waits_until_it_is_finished() -> None:
    pending = Pending(5)
    task = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    assert not task.done()
    finished_by_a_thread([pending]).join()
    assert await asyncio.wait_for(task, GUARD_S) == 5
    assert await pending == 5  # As often as one likes.


async def test_an_error_is_raised_where_somebody_waits() -> None:
    pending = Pending(5)
    task = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    finish_all([pending], lambda: ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await asyncio.wait_for(task, GUARD_S)
    with pytest.raises(ValueError, match="no"):
        pending.wait()


async def test_many_are_finished_at_once() -> None:
    pendings = [Pending(number) for number in range(100)]
    tasks = [asyncio.ensure_future(pending) for pending in pendings]
    await asyncio.sleep(0)
    finished_by_a_thread(pendings).join()
    assert await asyncio.wait_for(asyncio.gather(*tasks), GUARD_S) == list(range(100))


async def test_a_cancelled_waiter_hurts_nobody() -> None:
    pendings = [Pending(1), Pending(2)]
    tasks = [asyncio.ensure_future(pending) for pending in pendings]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    finish_all(pendings)
    assert await asyncio.wait_for(tasks[1], GUARD_S) == 2
    assert tasks[0].cancelled()
    assert await pendings[0] == 1


async def test_two_tasks_may_wait_for_one() -> None:
    pending = Pending(5)
    tasks = [asyncio.create_task(_awaited(pending)) for _ in range(3)]
    await asyncio.sleep(0)
    finish_all([pending])
    assert await asyncio.wait_for(asyncio.gather(*tasks), 0.5) == [5, 5, 5]


async def _awaited(pending: Pending[int]) -> int:
    return await pending


def test_two_threads_may_wait_for_one() -> None:
    pending = Pending(5)
    found: list[object] = []
    waiting = threading.Semaphore(0)

    def wait() -> None:
        waiting.release()
        try:
            found.append(pending.wait(0.5))
        except TimeoutError as error:
            found.append(error)

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
        waiting.acquire()
        threading.Event().wait(0.02)  # Long enough to be inside, as far as a test can know.
    finish_all([pending])
    for thread in threads:
        thread.join(GUARD_S)
    assert found == [5, 5, 5]


def test_a_loop_that_is_closed_keeps_nobody_from_an_answer() -> None:
    gone = Pending(1)

    async def leave() -> None:
        task = asyncio.ensure_future(gone)
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    other = Pending(2)
    finish_all([gone, other])
    assert other.wait() == 2


def test_a_view_is_what_everybody_sees() -> None:
    pending: Pending[int] = Pending(5)
    text = pending.seen_as(lambda value: f"<{value}>")
    finish_all([pending])
    assert text.wait() == "<5>"
    assert pending.value == 5
    assert asyncio.run(_text(text)) == "<5>"


async def _text(pending: Pending[str]) -> str:
    return await pending


class Hands:
    """Who commits, and what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def lead(self, pending: Pending[int]) -> None:
        self.asked.append("lead")
        finish_all([pending])

    def kick(self) -> None:
        self.asked.append("kick")


def test_a_thread_that_waits_leads() -> None:
    hands = Hands()
    pending = Pending(5)
    pending.commits = hands
    assert pending.wait() == 5
    assert pending.wait() == 5
    assert hands.asked == ["lead"]


def test_a_thread_waits_no_longer_than_it_says() -> None:
    pending = Pending(5)
    with pytest.raises(TimeoutError):
        pending.wait(0.01)
    finish_all([pending])
    assert pending.wait(0.01) == 5


def test_a_callback_comes_once_before_or_after() -> None:
    calls: list[Pending[int]] = []
    late, early, hands = Pending(1), Pending(2), Hands()
    early.commits = hands
    early.on_done(calls.append)
    assert (calls, hands.asked) == ([], ["kick"])  # Somebody has to get on with it, as nobody waits.
    finish_all([early, late])
    assert calls == [early]
    late.on_done(calls.append)
    assert calls == [early, late]


def test_a_callback_sees_the_error() -> None:
    pending: Pending[int] = Pending(1)
    errors: list[object] = []
    pending.on_done(lambda done: errors.append(done.error))
    finish_all([pending], lambda: ValueError("no"))
    assert [type(error) for error in errors] == [ValueError]


def test_a_race_between_finishing_and_asking_loses_no_call() -> None:
    for _ in range(300):
        pending: Pending[int] = Pending(1)
        called = threading.Event()
        thread = finished_by_a_thread([pending])
        pending.on_done(lambda done, called=called: called.set())  # type: ignore[misc]
        assert called.wait(GUARD_S)
        thread.join()
