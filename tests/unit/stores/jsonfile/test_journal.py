"""A folder of JSON files: its content, its owner, how much history it keeps, and what a crash leaves."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from unibus.clock import Clock
from unibus.core.envelope.message import Message
from unibus.core.lifecycle.commands import (
    DEAD_LETTER,
    SET_SESSION_STATE,
    Advance,
    Command,
    Declare,
    Drop,
    Send,
    SessionCommand,
    Settle,
)
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.changes import Change, Declared, MessageRef, SavedEntry, Sent
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION, TOPIC
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.states import ACTIVE
from unibus.errors import StoreBusy, StoreDamaged, StoreFailed, StoreUnavailable, StoreVersion
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.files.disk import RealFiles, SyncFailed
from unibus.stores.files.reserve import Reserve
from unibus.stores.jsonfile import log as jsonfile_log
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.jsonfile.state import FORMAT, sealed
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import EntityRow, SnapshotSlice, Summary
from unibus.stores.seam.recovery import recover
from unibus.stores.seam.store import ClaimRequest

SECOND = 1_000_000_000
NOW_NS = 1_760_000_000 * SECOND


class NoTimers:
    """Nothing is due in these tests."""

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Never."""

    def stop(self) -> None:
        """There is nothing to stop."""


def opened(folder: Path, every: int = 1_000_000, memory_mb: float = 0.0) -> EmbeddedStore:
    journal = JsonFileJournal(str(folder))
    clock = Clock(lambda: NOW_NS, lambda: NOW_NS)
    try:
        return EmbeddedStore(journal, clock, NoTimers(), snapshot_every=every, memory_budget_mb=memory_mb)
    except BaseException:
        journal.close()
        raise


def send(entity: str, body: object, **fields: Any) -> Send:
    message = Message.new(entity, body)
    return send_of(message.with_fields(fields) if fields else message, entity)


def run(store: EmbeddedStore, *commands: Command) -> list[object]:
    return store.apply(commands).wait(10)


def snapshot(store: EmbeddedStore) -> None:
    """Let the store take one now: it is due, and each commit brings a piece of it."""
    begun = store.health().snapshot_seq
    store._snapshot.every = 1
    number = 0
    while store.health().snapshot_seq == begun:
        number += 1
        run(store, Advance("pieces", store.position("pieces").wait(), store.position("pieces").wait() + 1))
        assert number < 100
    store._snapshot.every = 1_000_000


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def bodies(store: EmbeddedStore, entity: str) -> list[bytes | None]:
    return [each.data for each in store.peek(entity, 0, 1_000).wait(10)]


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "bus"


@pytest.fixture
def full(folder: Path) -> Iterator[EmbeddedStore]:
    """A bit of everything, in a snapshot."""
    store = opened(folder)
    run(store, Declare("orders", QUEUE, {}))
    run(store, Declare("a/b", QUEUE, {"requires_session": True}))
    run(store, Declare("prices", TOPIC, {}))
    run(store, Declare("prices/Subscriptions/audit", SUBSCRIPTION, {}))
    run(store, send("orders", {"n": 1, "text": "zwölf"}), send("orders", b"\xff\x00"), send("orders", "dead"))
    run(store, send("a/b", [1, 2], session_id="c-1"), send("prices", 3.5, dedup_key="k"), Advance("relay", 0, 7))
    (taken,) = store.claim(ClaimRequest("orders", 1)).wait(10)
    run(store, Settle(DEAD_LETTER, "orders", taken.sequence, taken.token))
    lock = store.accept("a/b", "c-1", "me").wait(10)
    assert lock is not None
    state = SessionCommand(SET_SESSION_STATE, "a/b", "c-1", lock.token)
    state.state = b"half way"
    run(store, state)
    run(store, Declare("brief", QUEUE, {}))
    run(store, Drop("brief"))
    snapshot(store)
    yield store
    store.close()


# Its content


