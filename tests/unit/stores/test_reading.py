"""A reader sees what the owner has written, in any process, and changes nothing."""

import hashlib
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.unit.cli.owners import owner_of
from unibus.clock import SYSTEM_CLOCK
from unibus.core.filters.filters import SqlFilter
from unibus.core.lifecycle.commands import LEAVE_SESSION, SET_SESSION_STATE
from unibus.core.lifecycle.events import Event
from unibus.core.lifecycle.state.rules import Rule, text_of
from unibus.errors import EntityNotFound, StoreUnavailable, StoreVersion, UsageError
from unibus.stores.engine import snapshot
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.stores.schemes import open_reader
from unibus.stores.seam.store import EntityInfo
from unibus.stores.seam.store_view import (
    Flow,
    FlowCounter,
    OpenStoreView,
    StoreView,
    all_messages,
    find_message,
    last_events,
    seq_before,
)
from unibus.stores.sql import trace_index
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.stores.sqlite.reader import SqliteReader
from unibus.sync import MessageBus
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import Rig


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db"


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def everything(event: Event) -> bool:
    return True


# Beside another process


@pytest.mark.processes
def test_it_sees_what_the_owner_has_at_every_moment(path: Path) -> None:
    with owner_of(path) as owner:
        owner("fill orders 3")
        with closing(open_reader(url_of(path))) as reader:
            for line in (
                "fill orders 20",
                "lock orders 2",
                "bury orders Broken",
                "complete orders 4",
                "topic news one",
                "fill news 7",
                "delete orders",
                "fill orders 1",
            ):
                # Which are equal without regard to when they were last used: only their owner knows that.
                assert [EntityInfo(**each) for each in owner(line)] == reader.entities(), line


@pytest.mark.processes
def test_each_look_is_of_one_moment_while_the_owner_goes_on_writing(path: Path) -> None:
    with owner_of(path) as owner:
        owner("write")
        with closing(open_reader(url_of(path))) as reader:
            sequences = []
            while len(sequences) < 30 or sequences[0] == sequences[-1]:
                with reader.moment():
                    (busy,) = reader.entities()
                    events, safe_seq = reader.events_after(0, 10**9)
                completed = sum(event.kind == "completed" for event in events)
                assert busy.last_sequence - completed == busy.active + busy.locked
                assert [event.seq for event in events] == list(range(1, safe_seq + 1))
                sequences.append(busy.last_sequence)
            assert sequences == sorted(sequences)


@pytest.mark.processes
def test_what_a_killed_owner_has_left(path: Path) -> None:
    with owner_of(path) as owner:
        owner("fill orders 5")
        owner("lock orders 2")
        owner.kill()
    with closing(open_reader(url_of(path))) as reader:
        (orders,) = reader.entities()
        assert (orders.active, orders.locked) == (3, 2)
        # A reader takes no lock: the store can get an owner meanwhile.
        with MessageBus(path) as bus:
            bus.send("orders", "six")
            assert reader.entities() == bus.entities()


# Without an owner


def test_what_is_due_counts_as_done_and_is_not_done(path: Path) -> None:
    with MessageBus(path) as bus:
        bus.create_queue("q", lock_duration=60)
        bus.send_many("q", range(3))
        bus.send("q", "later", delay=100)
        bus.receive_batch("q", 2, timeout=0)
    before = digest(path)
    now_ns = time.time_ns()
    with closing(SqliteReader(str(path), lambda: now_ns)) as reader:

        def counts() -> tuple[int, int, int]:
            (info,) = reader.entities()
            return info.active, info.locked, info.scheduled

        assert counts() == (1, 2, 1)
        now_ns += 61 * 10**9
        assert counts() == (3, 0, 1)
        now_ns += 61 * 10**9
        assert counts() == (4, 0, 0)
        assert digest(path) == before
        # An owner comes, and what he says is what counts.
        now_ns -= 122 * 10**9
        with MessageBus(path) as bus:
            bus.send("q", "more")
            assert counts() == (2, 2, 1)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_looking_writes_nothing_and_owns_nothing(path: Path) -> None:
    with MessageBus(path) as bus:
        bus.send_many("q", range(100))
    before = digest(path)
    lock = Path(f"{path}.lock")
    lock.unlink()
    with closing(open_reader(url_of(path))) as reader:
        reader.entities()
        reader.events_after(0)
        reader.events_of("x")
    assert digest(path) == before
    assert not lock.exists()


