"""What is written once for all journals: recovery with its checks, events, and what a reader has missed."""

from collections.abc import Sequence

import pytest

from tests.contract.dictionary_journal import Dictionary, DictionaryJournal, decode, encode
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.changes import Change, Declared
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreDamaged
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.seam.journal import Covered, SnapshotSlice
from unibus.testing.clock.virtual_clock import VirtualClock


class Watched(DictionaryJournal):
    """Remembers its appends, and covers what the test says."""

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__(dictionary)
        self.appended: list[tuple[int, int, bool]] = []
        self.covered = Covered()

    def load_snapshot(self, state: StoreState) -> Covered:
        return self.covered

    def append(self, first_seq: int, changes: Sequence[Change], sync: bool, part: SnapshotSlice | None = None) -> None:
        self.appended.append((first_seq, len(changes), sync))
        super().append(first_seq, changes, sync, part)


def opened(journal: DictionaryJournal) -> EmbeddedStore:
    clock = VirtualClock()
    return EmbeddedStore(journal, clock, clock.timers(lambda: True))


def a_send(body: object) -> Send:
    command = send_of(Message.new("q", body), "q")
    command.creates = QUEUE
    return command


@pytest.fixture
def written() -> Dictionary:
    """A queue, which is change 1, and four messages."""
    dictionary = Dictionary()
    store = opened(DictionaryJournal(dictionary))
    for number in range(4):
        store.apply([a_send(number)]).wait()
    store.close()
    assert len(dictionary.changes) == 5
    return dictionary


def refused(journal: Watched) -> str:
    with pytest.raises(StoreDamaged) as caught:
        opened(journal)
    assert journal.appended == [], "a damaged store stays as it is"
    return caught.value.what


def test_recovery_ends_with_an_append_of_nothing(written: Dictionary) -> None:
    journal = Watched(written)
    opened(journal).close()
    assert journal.appended == [(6, 0, True)]


def test_a_gap_is_damage(written: Dictionary) -> None:
    class Gap(Watched):
        last = 5  # type: ignore[assignment]

    del written.changes[3]
    assert refused(Gap(written)) == "dictionary:// is damaged: the log, from change 3 to 3: it is missing"


def test_a_log_that_begins_too_late_is_damage(written: Dictionary) -> None:
    class Late(Watched):
        last = 5  # type: ignore[assignment]

    del written.changes[1], written.changes[2]
    assert refused(Late(written)) == "dictionary:// is damaged: the log, from change 1 to 2: it is missing"


@pytest.mark.parametrize(
    ("covered", "what"),
    [
        (Covered(reached=7), "the store was opened or closed at change 7: 2 changes are missing"),
        (Covered(overlap=6), "the snapshot has changes up to 6: 1 change is missing"),
    ],
)
def test_a_log_that_lost_its_end_is_damage(written: Dictionary, covered: Covered, what: str) -> None:
    journal = Watched(written)
    journal.covered = covered
    assert refused(journal) == f"dictionary:// is damaged: the log ends with change 5, but {what}"


def test_a_change_that_does_not_fit_is_damage(written: Dictionary) -> None:
    written.changes[4] = written.changes[3]
    assert refused(Watched(written)).startswith("dictionary:// is damaged: change 4: ")


def test_an_error_does_not_show_the_password_of_the_url(written: Dictionary) -> None:
    class Remote(Watched):
        url = "dictionary://me:secret@there"

    written.changes[4] = written.changes[3]
    assert "secret" not in refused(Remote(written))


def test_a_check_compares_with_the_log(written: Dictionary) -> None:
    store = opened(DictionaryJournal(written))
    assert store.check() == []
    change = decode(written.changes[1])
    assert isinstance(change, Declared)
    change.settings = {"ttl_ns": 5}
    before, written.changes[1] = written.changes[1], encode(change)
    [difference] = store.check()
    assert "ttl_ns" in difference
    written.changes[1] = before
    store.close()


def test_events_end_where_the_log_ended_when_they_were_asked_for(written: Dictionary) -> None:
    class Growing(DictionaryJournal):
        """Has written more by the time it is read."""

        last = 3  # type: ignore[assignment]

        def changes_after(self, seq):  # type: ignore[no-untyped-def]
            yield from self.changes_at(range(seq + 1, 6))

    journal = DictionaryJournal(written)
    store = opened(journal)
    store.history._journal = Growing(written)
    events, safe = store.history.events_after(0)
    assert ([event.seq for event in events], safe) == ([1, 2, 3], 3)
    store.history._journal.close()
    store.close()


def test_a_reader_has_missed_what_was_pruned_after_its_cursor(written: Dictionary) -> None:
    journal = DictionaryJournal(written)
    store = opened(journal)
    store.history.move_cursor("slow", 1)
    assert store.history.missed("slow") == store.history.missed("new") == 0
    journal.oldest = 4
    assert (store.history.missed("slow"), store.history.missed("new")) == (2, 0)
    store.history.move_cursor("slow", 5)
    assert store.history.missed("slow") == 0
    journal.oldest = 1
    store.close()