def test_the_layout(full: EmbeddedStore, folder: Path) -> None:
    found = {name for name in names(folder) if not name.startswith("wal/")}
    assert found == {
        "state.json",
        "entities/queues.json",
        "entities/topics.json",
        "entities/subscriptions.json",
        "messages/queue_orders.json",
        "messages/queue_a%2Fb.json",
        "messages/deadletter_queue_orders.json",
        "messages/subscription_prices_audit.json",
    }
    assert {name for name in names(folder) if name.startswith("wal/")} >= {"wal/000000000001.jsonl"}


def test_people_can_read_what_was_declared_and_what_waits(full: EmbeddedStore, folder: Path) -> None:
    queues = {item["name"]: item for item in read(folder / "entities/queues.json")["items"]}
    assert queues.keys() == {"orders", "a/b", "orders/$DeadLetterQueue"}
    assert queues["a/b"]["settings"] == {"requires_session": True}
    orders = read(folder / "messages/queue_orders.json")
    assert orders["entity"] == "orders"
    assert [item["state"] for item in orders["items"]] == ["active", "active"]
    assert orders["items"][0]["message"]["body"] == "/wA="
    assert orders["items"][0]["message"]["kind"] == "bytes"
    (dead,) = read(folder / "messages/deadletter_queue_orders.json")["items"]
    assert dead["message"]["body"] == {"n": 1, "text": "zwölf"}
    text = (folder / "messages/deadletter_queue_orders.json").read_text("utf-8")
    assert '          "text": "zwölf"\n' in text, "one thing in a line"


def test_the_state_has_the_rest(full: EmbeddedStore, folder: Path) -> None:
    state = read(folder / "state.json")
    assert (state["unibus"], state["format"], state["domain"]) == ("store", FORMAT, "local")
    assert {each["name"]: each["last"] for each in state["sequences"]}["orders"] == 3
    assert state["positions"]["relay"] == 7
    assert state["retired"] == {"brief": 0}
    assert "brief" in state["deleted"].values()
    ((session,),) = state["sessions"].values()
    assert (session["session_id"], session["text"]) == ("c-1", "half way")
    ((marks),) = state["marks"].values()
    assert list(marks["sent"]) == ["k"]
    assert state["covers"] > 0


def test_all_of_it_comes_back(full: EmbeddedStore, folder: Path) -> None:
    before = {info.name: bodies(full, info.name) for info in full.entities().wait(10) if info.kind != "topic"}
    infos = full.entities().wait(10)
    full.close()
    store = opened(folder)
    assert {name: bodies(store, name) for name in before} == before
    assert store.entities().wait(10) == infos
    assert store.position("relay").wait() == 7
    (again,) = run(store, send("prices", 3.5, dedup_key="k"))
    assert again.duplicate  # type: ignore[attr-defined]
    store.close()


