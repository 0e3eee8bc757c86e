"""Group commit: what is written together, in which order, and what the waiters get."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Send, SendResult
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.changes import Change, Sent
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import SnapshotSlice
from unibus.stores.seam.store import ClaimRequest


class SlowJournal(MemoryJournal):
    """Says that it is durable, remembers its groups, and can be held up or made to fail while it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.durability = Durability.D2
        self.groups: list[tuple[int, int, bool]] = []
        self.writing: Callable[[], None] = lambda: None

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        self.writing()
        if changes:  # Else recovery ends.
            self.groups.append((first_seq, len(changes), sync))
        super().append(first_seq, changes, sync, part)


def opened(journal: SlowJournal) -> EmbeddedStore:
    return EmbeddedStore(journal, SYSTEM_CLOCK, ThreadTimers(SYSTEM_CLOCK, _raise))


def _raise(error: BaseException) -> None:
    raise error


def a_send(body: object = "x") -> Send:
    command = send_of(Message.new("orders", body), "orders")
    command.creates = QUEUE
    return command


def test_what_comes_while_one_group_is_written_goes_together_in_the_next() -> None:
    journal = SlowJournal()
    store = opened(journal)
    store.apply([a_send()]).wait()
    busy, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        assert go_on.wait(5)

    journal.writing = hold
    first = threading.Thread(target=lambda: store.apply([a_send()]).wait())
    first.start()
    assert busy.wait(5)
    others = [store.apply([a_send()]) for _ in range(10)]
    assert not any(pending.done for pending in others)
    journal.writing = lambda: None
    go_on.set()
    for pending in others:
        pending.wait()
    first.join()
    assert [count for _, count, _ in journal.groups[1:]] == [1, 10]
    store.close()


def test_the_log_has_one_order_without_a_gap() -> None:
    journal = SlowJournal()
    store = opened(journal)
    threads = [threading.Thread(target=lambda: [store.apply([a_send()]).wait() for _ in range(20)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = 1
    for first, count, _ in journal.groups:
        assert first == expected
        expected += count
    assert expected == 8 * 20 + 2  # One change more: the queue was made.
    assert [change.sequence for _, change in journal.changes_after(0) if isinstance(change, Sent)] == list(
        range(1, 161)
    )
    store.close()


def test_a_group_is_synced_if_one_of_it_asks_for_that() -> None:
    journal = SlowJournal()
    store = opened(journal)
    store.apply([a_send()], Durability.D1).wait()
    store.apply([a_send()]).wait()
    store.apply([a_send()], Durability.D1)
    store.apply([a_send()]).wait()
    claimed = store.claim(ClaimRequest("orders", 1)).wait()
    assert len(claimed) == 1
    assert [sync for _, _, sync in journal.groups] == [False, True, True, False]
    store.close()


def test_the_answer_says_which_level_was_reached() -> None:
    store = opened(SlowJournal())
    results = [store.apply([a_send()], level).wait()[0] for level in (None, Durability.D1)]
    assert [result.durability for result in results if isinstance(result, SendResult)] == ["D2", "D1"]
    store.close()


def test_a_failed_write_fails_every_waiter_and_every_later_call() -> None:
    journal = SlowJournal()
    store = opened(journal)
    store.apply([a_send()]).wait()

    def fail() -> None:
        raise StoreFailed("the disk is gone", "repair it")

    journal.writing = fail
    waiting = [store.apply([a_send()]) for _ in range(3)]
    for pending in waiting:
        with pytest.raises(StoreFailed, match="the disk is gone"):
            pending.wait()
    journal.writing = lambda: None
    with pytest.raises(StoreFailed, match="the disk is gone"):
        store.apply([a_send()])
    with pytest.raises(StoreFailed):
        store.claim(ClaimRequest("orders"))
    health = store.health()
    assert not health.ok
    assert "the disk is gone" in health.problem
    store.close()
    assert len(journal.groups) == 1, "nothing was tried again"


def test_ctrl_c_in_the_middle_of_a_write_stops_the_store() -> None:
    """It is unknown whether the write took place. Continuing would leave a gap in the log."""
    journal = SlowJournal()
    store = opened(journal)
    store.apply([a_send()]).wait()

    def interrupted() -> None:
        raise KeyboardInterrupt

    journal.writing = interrupted
    mine, other = store.apply([a_send()]), store.apply([a_send()])
    with pytest.raises(KeyboardInterrupt):
        mine.wait()
    with pytest.raises(StoreFailed):
        other.wait(10)
    with pytest.raises(StoreFailed):
        store.apply([a_send()])
    store.close()


def test_whoever_raises_when_it_is_called_keeps_nobody_from_an_answer() -> None:
    journal = SlowJournal()
    store = opened(journal)
    busy, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        assert go_on.wait(10)

    journal.writing = hold
    first = store.apply([a_send()])
    first.on_done(lambda _: None)  # The store's thread begins with it.
    assert busy.wait(10)
    heard: list[str] = []
    rude, other = store.apply([a_send()]), store.apply([a_send()])
    rude.on_done(lambda _: 1 // 0)
    other.on_done(lambda _: heard.append("other"))
    go_on.set()
    other.wait(10)
    store.close()
    assert heard == ["other"]


def test_two_loops_at_once() -> None:
    """Each has its commits at the end of its own turns, and its tasks go on in its own thread."""
    store = opened(SlowJournal())
    wrong: list[object] = []

    async def send(loop: asyncio.AbstractEventLoop, thread: int) -> None:
        for _ in range(200):
            await store.apply([a_send()])
            if asyncio.get_running_loop() is not loop or threading.get_ident() != thread:
                wrong.append(threading.current_thread().name)

    async def work() -> None:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        await asyncio.wait_for(asyncio.gather(*(send(loop, thread) for _ in range(5))), 30)

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert wrong == []
    assert store.entities().wait()[0].active == 3 * 5 * 200
    store.close()


async def test_many_tasks_are_answered_by_few_commits() -> None:
    journal = SlowJournal()
    store = opened(journal)
    await asyncio.gather(*[_send_several(store, 10) for _ in range(50)])
    assert sum(count for _, count, _ in journal.groups) == 501
    assert len(journal.groups) < 250
    store.close()


async def _send_several(store: EmbeddedStore, count: int) -> None:
    for _ in range(count):
        await store.apply([a_send()])


async def test_a_task_that_is_cancelled_does_not_hold_up_the_others() -> None:
    store = opened(SlowJournal())
    cancelled = asyncio.ensure_future(_send_several(store, 1))
    other = asyncio.ensure_future(_send_several(store, 1))
    await asyncio.sleep(0)
    cancelled.cancel()
    await other
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    store.close()


def test_closing_writes_what_nobody_waited_for() -> None:
    journal = SlowJournal()
    store = opened(journal)
    store.apply([a_send()])
    store.close()
    assert sum(count for _, count, _ in journal.groups) == 2
