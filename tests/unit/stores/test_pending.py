"""An answer on its way: to tasks, to threads, to callbacks, with and without an error."""

import asyncio
import threading
from typing import Any

import pytest

from unibus.stores.seam.pending import CommitResult, Pending, resolved, undecided

GUARD_S = 10.0


def pendings(count: int) -> tuple[CommitResult, list[Pending[int]]]:
    """Some that are written together, with the values 0, 1, 2."""
    outcome = CommitResult(None)
    return outcome, [Pending(number, outcome) for number in range(count)]


def single() -> tuple[CommitResult, Pending[int]]:
    outcome = CommitResult(None)
    return outcome, Pending(5, outcome)


def decided_by_a_thread(outcome: CommitResult) -> threading.Thread:
    thread = threading.Thread(target=outcome.decide)
    thread.start()
    return thread


async def test_what_is_answered_needs_no_turn_of_the_loop() -> None:
    turns = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    assert await resolved(5) == 5
    assert turns == []
    assert resolved(6).wait() == 6


async def test_a_task_waits_until_it_is_finished() -> None:
    outcome, pending = single()
    task = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    assert not task.done()
    decided_by_a_thread(outcome).join()
    assert await asyncio.wait_for(task, GUARD_S) == 5
    assert await pending == 5  # As often as one likes.