def test_a_line_of_the_log_for_each_change(full: EmbeddedStore, folder: Path) -> None:
    lines = [json.loads(line) for path in sorted((folder / "wal").iterdir()) for line in path.read_bytes().splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["op"] == "declared"
    assert all(line["ts"].startswith("2025-10-09T08:53:20.") and line["ts"].endswith("Z") for line in lines)
    batch = [line for line in lines if line["op"] == "sent"][:3]
    assert {line.get("group") for line in batch} == {batch[-1]["seq"]}
    events, _ = full.history.events_after(0, 1_000)
    assert [event.seq for event in events] == [line["seq"] for line in lines]
    assert [event.kind for event in full.history.events_of(batch[0]["who"]["message_id"])] == [
        "sent",
        "delivered",
        "copied",
        "dead_lettered",
    ]


def test_a_message_that_did_not_change_is_not_written_again(full: EmbeddedStore, folder: Path) -> None:
    untouched = folder / "messages/queue_a%2Fb.json"
    before, written = untouched.stat().st_mtime_ns, (folder / "messages/queue_orders.json").read_bytes()
    run(full, send("orders", "more"))
    snapshot(full)
    assert untouched.stat().st_mtime_ns == before
    assert len((folder / "messages/queue_orders.json").read_bytes()) > len(written)
    assert len(bodies(full, "orders")) == 3


def test_the_file_of_a_queue_goes_with_its_last_message(full: EmbeddedStore, folder: Path) -> None:
    full.claim(ClaimRequest("prices/Subscriptions/audit", 5, lock=False)).wait(10)
    run(full, Drop("orders"))
    snapshot(full)
    found = {name for name in names(folder) if name.startswith("messages/")}
    assert found == {"messages/queue_a%2Fb.json"}


def test_a_queue_that_is_made_anew_under_its_name_has_the_file(full: EmbeddedStore, folder: Path) -> None:
    run(full, Drop("orders"))
    run(full, Declare("Orders", QUEUE, {}))
    run(full, send("Orders", "new"))
    snapshot(full)
    (item,) = read(folder / "messages/queue_Orders.json")["items"]
    assert item["message"]["body"] == "new"
    full.close()
    store = opened(folder)
    assert len(bodies(store, "orders")) == 1
    store.close()


def test_two_entities_of_one_name_have_a_file_each(folder: Path) -> None:
    """One was deleted during the snapshot, and created again."""
    journal = JsonFileJournal(str(folder))
    recover(journal, StoreState(0))
    journal.append(1, [Declared(0, 1, 0, "q", QUEUE, {}), Declared(0, 2, 0, "Q", QUEUE, {})], True)
    saved = SavedEntry(MessageRef("m", 4), 50, ACTIVE, 0, 0, 0, 0, 0)
    entities = [EntityRow(1, "q", QUEUE, {}, 1), EntityRow(2, "Q", QUEUE, {}, 1)]
    part = SnapshotSlice([(1, 1, saved, b"old "), (2, 1, saved, b"new ")], [], entities)
    journal.append(3, [], True, part)
    journal.append(3, [], True, SnapshotSlice(last=Summary(2, 2, entities, [], {}, {}, [], [], {}, [], 0)))
    journal.close()
    assert {name for name in names(folder) if name.startswith("messages/")} == {
        "messages/queue_q.json",
        "messages/queue_Q~2.json",
    }
    again, state = JsonFileJournal(str(folder)), StoreState(0)
    assert recover(again, state) == 2
    entries = [state.entities[number].entries[1] for number in (1, 2)]
    assert list(again.read_bodies(entries).values()) == [b"old ", b"new "]
    again.close()


# Whose it is


def test_a_second_owner_is_told_who_the_first_one_is(full: EmbeddedStore, folder: Path) -> None:
    with pytest.raises(StoreBusy, match=r"bus: state\.json is in use by process \d+"):
        JsonFileJournal(str(folder))
    link = folder.parent / "link"
    link.symlink_to(folder)
    with pytest.raises(StoreBusy):
        JsonFileJournal(str(link))


def test_a_folder_of_somebody_else_is_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(StoreUnavailable, match=r"notes\.txt"):
        JsonFileJournal(str(folder))
    assert names(folder) == {"notes.txt"}
    assert len(list(folder.iterdir())) == 1


def test_a_state_of_somebody_else_is_left_alone(folder: Path) -> None:
    folder.mkdir()
    for content in (b'{"version": 3}', b"[]", b'{"unibus": 5}'):
        (folder / "state.json").write_bytes(content)
        with pytest.raises(StoreUnavailable, match="not one of unibus"):
            JsonFileJournal(str(folder))
        assert (folder / "state.json").read_bytes() == content


def test_a_newer_format_is_refused_and_left_alone(folder: Path) -> None:
    JsonFileJournal(str(folder)).close()
    state = read(folder / "state.json")
    del state["crc"]
    content = sealed(json.dumps({**state, "format": FORMAT + 1, "surprise": True}).encode())
    (folder / "state.json").write_bytes(content)
    with pytest.raises(StoreVersion, match="install the newer unibus"):
        JsonFileJournal(str(folder))
    assert (folder / "state.json").read_bytes() == content


def test_a_file_or_nothing_in_the_place_of_the_folder(folder: Path) -> None:
    with pytest.raises(StoreUnavailable, match="check that the folder exists"):
        JsonFileJournal(str(folder / "deeper"))
    folder.write_text("a file")
    with pytest.raises(StoreUnavailable, match="is a file"):
        JsonFileJournal(str(folder))


def test_a_log_without_its_state_is_damaged(full: EmbeddedStore, folder: Path) -> None:
    full.close()
    (folder / "state.json").unlink()
    with pytest.raises(StoreDamaged, match=r"state\.json is damaged: it is missing"):
        JsonFileJournal(str(folder))


def test_the_domain_is_that_of_the_beginning(folder: Path) -> None:
    JsonFileJournal(str(folder), domain="north").close()
    journal = JsonFileJournal(str(folder), domain="south")
    recover(journal, StoreState(0))
    journal.append(1, [Declared(0, 1, 0, "orders", 1, {})], True)
    assert journal.domain == "north"
    journal.close()


@pytest.mark.usefixtures("log_only")
def test_a_copy_without_its_empty_folders_is_whole(folder: Path) -> None:
    store = opened(folder)
    run(store, Declare("q", QUEUE, {}))
    store.close()
    (folder / "messages").rmdir()
    (folder / "entities").rmdir()
    store = opened(folder)
    assert [info.name for info in store.entities().wait(10)] == ["q"]
    store.close()


# What a crash leaves


def test_what_was_begun_and_not_finished_is_cleared_away(full: EmbeddedStore, folder: Path) -> None:
    before = bodies(full, "orders")
    full.close()
    expected = names(folder)
    (folder / "messages/queue_orders.json.99.new").write_bytes(b"{ half a fi")
    (folder / "snapshot.part").write_bytes(b"a piece")
    (folder / "state.json.new").write_bytes(b"{")
    store = opened(folder)
    assert bodies(store, "orders") == before
    store.close()
    assert names(folder) == expected


@pytest.mark.usefixtures("log_only")
def test_a_snapshot_whose_files_have_not_got_their_names_yet(full: EmbeddedStore, folder: Path) -> None:
    """A crash after the state was replaced: the names still lead to the old files."""
    before = bodies(full, "orders")
    full.close()
    generation = read(folder / "state.json")["generation"]
    named = folder / "messages/queue_orders.json"
    content = named.read_bytes()
    named.rename(f"{named}.{generation}.new")
    named.write_bytes(b"what it was before")
    store = opened(folder)
    assert bodies(store, "orders") == before
    assert named.read_bytes() == content
    store.close()


class OneSync(RealFiles):
    """The sync of the log fails once, and would work the next time."""

    def __init__(self) -> None:
        self.failing = False
        self.syncs = 0

    def sync(self, handle: int) -> None:
        self.syncs += 1
        if self.failing:
            self.failing = False
            raise OSError(5, "Input/output error")
        super().sync(handle)


def test_a_sync_that_failed_is_not_tried_again(folder: Path) -> None:
    files = OneSync()
    journal = JsonFileJournal(str(folder), files=files)
    recover(journal, StoreState(0))
    files.failing = True
    change: Change = Declared(0, 1, 0, "orders", 1, {})
    with pytest.raises(StoreFailed, match="bus could not be written: Input/output error"):
        journal.append(1, [change], True)
    tried = files.syncs
    with pytest.raises(StoreFailed):
        journal.append(2, [change], True)
    with pytest.raises(StoreFailed):
        journal.append(2, [change], False)
    assert files.syncs == tried
    journal.close()


def test_a_group_is_one_write_and_one_sync(folder: Path) -> None:
    class Counting(OneSync):
        writes = 0

        def write(self, handle: int, data: bytes) -> None:
            self.writes += 1
            super().write(handle, data)

    files = Counting()
    journal = JsonFileJournal(str(folder), files=files)
    recover(journal, StoreState(0))
    files.writes = files.syncs = 0
    changes: list[Change] = [Declared(0, number, 0, f"q{number}", 1, {}) for number in range(1, 51)]
    journal.append(1, changes, True)
    assert (files.writes, files.syncs) == (1, 1)
    journal.append(51, changes, False)
    assert (files.writes, files.syncs) == (2, 1)
    assert journal.durability == Durability.D2
    journal.close()


# History


@pytest.fixture
def journal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JsonFileJournal]:
    """Segments of five changes or so."""
    monkeypatch.setattr(jsonfile_log, "SEGMENT_BYTES", 1_000)
    journal = JsonFileJournal(str(folder), history_age_s=100, history_bytes=5_000)
    recover(journal, StoreState(0))
    journal.append(1, [Declared(0, 1, 0, "orders", 1, {})], True)
    yield journal
    journal.close()


