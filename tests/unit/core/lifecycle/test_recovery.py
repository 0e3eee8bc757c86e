"""What a crash at a bad moment must not change, and what must not grow: cases that random runs reach too seldom."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from unibus.clock import Clock
from unibus.core.codec.codec import encode
from unibus.core.envelope.message import Message
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.claiming import DUE_PER_CALL, Claimed
from unibus.core.lifecycle.commands import ABANDON, COMPLETE, DEAD_LETTER, DEFER, Declare, Drop, Send, Settle
from unibus.core.lifecycle.envelope import message_of
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION, TOPIC
from unibus.core.lifecycle.state.states import ACTIVE, DEFERRED
from unibus.errors import LockLost
from unibus.stores.engine import snapshot
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.store import ClaimRequest
from unibus.stores.sqlite.journal import SqliteJournal

SECOND = 1_000_000_000
NEVER_EVERY = 1_000_000


class Asleep:
    def after(self, delay_ns: int, action: object) -> None:
        pass

    def stop(self) -> None:
        pass


class Bench:
    """A store whose time is moved by hand; `crash` opens a copy of its files."""

    def __init__(self, folder: Path | None, every: int = NEVER_EVERY) -> None:
        self.now_ns = 1_700_000_000 * SECOND
        self.clock = Clock(lambda: self.now_ns, lambda: self.now_ns)
        self.folder = folder
        self.every = every
        self.copies = 0
        self.store = self.open()

    def open(self) -> EmbeddedStore:
        journal = MemoryJournal() if self.folder is None else SqliteJournal(str(self.folder / "bus.db"))
        return EmbeddedStore(journal, self.clock, Asleep(), snapshot_every=self.every, memory_budget_mb=0.0001)

    def crash(self) -> None:
        assert self.folder is not None
        self.copies += 1
        copied = self.folder.parent / f"copy{self.copies}"
        copied.mkdir()
        for name in ("bus.db", "bus.db-wal"):
            if (self.folder / name).exists():
                shutil.copy(self.folder / name, copied / name)
        self.store.close()
        self.folder = copied
        self.store = self.open()

    def run(self, *commands: object) -> list[object]:
        return self.store.apply(commands).wait(20)  # type: ignore[arg-type]

    def queue(self, name: str, **settings: str | int | float | bool | None) -> None:
        self.run(Declare(name, QUEUE, dict(settings)))

    def send(self, name: str, text: str, session: str | None = None, visible_ns: int = 0, priority: int = 50) -> None:
        data = encode(Message.new(name, text))
        command = Send(name, MessageRef(text, len(data), session), data, priority)
        command.visible_ns = visible_ns
        self.run(command)

    def claim(self, name: str, count: int = 1, **request: object) -> list[Claimed]:
        return self.store.claim(ClaimRequest(name, count, **request)).wait(20)  # type: ignore[arg-type]

    def settle(self, verb: int, claimed: Claimed) -> None:
        self.run(Settle(verb, claimed.entity, claimed.sequence, claimed.token))

    def peek(self, name: str) -> list[Claimed]:
        return self.store.peek(name, 0, 10_000).wait(20)

    def texts(self, name: str) -> list[object]:
        return [message_of(each).body for each in self.peek(name)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = "/dev/shm" if Path("/dev/shm").is_dir() else str(tmp_path)
    with tempfile.TemporaryDirectory(dir=place) as name:
        (Path(name) / "first").mkdir()
        yield Path(name) / "first"


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of many pieces, so that work goes on between them."""
    monkeypatch.setattr(snapshot, "PART_ENTRIES", 1)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("every", [2, 5, 9, 12, 14])
def test_a_dead_letter_made_during_a_snapshot_survives_a_crash(folder: Path, every: int) -> None:
    for buried in range(1, 9):
        place = folder / str(buried) / "first"
        place.mkdir(parents=True)
        bench = Bench(place, every)
        bench.queue("q")
        sent = [f"m{number}" for number in range(8)]
        for urgency, text in enumerate(sent):
            bench.send("q", text, priority=50 - urgency)
        for _ in range(buried):  # Those that came last go first: the snapshot has not reached them yet.
            bench.settle(DEAD_LETTER, bench.claim("q")[0])
        bench.crash()
        assert bench.texts(sub_queue("q")) == sent[::-1][:buried]
        assert bench.texts("q") == sent[: 8 - buried]
        bench.store.close()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("every", range(2, 18))
def test_a_deferred_message_that_was_locked_during_a_snapshot_stays_deferred(folder: Path, every: int) -> None:
    bench = Bench(folder, every)
    bench.queue("q", lock_duration=10.0)
    for number in range(6):
        bench.send("q", f"m{number}")
    for claimed in bench.claim("q", 6):
        bench.settle(DEFER, claimed)
    for sequence in (6, 5, 4, 3, 2, 1):
        bench.claim("q", sequences=(sequence,))
    bench.crash()
    bench.now_ns += 10 * SECOND
    assert bench.claim("q", 9) == []
    assert [each.state for each in bench.peek("q")] == [DEFERRED] * 6
    bench.store.close()


