"""A journal that loses the answers of its writes: the store looks the group up, and stops only if it cannot know."""

import threading
from collections.abc import Callable, Sequence

import pytest

from tests.contract.dictionary_journal import Dictionary, DictionaryJournal, encode
from unibus import MessageBus
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import COMPLETE, Send, SendResult, Settle
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.changes import Change, Declared
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import StoreFailed
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.journal import GroupFate, SnapshotSlice
from unibus.stores.seam.store import ClaimRequest
from unibus.testing.clock.virtual_clock import VirtualClock

GUARD_S = 10.0
WRITTEN, ABSENT, OTHER = GroupFate.WRITTEN, GroupFate.ABSENT, GroupFate.OTHER


class LosingJournal(DictionaryJournal):
    """`losses` is what happens to the next writes; after that all goes well. `looking` is called before each answer."""

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__(dictionary)
        self.losses: list[GroupFate | None] = []
        self.looking: Callable[[], GroupFate | None] = lambda: None
        self.looked = 0

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        loss = self.losses.pop(0) if self.losses and changes else None
        if loss is OTHER:
            self._kept.changes[first_seq] = encode(Declared(0, 99, 0, "another", QUEUE, {}))
        elif loss is not ABSENT:
            super().append(first_seq, changes, sync, part)
        if loss is not None:
            raise StoreFailed("the answer is lost", "wait")

    def look_up(self, first_seq: int, changes: Sequence[Change]) -> GroupFate:
        self.looked += 1
        return self.looking() or super().look_up(first_seq, changes)


@pytest.fixture
def dictionary() -> Dictionary:
    return Dictionary()


def opened(dictionary: Dictionary) -> tuple[EmbeddedStore, LosingJournal]:
    clock, journal = VirtualClock(), LosingJournal(dictionary)
    return EmbeddedStore(journal, clock, clock.timers(lambda: True)), journal


def a_send(body: object) -> Send:
    command = send_of(Message.new("q", body), "q")
    command.creates = QUEUE
    return command


def run(store: EmbeddedStore) -> list[int]:
    """Eight groups: five sends, a claim and two completions. Returns the sequences that were acknowledged."""
    results = [store.apply([a_send(number)]).wait()[0] for number in range(5)]
    first, second = store.claim(ClaimRequest("q", 2)).wait()
    store.apply([Settle(COMPLETE, "q", first.sequence, first.token)]).wait()
    store.apply([Settle(COMPLETE, "q", second.sequence, second.token)]).wait()
    return [result.sequence for result in results if isinstance(result, SendResult)]


def left(dictionary: Dictionary) -> list[int]:
    """What the next store finds, after a check of it."""
    store, _ = opened(dictionary)
    assert store.check() == []
    found = [claimed.sequence for claimed in store.claim(ClaimRequest("q", 10)).wait()]
    store.close()
    return found


@pytest.mark.parametrize("losses", [[WRITTEN], [ABSENT], [ABSENT, WRITTEN], [ABSENT, ABSENT, ABSENT, ABSENT]])
@pytest.mark.parametrize("at", range(8))
def test_a_lost_answer_changes_nothing_at_any_point(
    dictionary: Dictionary, at: int, losses: list[GroupFate | None]
) -> None:
    store, journal = opened(dictionary)
    journal.losses = [*[None] * at, *losses]
    assert run(store) == [1, 2, 3, 4, 5]
    assert (journal.losses, journal.looked) == ([], len(losses))
    assert store.check() == []
    assert store.health().ok
    store.close()
    plain = Dictionary()
    store, _ = opened(plain)
    run(store)
    store.close()
    assert list(dictionary.changes) == list(plain.changes), "no change is missing or doubled"
    assert left(dictionary) == [3, 4, 5]


def test_every_answer_is_lost(dictionary: Dictionary) -> None:
    store, journal = opened(dictionary)
    journal.losses = [ABSENT, WRITTEN] * 8
    assert run(store) == [1, 2, 3, 4, 5]
    assert journal.losses == []
    store.close()
    assert left(dictionary) == [3, 4, 5]


@pytest.mark.parametrize("at", range(8))
def test_changes_of_another_writer_stop_the_store(dictionary: Dictionary, at: int) -> None:
    store, journal = opened(dictionary)
    journal.losses = [*[None] * at, OTHER]
    with pytest.raises(StoreFailed, match="another writer has written change"):
        run(store)
    with pytest.raises(StoreFailed, match="another writer"):
        store.apply([a_send("later")])
    assert not store.health().ok
    before = dict(dictionary.changes)
    store.close()
    assert dictionary.changes == before, "nothing was written after it"
    assert journal.looked == 1


