"""EmbeddedStore.close(): each step runs to its end, however often the close is interrupted or fails."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.unit.interrupts import interrupted, lines_of
from unibus.bus.timers import ThreadTimers
from unibus.clock import SYSTEM_CLOCK
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import BusClosed, StoreBusy, StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.engine.switch_interval import INTERVAL_S
from unibus.stores.files.owner import Owner
from unibus.stores.memory import MemoryJournal
from unibus.stores.opening import open_store
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import SnapshotSlice
from unibus.stores.seam.store import Store

GUARD_S = 10.0


class HeldJournal(MemoryJournal):
    """Says that it is durable; calls what the test wants while it writes and while it closes."""

    def __init__(self) -> None:
        super().__init__()
        self.durability = Durability.D2
        self.writing: Callable[[], None] = lambda: None
        self.closing: Callable[[], None] = lambda: None
        self.log: list[str] = []

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        self.writing()
        super().append(first_seq, changes, sync, part)
        if changes:  # Else recovery ends.
            self.log.append("written")

    def close(self) -> None:
        self.closing()
        super().close()
        self.log.append("closed")


@pytest.fixture
def timers() -> Iterator[ThreadTimers]:
    made = ThreadTimers(SYSTEM_CLOCK, lambda error: None)
    yield made
    made.stop()


def a_send(body: object = "x") -> Send:
    command = send_of(Message.new("orders", body), "orders")
    command.creates = QUEUE
    return command


def event_wait(event: threading.Event) -> None:
    assert event.wait(GUARD_S), "it did not happen"


def bodies(url: str, timers: ThreadTimers) -> int:
    """How many messages there are: the store can be opened, so it has no owner."""
    store = open_store(url, SYSTEM_CLOCK, timers)
    try:
        return len(store.list_messages("orders").wait())
    finally:
        store.close()


@pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])
def test_a_close_that_was_interrupted_is_finished_by_the_next(
    scheme: str, tmp_path: Path, timers: ThreadTimers
) -> None:
    before_s = sys.getswitchinterval()

    def made(name: str) -> tuple[str, Store]:
        url = f"{scheme}:///{tmp_path}/{name}"
        store = open_store(url, SYSTEM_CLOCK, timers)
        store.apply([a_send()]).wait()
        store.apply([a_send()]).on_done(lambda pending: None)  # By the store's own thread.
        return url, store

    url, store = made("whole")
    lines = lines_of(store.close)
    assert bodies(url, timers) == 2
    for at in range(1, lines, max(1, lines // 15)):
        url, store = made(str(at))
        interrupted(store.close, at)
        store.close()
        store.close()
        with pytest.raises(BusClosed):
            store.apply([a_send()])
        assert bodies(url, timers) >= 1  # The second may not have been written; it was not acknowledged.
        assert sys.getswitchinterval() == pytest.approx(before_s)


@pytest.mark.skipif(sys.platform == "win32", reason="a thread cannot be sent a signal")
def test_ctrl_c_while_the_stores_thread_writes_leaves_the_journal_open_for_it(timers: ThreadTimers) -> None:
    journal = HeldJournal()
    store = EmbeddedStore(journal, SYSTEM_CLOCK, timers)
    entered, go_on, is_interrupted = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        event_wait(go_on)

    def interrupt_once(number: int, frame: object) -> None:
        if not is_interrupted.is_set():
            is_interrupted.set()
            raise KeyboardInterrupt

    journal.writing = hold
    store.apply([a_send()]).on_done(lambda pending: None)
    event_wait(entered)
    main = threading.get_ident()

    def interrupt() -> None:
        while not is_interrupted.wait(0.01):
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt_once)
    interrupter = threading.Thread(target=interrupt, daemon=True)
    interrupter.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            store.close()
        interrupter.join(GUARD_S)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert journal.log == []
    second = threading.Thread(target=store.close, daemon=True)
    second.start()
    go_on.set()
    second.join(GUARD_S)
    assert journal.log == ["written", "closed"]


def test_of_two_closes_both_wait_for_the_end(timers: ThreadTimers) -> None:
    journal = HeldJournal()
    store = EmbeddedStore(journal, SYSTEM_CLOCK, timers)
    entered, go_on = threading.Event(), threading.Event()
    seen: list[list[str]] = []

    def hold() -> None:
        entered.set()
        event_wait(go_on)

    def close() -> None:
        store.close()
        seen.append(list(journal.log))

    journal.closing = hold
    threads = [threading.Thread(target=close, daemon=True) for _ in range(2)]
    threads[0].start()
    event_wait(entered)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(GUARD_S)
    assert seen == [["closed"], ["closed"]]


def test_an_error_on_the_way_does_not_keep_the_file(tmp_path: Path, timers: ThreadTimers) -> None:
    before_s = sys.getswitchinterval()
    url = f"sqlite:///{tmp_path}/bus.db"
    store = open_store(url, SYSTEM_CLOCK, timers)
    store.apply([a_send()]).wait()

    def fail() -> None:
        raise ValueError("broken")

    assert sys.getswitchinterval() <= INTERVAL_S + 1e-6
    store.apply([a_send()]).wait()
    store.watch("orders", fail)
    with pytest.raises(ValueError, match="broken"):
        store.close()
    assert sys.getswitchinterval() == pytest.approx(before_s)
    assert bodies(url, timers) == 2
    store.close()  # It is closed.


def test_a_store_that_has_failed_closes_and_releases_its_file(tmp_path: Path, timers: ThreadTimers) -> None:
    url = f"sqlite:///{tmp_path}/bus.db"
    store = open_store(url, SYSTEM_CLOCK, timers)
    store.apply([a_send()]).wait()
    with pytest.raises(StoreBusy):
        open_store(url, SYSTEM_CLOCK, timers)
    assert isinstance(store, EmbeddedStore)
    store._committer.fail(OSError(5, "broken"))
    with pytest.raises(StoreFailed):
        store.apply([a_send()])
    store.close()
    assert bodies(url, timers) == 1


def test_releasing_a_file_may_be_interrupted_everywhere(tmp_path: Path) -> None:
    at = 0
    cut = True
    while cut:
        at += 1
        owner = Owner(str(tmp_path / "bus.db"))
        cut = interrupted(owner.release, at)
        with open(tmp_path / "other", "wb") as other:  # May get the number that the lock file had.
            owner.release()
            other.write(b"x")
    assert at > 3


def test_where_no_thread_can_be_started_whoever_asks_commits(
    timers: ThreadTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    journal = HeldJournal()
    store = EmbeddedStore(journal, SYSTEM_CLOCK, timers)
    answers: list[object] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    store.apply([a_send()]).on_done(lambda pending: answers.append(pending.error))
    assert answers == [None]
    store.close()
    assert journal.log == ["written", "closed"]