def fill(journal: JsonFileJournal, count: int, size: int = 10) -> None:
    """One group per message, the first of them with seq 2, a second apart."""
    for number in range(1, count + 1):
        sent = Sent(number * SECOND, 1, number, MessageRef(f"m{number}", size), 50, 0, 0, None, b"x" * size)
        journal.append(number + 1, [sent], False)


def seqs(journal: JsonFileJournal) -> list[int]:
    return [seq for seq, _ in journal.changes_after(0)]


def test_what_is_too_old_goes_as_soon_as_recovery_does_not_need_it(journal: JsonFileJournal) -> None:
    fill(journal, 20)
    journal.trim(110 * SECOND, 0)
    assert seqs(journal) == list(range(1, 22)), "nothing before the snapshot may go"
    journal.trim(110 * SECOND, 21)
    kept = seqs(journal)
    assert kept == list(range(kept[0], 22))
    assert 5 <= kept[0] <= 11, "whole segments, and nothing that is young"
    assert journal.oldest == kept[0]


def test_what_is_too_much_goes_from_the_old_end(journal: JsonFileJournal) -> None:
    fill(journal, 20, size=1_000)
    assert journal.size_bytes > 20_000
    while journal.trim(20 * SECOND, 21):
        pass
    kept = seqs(journal)
    assert kept == list(range(kept[0], 22))
    assert journal.size_bytes <= 5_000