async def test_an_error_is_raised_where_somebody_waits() -> None:
    outcome, pending = single()
    task = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    outcome.decide(lambda: ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await asyncio.wait_for(task, GUARD_S)
    with pytest.raises(ValueError, match="no"):
        pending.wait()


async def test_many_are_finished_at_once() -> None:
    outcome, many = pendings(100)
    tasks = [asyncio.ensure_future(pending) for pending in many]
    await asyncio.sleep(0)
    decided_by_a_thread(outcome).join()
    assert await asyncio.wait_for(asyncio.gather(*tasks), GUARD_S) == list(range(100))


async def test_a_cancelled_waiter_hurts_nobody() -> None:
    outcome, two = pendings(2)
    tasks = [asyncio.ensure_future(pending) for pending in two]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    outcome.decide()
    assert await asyncio.wait_for(tasks[1], GUARD_S) == 1
    assert tasks[0].cancelled()
    assert await two[0] == 0


async def test_two_tasks_may_wait_for_one() -> None:
    outcome, pending = single()
    tasks = [asyncio.create_task(_awaited(pending)) for _ in range(3)]
    await asyncio.sleep(0)
    outcome.decide()
    assert await asyncio.wait_for(asyncio.gather(*tasks), 0.5) == [5, 5, 5]


async def _awaited(pending: Pending[int]) -> int:
    return await pending


def test_two_threads_may_wait_for_one() -> None:
    outcome, pending = single()
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
    outcome.decide()
    for thread in threads:
        thread.join(GUARD_S)
    assert found == [5, 5, 5]


def test_a_loop_that_is_closed_keeps_nobody_from_an_answer() -> None:
    outcome, (gone, other) = pendings(2)

    async def leave() -> None:
        task = asyncio.ensure_future(gone)
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    outcome.decide()
    assert other.wait() == 1


def test_a_view_is_what_everybody_sees() -> None:
    outcome, pending = single()
    text = pending.map(lambda value: f"<{value}>")
    outcome.decide()
    assert text.wait() == "<5>"
    assert pending.value == 5
    assert asyncio.run(_text(text)) == "<5>"


async def _text(pending: Pending[str]) -> str:
    return await pending


class Hands:
    """Who commits, and what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def lead(self, outcome: CommitResult) -> None:
        self.asked.append("lead")
        outcome.decide()

    def kick(self) -> None:
        self.asked.append("kick")


def test_a_thread_that_waits_leads() -> None:
    hands = Hands()
    pending = Pending(5, CommitResult(hands))
    assert pending.wait() == 5
    assert pending.wait() == 5
    assert hands.asked == ["lead"]


def test_a_thread_waits_no_longer_than_it_says() -> None:
    outcome, pending = single()
    with pytest.raises(TimeoutError):
        pending.wait(0.01)
    outcome.decide()
    assert pending.wait(0.01) == 5


def test_a_callback_comes_once_before_or_after() -> None:
    calls: list[Pending[int]] = []
    hands = Hands()
    outcome = CommitResult(hands)
    early, late = Pending(1, outcome), Pending(2, outcome)
    early.on_done(calls.append)
    assert (calls, hands.asked) == ([], ["kick"])  # Without a waiting thread the writer has to commit.
    outcome.decide()
    assert calls == [early]
    late.on_done(calls.append)
    assert calls == [early, late]


def test_tasks_of_two_loops_wait_for_the_same_outcome() -> None:
    outcome, (here, there) = pendings(2)
    started = threading.Semaphore(0)
    found: list[int] = []

    async def wait(pending: Pending[int]) -> None:
        task = asyncio.ensure_future(pending)
        await asyncio.sleep(0)
        started.release()
        found.append(await asyncio.wait_for(task, GUARD_S))

    threads = [threading.Thread(target=asyncio.run, args=(wait(pending),)) for pending in (here, there)]
    for thread in threads:
        thread.start()
    for _ in threads:
        started.acquire()
    outcome.decide()
    for thread in threads:
        thread.join(GUARD_S)
    assert sorted(found) == [0, 1]


async def test_a_view_that_raises_does_so_where_somebody_waits() -> None:
    outcome, many = pendings(2)
    tasks = [asyncio.ensure_future(pending.map(lambda value: 1 // value)) for pending in many]
    await asyncio.sleep(0)
    outcome.decide()
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(tasks[0], GUARD_S)
    assert await asyncio.wait_for(tasks[1], GUARD_S) == 1


def test_a_callback_sees_the_error() -> None:
    outcome, pending = single()
    errors: list[object] = []
    pending.on_done(lambda done: errors.append(done.error))
    outcome.decide(lambda: ValueError("no"))
    assert [type(error) for error in errors] == [ValueError]


def test_a_race_between_finishing_and_asking_loses_no_call() -> None:
    for _ in range(300):
        outcome, pending = single()
        called = threading.Event()
        thread = decided_by_a_thread(outcome)
        pending.on_done(lambda done, called=called: called.set())  # type: ignore[misc]
        assert called.wait(GUARD_S)
        thread.join()


async def test_then_calls_on_the_loop_and_wakes_it_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    outcome, answers = pendings(3)
    seen: list[tuple[int, int]] = []
    done = asyncio.Event()

    def call(pending: Pending[int]) -> None:
        seen.append((pending.result(), threading.get_ident()))
        if len(seen) == 3:
            done.set()

    wakes: list[object] = []
    threadsafe = loop.call_soon_threadsafe
    for each in answers:
        each.then(loop, call)
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *args: (wakes.append(args), threadsafe(*args))[1])
    assert seen == []
    decided_by_a_thread(outcome).join()
    await asyncio.wait_for(done.wait(), GUARD_S)
    assert seen == [(number, threading.get_ident()) for number in range(3)]
    assert len(wakes) == 1


async def test_then_for_an_answer_that_is_there_comes_in_a_later_turn() -> None:
    seen: list[int] = []
    outcome, late = single()
    outcome.decide()
    resolved(4).then(asyncio.get_running_loop(), lambda pending: seen.append(pending.result()))
    late.then(asyncio.get_running_loop(), lambda pending: seen.append(pending.result()))
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [4, 5]


async def test_then_gives_the_error_and_one_that_raises_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    outcome, answers = pendings(2)
    errors: list[BaseException | None] = []

    def bad(pending: Pending[int]) -> None:
        raise RuntimeError("boom")

    answers[0].then(loop, bad)
    answers[1].then(loop, lambda pending: errors.append(pending.error))
    outcome.decide(lambda: ValueError("no"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert [str(error) for error in errors] == ["no"]
    assert "boom" in caplog.text


def test_every_loop_is_woken_once() -> None:
    """A loop that is not the first to wait is woken once too, whatever waits on it."""
    outcome, answers = pendings(6)
    outcome.add(asyncio.new_event_loop())  # The first one; nothing runs there.
    outcome._loop.close()  # type: ignore[union-attr]
    seen: list[int] = []

    async def wait(own: list[Pending[int]]) -> int:
        loop = asyncio.get_running_loop()
        wakes: list[object] = []
        threadsafe = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args, **more: (wakes.append(args), threadsafe(*args, **more))[1]  # type: ignore[method-assign]
        done = asyncio.Event()

        def call(pending: Pending[int]) -> None:
            seen.append(pending.result())
            done.set()

        for each in own:
            each.then(loop, call)
        decided_by_a_thread(outcome).join()
        await asyncio.wait_for(done.wait(), GUARD_S)
        return len(wakes)

    assert asyncio.run(wait(answers[:3])) == 1
    assert seen == [0, 1, 2]


async def test_then_lets_somebody_commit_what_was_asked_for_without_a_loop() -> None:
    class Kicked:
        kicks = 0

        def lead(self, outcome: CommitResult) -> None:
            raise AssertionError

        def kick(self) -> None:
            self.kicks += 1

    commits = Kicked()
    outcome = CommitResult(commits)
    pending = Pending(1, outcome)
    pending.then(asyncio.get_running_loop(), lambda _: None)
    assert commits.kicks == 1
    pending.loop = asyncio.get_running_loop()
    pending.then(asyncio.get_running_loop(), lambda _: None)
    assert commits.kicks == 1
    outcome.decide()


def test_a_task_that_ends_a_second_loop_does_not_strand_the_others() -> None:
    """As on the first loop: the rest of the tasks continue in the next turn, also if the loop is run again for that."""
    outcome, (first, *others) = pendings(3)
    answered: list[int] = []
    main, other = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def waits(pending: Pending[int], ends: bool) -> None:
        answered.append(await pending)
        if ends:
            raise SystemExit

    try:
        awaited = main.create_task(waits(first, False))
        main.run_until_complete(asyncio.sleep(0))
        tasks = [other.create_task(waits(pending, number == 0)) for number, pending in enumerate(others)]
        other.run_until_complete(asyncio.sleep(0))
        outcome.decide()
        with pytest.raises(SystemExit):
            other.run_until_complete(tasks[1])
        assert answered == [1]
        assert isinstance(tasks[0].exception(), SystemExit)
        other.run_until_complete(asyncio.wait_for(tasks[1], GUARD_S))
        main.run_until_complete(asyncio.wait_for(awaited, GUARD_S))
        assert answered == [1, 2, 0]
    finally:
        main.close()
        other.close()


# Answers from elsewhere


def test_an_undecided_pending_gets_its_value_with_the_answer() -> None:
    pending: Pending[list[int]] = undecided()
    seen: list[str] = []
    tapped = pending.tap(lambda decided: seen.append(f"tap {decided.value}")).map(len)
    pending.on_decided(lambda decided: seen.append(f"decided {decided.value}"))
    assert (pending.is_decided, tapped.done, seen) == (False, False, [])
    pending.resolve([1, 2])
    assert tapped.wait(1) == 2
    assert seen == ["tap [1, 2]", "decided [1, 2]"]
    assert pending.recover(_fail).tap(lambda _: seen.append("again")).wait(1) == [1, 2]
    assert seen[-1] == "again"


def test_a_view_that_was_given_before_can_be_replaced_after_a_tap() -> None:
    pending: Pending[list[int]] = undecided()
    tapped = pending.map(len).tap(lambda _: None)
    pending.resolve([1, 2])
    assert tapped.wait(1) == 2
    assert tapped.map(str).wait(1) == "[1, 2]"


def test_a_late_refusal_is_recovered_or_replaced() -> None:
    refused: Pending[int] = undecided()
    recovered = refused.recover(lambda error: resolved(len(str(error))))
    replaced = refused.recover(_fail)
    refused.reject(lambda: KeyError("no"))
    assert recovered.wait(1) == len("'no'")
    with pytest.raises(LookupError, match="another"):
        replaced.wait(1)
    with pytest.raises(KeyError):
        refused.wait(1)


def test_what_is_decided_at_once_is_recovered_by_no_one_and_tapped_at_once() -> None:
    seen: list[int] = []
    known = resolved(3)
    assert known.recover(_fail) is known
    assert known.tap(lambda decided: seen.append(decided.value)) is known
    assert seen == [3]


def _fail(error: BaseException) -> Pending[Any]:
    raise LookupError("another") from error