# Whatever the store does


@pytest.fixture
def rig(path: Path) -> Iterator[Rig]:
    clock = VirtualClock()
    timers = clock.timers(lambda: True)
    assert timers is not None
    journal = SqliteJournal(str(path), history_age_s=0)
    store = EmbeddedStore(journal, clock, timers, snapshot_every=25)
    yield Rig(store, clock)
    store.close()


def test_snapshots_and_trimming_are_followed(rig: Rig, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random work with a snapshot always under way, in pieces of one message, and history forgotten now and then."""
    monkeypatch.setattr(snapshot, "PART_ENTRIES", 1)
    chance = random.Random(7)
    rig.queue("a", lock_duration=5)
    rig.topic("t")
    rig.subscription("t", "s")
    assert isinstance(rig.store, EmbeddedStore)
    readers = [SqliteReader(str(path), rig.now_ns) for _ in range(2)]
    try:
        for number in range(600):
            some_work(rig, chance, number)
            if chance.random() < 0.02:
                rig.store._journal.trim(rig.now_ns() + 1, rig.store.health().snapshot_seq)
            due = [readers[0], *readers[1:] * (number % 40 == 0)]  # One looks always, the other seldom.
            for reader in due:
                assert reader.entities() == rig.store.entities().wait(), number
                if number % 20 == 0:
                    assert contents(reader) == contents(OpenStoreView(rig.store)), number
        with closing(SqliteReader(str(path), rig.now_ns)) as fresh:
            assert fresh.entities() == rig.store.entities().wait()
    finally:
        for reader in readers:
            reader.close()
    assert rig.store.health().oldest_seq > 100
    assert rig.store.health().snapshot_seq > 100


def contents(reader: StoreView) -> list[tuple[str, int, bytes]]:
    with reader.moment():
        keys = [record.key for record in all_messages(reader)]
        data = reader.read_bodies(keys)
    assert len(data) == len(keys)
    return [(*key, data[key]) for key in keys]


def some_work(rig: Rig, chance: random.Random, number: int) -> None:
    entity = chance.choice(("a", "t/Subscriptions/s"))
    kind = chance.randrange(9)
    if kind < 4:
        rig.send(chance.choice(("a", "t")), number)
    elif kind == 4:
        rig.send("a", number, visible_ns=rig.now_ns() + 3_000_000_000)
    elif kind == 5:
        rig.advance(chance.random())
        rig.store.entities().wait()  # What is due is done now.
        rig.queue(f"mark{number % 3}")  # And written with this.
    elif kind == 6 and number % 3 == 0:
        name = f"extra{number}"
        rig.queue(name)
        rig.send(name, number)
        rig.drop(name)
    else:
        for claimed in rig.claim(entity, 2):
            chance.choice((rig.complete, rig.abandon, rig.defer, rig.complete))(claimed)


def test_history_is_the_same_through_both_doors(rig: Rig, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_index, "BLOCK_CHANGES", 60)
    rig.topic("t")
    one = rig.subscription("t", "one")
    for number in range(50):
        rig.send("t", number, message_id=f"m{number}")
        rig.queue(f"q{number % 3}")
    for claimed in rig.claim(one, 30):
        rig.complete(claimed)
    rig.drop("q1")
    history = rig.store.history
    with closing(SqliteReader(str(path))) as reader:
        assert reader.events_after(0, 10_000) == history.events_after(0, 10_000)
        assert reader.events_after(7, 5) == history.events_after(7, 5)
        assert reader.events_after(7, 5, ("completed",)) == history.events_after(7, 5, ("completed",))
        events, last = history.events_after(0, 10_000)
        assert reader.bounds() == (1, last)
        assert last_events(reader, 1, last, 3, everything)[0] == events[-3:]
        sent = [event for event in events if event.kind == "sent"]
        assert last_events(reader, 1, last, 2, lambda event: event.kind == "sent")[0] == sent[-2:]
        assert last_events(reader, 1, last, 10_000, everything)[0] == events
        assert last_events(reader, 1, last, 0, everything)[0] == []
        for message_id in ("m0", "m20", "m49", "m"):
            assert reader.events_of(message_id) == history.events_of(message_id)
        assert len(reader.events_of("m20")) == 4
        middle = events[60].ts * 1_000
        assert all(event.ts * 1_000 < middle for event in events[: seq_before(reader, 1, last, middle)])


@pytest.mark.parametrize("outside", [True, False], ids=["from outside", "through the store"])
def test_what_went_through_is_counted(rig: Rig, path: Path, outside: bool) -> None:
    rig.topic("t")
    rig.queue("q")
    rig.send("q", "before")
    reader: StoreView = SqliteReader(str(path), rig.now_ns) if outside else OpenStoreView(rig.store)
    with closing(reader):
        counter = FlowCounter(reader)
        since = counter.since
        subscription = rig.subscription("t", "s")
        rig.fill("t", range(3))
        rig.send("q", "later", visible_ns=rig.now_ns() + 1_000_000_000)
        rig.complete(rig.one("q"))
        rig.claim(subscription, 2, lock=False)
        rig.advance(2)
        rig.send("q", "last")
        assert counter.count() == {"t": Flow(3, 0), subscription: Flow(3, 2), "q": Flow(2, 1)}
        assert counter.since == since
        found = find_message(reader, "q", 4)
        assert found is not None
        assert find_message(reader, "q", 1) is None
        assert find_message(reader, "nowhere", 1) is None


@pytest.mark.parametrize("outside", [True, False], ids=["from outside", "through the store"])
def test_states_of_sessions(rig: Rig, path: Path, outside: bool) -> None:
    rig.queue("q", requires_session=True)
    rig.queue("plain")
    for name in ("one", "other"):
        rig.send("q", name, session_id=name)
    lock = rig.accept("q", "one")
    rig.session(SET_SESSION_STATE, lock, b"state")
    rig.session(LEAVE_SESSION, lock)
    held = rig.accept("q", "without messages")
    rig.session(SET_SESSION_STATE, held, b"held")
    reader: StoreView = SqliteReader(str(path)) if outside else OpenStoreView(rig.store)
    with closing(reader):
        assert reader.session_states("q") == {"one": b"state", "without messages": b"held"}
        assert reader.session_states("plain") == {}
    rig.session(SET_SESSION_STATE, held, b"still held")


def test_replay_is_the_same_through_both_doors(rig: Rig, path: Path) -> None:
    rig.topic("t")
    subscription = rig.subscription("t", "s")
    rig.fill("t", range(1_100))
    rig.drain(subscription)
    with closing(SqliteReader(str(path))) as reader:
        for entity, after in (("t", 0), (subscription, 0), ("T", 900)):
            through = OpenStoreView(rig.store)
            index = reader.replay_index(entity, after, 0)
            assert index.places() == through.replay_index(entity, after, 0).places()
            replayed = list(index.messages())
            assert replayed == list(through.replay_index(entity, after, 0).messages())
            assert [sequence for sequence, _ in replayed] == list(range(after + 1, 1_101))
        with pytest.raises(EntityNotFound):
            reader.replay_index("nowhere", 0, 0)


def test_a_store_that_is_open_here_is_read_in_the_same_way() -> None:
    timers = SYSTEM_CLOCK.timers(lambda: True) or VirtualClock().timers(lambda: True)
    assert timers is not None
    with closing(EmbeddedStore(MemoryJournal(), SYSTEM_CLOCK, timers)) as store:
        rig = Rig(store, VirtualClock())
        rig.queue("q")
        rig.fill("q", range(5))
        reader = OpenStoreView(store)
        with reader.moment():
            assert reader.entities() == store.entities().wait()
        events, last = store.history.events_after(0)
        assert reader.bounds() == (1, last)
        assert last_events(reader, 1, last, 2, everything)[0] == events[-2:]
        assert seq_before(reader, 1, last, 0) == 0
        assert seq_before(reader, 1, last, 2**62) == last
        assert reader.events_of(str(events[-1].message_id)) == events[-1:]


# What cannot be read


def test_a_file_that_takes_the_place_of_another_is_read_anew(path: Path, tmp_path: Path) -> None:
    with MessageBus(path) as bus:
        bus.send_many("old", range(3))
    with MessageBus(tmp_path / "other.db") as bus:
        bus.send_many("new", range(2))
    with closing(open_reader(url_of(path))) as reader:
        assert [each.name for each in reader.entities()] == ["old"]
        (tmp_path / "other.db").replace(path)
        Path(f"{path}-wal").unlink()
        Path(f"{path}-shm").unlink()
        assert [each.name for each in reader.entities()] == ["new"]
        assert reader.events_after(0)[0][-1].channel == "new"


def test_other_files_and_versions_are_named(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot open"):
        open_reader(url_of(path))
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreUnavailable, match="not one of unibus"):
        open_reader(url_of(path))
    path.unlink()
    MessageBus(path).close()
    for version, text in ((999, "install the newer"), (1, "open it once as a bus")):
        with closing(apsw.Connection(str(path))) as connection:
            connection.pragma("user_version", version)
        with pytest.raises(StoreVersion) as caught:
            open_reader(url_of(path))
        assert text in caught.value.hint
    path.write_bytes(b"no database at all, and long enough to see that" * 100)
    with pytest.raises(StoreUnavailable, match="not a SQLite file"):
        open_reader(url_of(path))


def test_schemes_that_have_no_reader() -> None:
    with pytest.raises(StoreUnavailable, match="only be read by the bus that owns it"):
        open_reader("redis://here")
    with pytest.raises(UsageError, match="names no file"):
        open_reader("sqlite://")


def test_a_rule_that_has_to_look_at_what_is_due(path: Path) -> None:
    """A scheduled message of a topic, whose data is on disk only, while the store has no owner."""
    rules = text_of([Rule("r", SqlFilter("n = 1"))])
    with MessageBus(path) as bus:
        bus.create_topic("t")
        bus.create_subscription("t", "s", rules=rules)
        for number in (1, 2):
            bus.schedule("t", "later", 100, headers={"n": number})
    later_ns = time.time_ns() + 200 * 10**9
    with closing(SqliteReader(str(path), lambda: later_ns)) as reader:
        active = {info.name: info.active for info in reader.entities()}
    assert active == {"t": 0, "t/Subscriptions/s": 1}


class Counted:
    """History of one event for each microsecond, of which is noted what was read."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.read: list[tuple[int, int]] = []

    def events_after(self, seq: int, limit: int = 1_000, kinds: object = ()) -> tuple[list[Event], int]:
        self.read.append((seq, limit))
        found = range(seq + 1, min(self.last, seq + limit) + 1)
        return [Event(at, at, "local", "even" if at % 2 == 0 else "odd", "sent", at) for at in found], self.last


def test_the_newest_events_are_read_from_the_end() -> None:
    history: Any = Counted(1_000_000)
    found, reached = last_events(history, 1, history.last, 3, everything)
    assert [event.seq for event in found] == [999_998, 999_999, 1_000_000]
    assert history.read == [(999_000, 1_000)]
    assert reached == 999_001


def test_a_search_that_is_stopped_says_how_far_it_came() -> None:
    history: Any = Counted(10_000)
    windows = iter([True, False])
    found, reached = last_events(history, 1, 10_000, 3, lambda event: event.seq == 7, lambda: next(windows))
    assert (found, reached, len(history.read)) == ([], 8_001, 2)


def test_only_what_history_still_has_is_read() -> None:
    history: Any = Counted(1_500)
    found, reached = last_events(history, 1_200, 1_500, 1_000, lambda event: event.channel == "even")
    assert [event.seq for event in found] == list(range(1_200, 1_501, 2))
    assert (reached, history.read) == (1_200, [(1_199, 301)])


@pytest.mark.parametrize("instant_us", [0, 1, 2, 500, 999, 1_000, 5_000])
def test_the_place_before_an_instant_is_found_by_halving(instant_us: int) -> None:
    history: Any = Counted(1_000)
    assert seq_before(history, 1, 1_000, instant_us * 1_000) == max(0, min(1_000, instant_us - 1))
    assert len(history.read) <= 11