def steps(bench: Bench) -> Iterator[None]:
    """Work of every kind, in pieces."""
    bench.queue("q", lock_duration=10.0)
    for round_number in range(4):
        for number in range(6):
            later_ns = bench.now_ns + SECOND if number == 3 else 0
            bench.send("q", f"{round_number} {number}", visible_ns=later_ns)
            yield
        if round_number % 2:
            bench.now_ns += 2 * SECOND
        first, second, third = bench.claim("q", 3)
        bench.settle(DEFER, first)
        yield
        bench.settle(ABANDON, second)
        yield
        bench.now_ns += 2 * SECOND
        bench.send("q", f"{round_number} end")
        yield
        bench.settle(COMPLETE, third)
        yield


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("every", [2, 3, 5, 7, 11, 16])
def test_a_crash_after_any_step_of_any_snapshot_changes_nothing(folder: Path, every: int) -> None:
    for count in range(1, 41):
        place = folder / str(count) / "first"
        place.mkdir(parents=True)
        bench = Bench(place, every)
        for _ in zip(range(count), steps(bench), strict=False):
            pass
        seen = [(each.sequence, each.state, each.delivery_count, each.data) for each in bench.peek("q")]
        waiting = [sequence for sequence, state, _, _ in seen if state == ACTIVE]
        bench.crash()
        assert [(each.sequence, each.state, each.delivery_count, each.data) for each in bench.peek("q")] == seen
        assert [each.sequence for each in bench.claim("q", 99)] == waiting
        bench.store.close()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("every", [2, 3, 5, 8, 13])
def test_a_queue_that_is_deleted_during_a_snapshot_stays_deleted(folder: Path, every: int) -> None:
    bench = Bench(folder, every)
    for round_number in range(3):
        bench.queue("q")
        bench.queue("r")
        for number in range(3):
            bench.send("q", f"{round_number} {number}")
        bench.settle(DEAD_LETTER, bench.claim("q")[0])
        bench.run(Drop("q"))
        bench.crash()
        bench.queue("q")
        assert (bench.texts("q"), bench.texts(sub_queue("q"))) == ([], [])
        bench.send("r", str(round_number))
        bench.crash()
        bench.run(Drop("q"))
    assert bench.texts("r") == ["0", "1", "2"]
    bench.store.close()


@pytest.mark.parametrize("every", [1, 2, 3, 4, 5])
def test_what_is_received_and_deleted_arrives_also_when_its_row_goes_at_once(folder: Path, every: int) -> None:
    bench = Bench(folder, every)
    bench.queue("q")
    sent = [f"m{number}" for number in range(12)]
    for text in sent:
        bench.send("q", text)
    found = [message_of(claimed).body for _ in sent for claimed in bench.claim("q", lock=False)]
    assert found == sent
    bench.store.close()


def test_a_subscription_from_the_past_can_be_made_while_a_lock_ends(folder: Path) -> None:
    bench = Bench(folder)
    bench.run(Declare("t", TOPIC, {}))
    bench.send("t", "a")
    bench.queue("q", lock_duration=10.0)
    bench.send("q", "b")
    bench.claim("q")
    bench.now_ns += 10 * SECOND
    assert bench.store.subscribe_from(Declare("t/Subscriptions/s", SUBSCRIPTION, {}), 0, 0).wait(20) == 1
    bench.store.close()


def test_a_session_that_is_over_keeps_nothing_although_much_else_was_due_first() -> None:
    bench = Bench(None)
    bench.queue("q", lock_duration=5.0)
    bench.queue("s", requires_session=True, lock_duration=10.0)
    for number in range(DUE_PER_CALL + 1):
        bench.send("q", str(number))
    bench.send("s", "x", "c1")
    first = bench.store.accept("s", "c1", "").wait(20)
    assert first is not None
    [claimed] = bench.claim("s", session=("c1", first.token))
    assert len(bench.claim("q", 10_000)) == DUE_PER_CALL + 1
    bench.now_ns += 10 * SECOND
    second = bench.store.accept("s", "c1", "").wait(20)
    assert second is not None
    with pytest.raises(LockLost):
        bench.settle(COMPLETE, claimed)
    [again] = bench.claim("s", session=("c1", second.token))
    assert again.delivery_count == 2
    bench.store.close()


def test_a_store_in_memory_keeps_nothing_of_what_is_gone() -> None:
    bench = Bench(None)
    bench.queue("q")
    for number in range(500):
        bench.send("q", str(number))
        bench.settle(ABANDON, bench.claim("q")[0])
        bench.settle(COMPLETE, bench.claim("q")[0])
    state = bench.store._state
    assert (len(state.unsaved), len(state.gone), len(state.unsaved_marks), state.held_bytes) == (0, 0, 0, 0)
    assert sum(entity.size_bytes for entity in state.entities.values()) == 0
    assert len(state.due) < 5_000
    bench.store.close()
