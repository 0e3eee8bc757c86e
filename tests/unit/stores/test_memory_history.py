"""The history of a store in memory is bound by bytes: the oldest events go first, and readers can see that."""

from collections.abc import Callable, Iterator

import pytest

from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import DEAD_LETTER, SET_SESSION_STATE, Declare
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.changes import (
    Copied,
    DeadLettered,
    Declared,
    Deferred,
    Delivered,
    Duplicated,
    Passed,
    Returned,
    Sent,
    SessionStated,
    SessionTaken,
)
from unibus.core.lifecycle.state.entity import SUBSCRIPTION
from unibus.limits import MEMORY_HISTORY_BYTES_DEFAULT
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.memory import MemoryJournal
from unibus.stores.opening import open_store
from unibus.stores.seam.store import ClaimRequest
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import Rig

LIMIT = 200_000
LARGE = "x" * 10_000
TIMES = 60
"""Three times as much as the limit."""


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal(history_bytes=LIMIT)


@pytest.fixture
def rig(journal: MemoryJournal) -> Iterator[Rig]:
    clock = VirtualClock()
    store = EmbeddedStore(journal, clock, clock.timers(lambda: True))
    yield Rig(store, clock)
    store.close()


def ids_of(change: Sent | Passed | Duplicated) -> int:
    return sum(len(each or "") for each in (change.who.correlation_id, change.who.trace_id, change.dedup_key))


def kept_bytes(journal: MemoryJournal) -> int:
    """Of what messages and their users wrote: all that can be large in a change."""
    size = 0
    for _, change in journal.changes_after(0):
        if isinstance(change, (Sent, Passed)):
            size += len(change.data)
        if isinstance(change, SessionStated) and change.state is not None:
            size += len(change.state)
        if isinstance(change, (Sent, Copied, Returned, Deferred)) and change.overlay:
            size += len(str(change.overlay))
        if isinstance(change, Declared):
            size += len(str(change.settings))
        if isinstance(change, (Sent, Passed, Duplicated)):
            size += ids_of(change)
        if isinstance(change, (Delivered, SessionTaken)):
            size += len(change.consumer)
        if isinstance(change, DeadLettered):
            size += len(change.reason)
    return size


def removed(rig: Rig) -> None:
    rig.queue("q")
    for _ in range(TIMES):
        rig.send("q", LARGE)
        rig.claim("q", lock=False)


def passed_through_a_topic(rig: Rig) -> None:
    rig.topic("t")
    rig.subscription("t", "s")
    for _ in range(TIMES):
        rig.send("t", LARGE)
        rig.claim("t/Subscriptions/s", lock=False)


def session_states(rig: Rig) -> None:
    rig.queue("q", requires_session=True)
    rig.send("q", session_id="s")
    lock = rig.accept("q")
    for number in range(TIMES):
        rig.session(SET_SESSION_STATE, lock, LARGE.encode() + str(number).encode())


def changed_headers(rig: Rig) -> None:
    rig.queue("q", max_delivery_count=1_000)
    rig.send("q")
    for number in range(TIMES):
        rig.abandon(rig.one("q"), overlay={"why": LARGE + str(number)})


def settings(rig: Rig) -> None:
    rig.queue("q")
    for number in range(1_000):
        rig.update("q", user_metadata="x" * 1_000 + str(number))


def sent(rig: Rig, entity: str, **fields: str) -> None:
    rig.run(send_of(Message.new(entity, "x").with_fields(fields), entity))


def duplicates(rig: Rig) -> None:
    rig.queue("q")
    for number in range(TIMES):
        sent(rig, "q", dedup_key="same", correlation_id=LARGE + str(number))


def dedup_keys(rig: Rig) -> None:
    rig.topic("t")
    for number in range(TIMES):
        sent(rig, "t", dedup_key=LARGE + str(number))


def traces(rig: Rig) -> None:
    rig.queue("q")
    for number in range(TIMES):
        sent(rig, "q", trace_id=LARGE + str(number))
        rig.claim("q", lock=False)


def consumers(rig: Rig) -> None:
    rig.queue("q", max_delivery_count=1_000)
    rig.send("q")
    for number in range(TIMES):
        [claimed] = rig.store.claim(ClaimRequest("q", 1, True, consumer=LARGE + str(number))).wait()
        rig.abandon(claimed)


def reasons(rig: Rig) -> None:
    rig.queue("q")
    for number in range(TIMES):
        rig.send("q")
        rig.settle(DEAD_LETTER, rig.one("q"), reason=LARGE + str(number))


WORKS = [removed, passed_through_a_topic, session_states, changed_headers, settings]
TEXTS = [duplicates, dedup_keys, traces, consumers, reasons]