def test_nothing_after_the_snapshot_goes_even_if_it_is_too_much(journal: JsonFileJournal) -> None:
    fill(journal, 20, size=1_000)
    journal.trim(1_000 * SECOND, 5)
    assert seqs(journal)[0] <= 6


def test_cursors_stay_where_they_were_when_history_goes(journal: JsonFileJournal, folder: Path) -> None:
    fill(journal, 30)
    assert journal.cursors({"slow": 2, "quick": 31}) == {"slow": 2, "quick": 31}
    journal.trim(110 * SECOND, 31)
    assert journal.oldest > 3
    assert journal.cursors() == {"slow": 2, "quick": 31}
    kept = read(folder / "cursors.json")
    assert (kept["oldest"], kept["readers"]["slow"]) == (journal.oldest, {"seq": 2})


def test_cursors_sizes_and_the_oldest_survive_a_restart(journal: JsonFileJournal, folder: Path) -> None:
    fill(journal, 3)
    journal.cursors({"capture": 2})
    size = journal.size_bytes
    journal.close()
    again = JsonFileJournal(str(folder))
    recover(again, StoreState(0))
    assert again.cursors() == {"capture": 2}
    assert (again.size_bytes, again.oldest) == (size, 1)
    again.close()


def test_segments_that_were_forgotten_and_not_removed_yet_go_at_the_next_start(folder: Path) -> None:
    store = opened(folder, memory_mb=1)
    run(store, Declare("q", QUEUE, {}))
    snapshot(store)
    snapshot(store)
    first = folder / "wal/000000000001.jsonl"
    content = first.read_bytes()
    journal = store._journal
    assert isinstance(journal, JsonFileJournal)
    journal._history_bytes = 0
    journal.trim(NOW_NS, store.health().snapshot_seq)
    assert not first.exists()
    oldest = journal.oldest
    store.close()
    first.write_bytes(content)  # As a removal that a loss of power took back.
    again = opened(folder)
    assert again.health().oldest_seq == oldest
    assert not first.exists()
    again.close()


def test_changes_are_found_by_number_and_by_message(journal: JsonFileJournal) -> None:
    fill(journal, 20)
    assert [seq for seq, _ in journal.changes_after(4)] == list(range(5, 22))
    found = journal.changes_at([2, 9, 10, 21, 22, 99])
    assert [(seq, change.sequence) for seq, change in found] == [(2, 1), (9, 8), (10, 9), (21, 20)]
    assert journal.find("m7") == [8]
    assert journal.find("orders") == []