@pytest.mark.parametrize("loss", [WRITTEN, ABSENT])
def test_an_unknown_fate_stops_the_store_as_a_failed_disk_does(dictionary: Dictionary, loss: GroupFate) -> None:
    store, journal = opened(dictionary)
    journal.losses, journal.looking = [None, loss], lambda: GroupFate.UNKNOWN
    store.apply([a_send("first")]).wait()
    waiting = [store.apply([a_send(number)]) for number in range(3)]
    for pending in waiting:
        with pytest.raises(StoreFailed, match="the answer is lost"):
            pending.wait()
    store.close()
    assert journal.looked == 1
    assert left(dictionary) == ([1, 2, 3, 4] if loss is WRITTEN else [1])


def test_a_look_that_fails_stops_the_store(dictionary: Dictionary) -> None:
    store, journal = opened(dictionary)
    journal.losses, journal.looking = [ABSENT], fail
    with pytest.raises(StoreFailed, match="no connection"):
        store.apply([a_send("x")]).wait()
    store.close()
    assert dictionary.changes == {}


def fail() -> GroupFate:
    raise StoreFailed("no connection", "wait")


class HeldLook:
    """A look that waits for the test."""

    def __init__(self, journal: LosingJournal) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        journal.looking = self

    def __call__(self) -> None:
        self.begun.set()
        assert self.go_on.wait(GUARD_S)


@pytest.mark.parametrize("loss", [WRITTEN, ABSENT])
def test_callers_wait_meanwhile_and_the_order_stays(dictionary: Dictionary, loss: GroupFate) -> None:
    store, journal = opened(dictionary)
    journal.losses, look = [loss], HeldLook(journal)
    first = store.apply([a_send(0)])
    leader = threading.Thread(target=first.wait)
    leader.start()
    assert look.begun.wait(GUARD_S)
    others = [store.apply([a_send(number)]) for number in range(1, 4)]
    assert not any(pending.done for pending in (first, *others))
    assert store.health().ok
    look.go_on.set()
    results = [pending.wait()[0] for pending in (first, *others)]
    leader.join()
    assert [result.sequence for result in results if isinstance(result, SendResult)] == [1, 2, 3, 4]
    store.close()
    assert left(dictionary) == [1, 2, 3, 4]


@pytest.mark.parametrize("loss", [WRITTEN, ABSENT, OTHER])
def test_a_close_waits_for_the_look(dictionary: Dictionary, loss: GroupFate) -> None:
    store, journal = opened(dictionary)
    journal.losses, look = [loss], HeldLook(journal)
    pending, errors = store.apply([a_send(0)]), list[BaseException | None]()
    done = threading.Event()
    pending.on_done(lambda each: (errors.append(each.error), done.set()))
    assert look.begun.wait(GUARD_S)
    closer = threading.Thread(target=store.close)
    closer.start()
    assert not done.is_set()
    look.go_on.set()
    closer.join(GUARD_S)
    assert not closer.is_alive()
    assert done.wait(GUARD_S)
    assert [type(error) for error in errors] == [StoreFailed if loss is OTHER else type(None)]
    if loss is not OTHER:
        assert left(dictionary) == [1]


@pytest.mark.parametrize("loss", [WRITTEN, ABSENT])
def test_ctrl_c_during_the_look_stops_the_store(dictionary: Dictionary, loss: GroupFate) -> None:
    def interrupt() -> GroupFate:
        raise KeyboardInterrupt

    store, journal = opened(dictionary)
    store.apply([a_send("before")]).wait()
    journal.losses, journal.looking = [loss], interrupt
    first, second = store.apply([a_send(0)]), store.apply([a_send(1)])
    with pytest.raises(KeyboardInterrupt):
        first.wait()
    with pytest.raises(StoreFailed):
        second.wait()
    with pytest.raises(StoreFailed):
        store.apply([a_send(2)])
    store.close()
    assert left(dictionary) == ([1, 2, 3] if loss is WRITTEN else [1])


def test_a_store_that_fails_for_another_reason_does_not_write_again(dictionary: Dictionary) -> None:
    store, journal = opened(dictionary)

    def stop() -> None:
        store._committer.fail(StoreFailed("a file was replaced", "restore it"))

    journal.losses, journal.looking = [ABSENT], stop  # type: ignore[assignment]
    with pytest.raises(StoreFailed):
        store.apply([a_send(0)]).wait()
    store.close()
    assert dictionary.changes == {}


async def test_a_bus_on_a_loop_does_not_notice(dictionary: Dictionary) -> None:
    store, journal = opened(dictionary)
    async with MessageBus(store) as bus:
        await bus.create_queue("q")
        journal.losses = [ABSENT, WRITTEN] * 5
        for number in range(5):
            await bus.send("q", number)
        assert [message.body for message in await bus.peek("q", 5)] == list(range(5))
    assert journal.losses == []