@pytest.mark.parametrize("work", [*WORKS, *TEXTS])
def test_history_stays_below_its_limit(work: Callable[[Rig], None], rig: Rig, journal: MemoryJournal) -> None:
    work(rig)
    events = rig.events()
    assert kept_bytes(journal) <= LIMIT
    assert LIMIT / 2 < journal.size_bytes <= LIMIT
    assert 1 < journal.oldest == events[0].seq
    assert [event.seq for event in events] == list(range(events[0].seq, rig.store.health().last_seq + 1))
    health = rig.store.health()
    assert (health.oldest_seq, health.history_bytes) == (journal.oldest, journal.size_bytes)


def test_messages_that_exist_are_untouched(rig: Rig, journal: MemoryJournal) -> None:
    rig.queue("q")
    bodies = [f"{number}{LARGE}" for number in range(TIMES)]
    rig.fill("q", bodies)
    assert journal.oldest > 1
    assert rig.drain("q") == bodies
    assert rig.store.check() == []


def test_many_small_changes_are_bound_as_well(rig: Rig, journal: MemoryJournal) -> None:
    rig.queue("q")
    for number in range(2_000):
        rig.send("q", number)
        rig.claim("q", lock=False)
    assert journal.size_bytes <= LIMIT
    assert journal.oldest > 1


def test_one_group_that_is_too_large_leaves_no_history(rig: Rig, journal: MemoryJournal) -> None:
    rig.queue("q")
    rig.send("q", "x" * 2 * LIMIT)
    assert rig.events() == []
    assert journal.oldest == 3
    rig.send("q", "later")
    assert [event.seq for event in rig.events()] == [3]
    assert rig.drain("q") == ["x" * 2 * LIMIT, "later"]


def test_a_limit_may_be_larger_than_any_history() -> None:
    clock = VirtualClock()
    journal = MemoryJournal(history_bytes=1 << 80)
    store = EmbeddedStore(journal, clock, clock.timers(lambda: True))
    rig = Rig(store, clock)
    removed(rig)
    assert journal.oldest == 1
    assert journal.size_bytes > LIMIT
    store.close()


def test_readers_know_what_they_missed(rig: Rig, journal: MemoryJournal) -> None:
    rig.store.history.move_cursor("slow", 5)
    removed(rig)
    assert rig.store.history.missed("slow") == journal.oldest - 1 - 5 > 0


def test_the_past_begins_with_what_is_kept(rig: Rig, journal: MemoryJournal) -> None:
    rig.topic("t")
    ids = []
    for number in range(TIMES):
        rig.send("t", LARGE, message_id=f"m{number}")
        ids.append(f"m{number}")
    kept = [event.message_id for event in rig.events()]
    assert kept == ids[-len(kept) :]
    assert 1 < len(kept) < TIMES
    assert len(list(rig.store.history.replay_index("t", 0, 0).messages())) == len(kept)
    assert rig.store.history.events_of("m0") == []
    assert [event.seq for event in rig.store.history.events_of(ids[-1])] == [TIMES + 1]
    assert rig.store.subscribe_from(Declare("t/Subscriptions/s", SUBSCRIPTION, {}), 0, 0).wait() == len(kept)


def test_a_reader_in_the_middle_gets_no_change_under_a_wrong_number(rig: Rig, journal: MemoryJournal) -> None:
    rig.queue("q")
    for _ in range(10):
        rig.send("q", LARGE)
    reading = iter(journal.changes_after(1))
    seen = [next(reading)]
    for _ in range(TIMES):
        rig.send("q", LARGE)
    assert journal.oldest > 11
    seen += list(reading)
    assert all(change.sequence == seq - 1 for seq, change in seen)
    assert [seq for seq, _ in seen] == sorted({seq for seq, _ in seen})


def test_changes_are_found_by_their_numbers(rig: Rig, journal: MemoryJournal) -> None:
    removed(rig)
    all_of_them = dict(journal.changes_after(0))
    oldest, last = min(all_of_them), max(all_of_them)
    wanted = [last, oldest, oldest, oldest - 1, last + 1, 0, (oldest + last) // 2]
    assert journal.changes_at(wanted) == [(seq, all_of_them[seq]) for seq in (oldest, (oldest + last) // 2, last)]
    assert journal.changes_at(list(all_of_them)) == list(all_of_them.items())
    assert journal.changes_at([]) == []


def test_the_limit_can_be_set_and_has_a_default() -> None:
    clock = VirtualClock()
    for url, limit in (("memory://", MEMORY_HISTORY_BYTES_DEFAULT), ("memory://?history_bytes=100000", 100_000)):
        store = open_store(url, clock, clock.timers(lambda: True))
        rig = Rig(store, clock)
        rig.queue("q")
        large = "x" * (limit // 16)
        for _ in range(20):
            rig.send("q", large)
            rig.claim("q", lock=False)
        assert limit / 2 < store.health().history_bytes <= limit
        store.close()