def test_reading_begins_near_the_place(journal: JsonFileJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that comes again and again does not read all of a segment each time."""
    monkeypatch.setattr(jsonfile_log, "SEGMENT_BYTES", 10_000_000)
    fill(journal, 60, size=4_000)
    amounts: list[int] = []
    plain = RealFiles.read

    def counted(self: RealFiles, path: str, offset: int = 0, size: int = -1) -> bytes:
        data = plain(self, path, offset, size)
        amounts.append(len(data))
        return data

    monkeypatch.setattr(RealFiles, "read", counted)
    assert [seq for seq, _ in journal.changes_after(59)] == [60, 61]
    assert 0 < sum(amounts) < journal.size_bytes / 2


def test_a_damaged_line_of_history_is_named_when_it_is_read(journal: JsonFileJournal, folder: Path) -> None:
    fill(journal, 3)
    path = sorted((folder / "wal").iterdir())[0]
    path.write_bytes(path.read_bytes().replace(b'"seq":3', b'"seq":4', 1))
    with pytest.raises(StoreDamaged, match=r"000000000001\.jsonl, line 3"):
        seqs(journal)


class ScriptedFiles(RealFiles):
    """Real files, with errors where a test wants them."""

    def __init__(self) -> None:
        self.sync_error = self.truncate_error = 0
        self.space: int | None = None

    def write(self, handle: int, data: bytes) -> None:
        if self.space is not None and len(data) > self.space:
            os.write(handle, data[: self.space])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(handle, data)

    def truncate(self, handle: int, size: int) -> None:
        if self.truncate_error:
            raise OSError(self.truncate_error, os.strerror(self.truncate_error))
        super().truncate(handle, size)

    def sync(self, handle: int) -> None:
        if self.sync_error:
            raise SyncFailed(self.sync_error, os.strerror(self.sync_error))
        super().sync(handle)


class OnePiece(Reserve):
    """A reserve whose release makes space."""

    def __init__(self, files: ScriptedFiles) -> None:
        super().__init__("", 1_000_000)
        self.files = files

    def open(self) -> None:
        self.size = self.wanted

    def release(self) -> bool:
        self.full = True
        had, self.files.space = self.files.space, None
        return had is not None

    def refill(self) -> bool:
        return True


def scripted(folder: Path) -> tuple[JsonFileJournal, ScriptedFiles]:
    files = ScriptedFiles()
    folder.mkdir()
    journal = JsonFileJournal(str(folder), files=files, reserve=OnePiece(files))
    recover(journal, StoreState(0))
    journal.append(1, [Declared(0, 1, 0, "orders", 1, {})], True)
    return journal, files


def a_group(first: int) -> list[Change]:
    return [Sent(NOW_NS, 1, each, MessageRef(f"m{each}", 3), 50, 0, 0, None, b"abc") for each in (first, first + 1)]


def test_a_group_that_was_cut_short_is_cut_off_and_written_again(folder: Path) -> None:
    journal, files = scripted(folder)
    files.space = 100
    journal.append(2, a_group(1), True)
    assert journal.reserve.full
    journal.append(4, a_group(3), True)
    journal.close()
    lines = [json.loads(line) for line in (folder / "wal/000000000001.jsonl").read_text("utf-8").splitlines()]
    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5]


def test_a_group_that_cannot_be_cut_off_stops_the_journal(folder: Path) -> None:
    """Whatever is written after it would be lost."""
    journal, files = scripted(folder)
    files.space, files.truncate_error = 100, errno.ENOSPC
    with pytest.raises(StoreFailed):
        journal.append(2, a_group(1), True)
    files.space, files.truncate_error = None, 0
    with pytest.raises(StoreFailed):
        journal.append(2, a_group(1), True)
    journal.close()


def test_a_sync_that_finds_no_space_is_a_failed_sync(folder: Path) -> None:
    """A network file system may find out that late. A sync is never tried again."""
    journal, files = scripted(folder)
    files.sync_error = errno.ENOSPC
    with pytest.raises(StoreFailed):
        journal.append(2, a_group(1), True)
    assert not journal.reserve.full
    files.sync_error = 0
    with pytest.raises(StoreFailed):
        journal.append(4, a_group(3), True)
    journal.close()
