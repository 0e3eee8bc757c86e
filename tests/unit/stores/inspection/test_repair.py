"""`check` finds what is wrong with the files of a store, and `repair` writes a new one with all that they prove."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from unibus.core.lifecycle.commands import DEAD_LETTER, Declare
from unibus.core.lifecycle.state.changes import Copied, Declared, MessageRef, Passed
from unibus.core.lifecycle.state.entity import SUBSCRIPTION, TOPIC, subscription_path
from unibus.errors import StoreBusy, StoreDamaged, StoreUnavailable, UsageError
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.inspection.fan_out import half_sends
from unibus.stores.inspection.repair import check, repair
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.store_view import OpenStoreView, all_messages
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import Rig, bodies, sending

DAMAGED = Path(__file__).parents[3] / "crash" / "damaged"
KINDS = ("sqlite", "jsonfile")


def opened(kind: str, path: Path, clock: VirtualClock, every: int = 500_000) -> EmbeddedStore:
    journal: Journal = SqliteJournal(str(path)) if kind == "sqlite" else JsonFileJournal(str(path))
    try:
        return EmbeddedStore(journal, clock, clock.timers(lambda: True), snapshot_every=every)
    except BaseException:
        journal.close()
        raise


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    with VirtualClock() as clock:
        yield clock


def files_of(path: Path) -> dict[str, bytes]:
    """Everything below a path, to see that nothing was changed."""
    found = [path, *path.parent.glob(f"{path.name}-*"), *(path.rglob("*") if path.is_dir() else ())]
    return {str(each): each.read_bytes() for each in found if each.is_file()}


def ids_in(store: EmbeddedStore) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {}
    for entry in all_messages(OpenStoreView(store)):
        held.setdefault(entry.entity, []).append(entry.who.message_id)
    return held


@pytest.mark.parametrize(("name", "tries"), [("once", 1), ("retried", 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_the_forwarding_defect_damaged_is_repaired(
    kind: str, name: str, tries: int, tmp_path: Path, clock: VirtualClock
) -> None:
    """Written by an earlier version, see tests/crash/damaged/README.md."""
    source = DAMAGED / (f"{name}.db" if kind == "sqlite" else name)
    path, new = tmp_path / source.name, tmp_path / "new"
    (shutil.copytree if source.is_dir() else shutil.copy)(source, path)
    before = files_of(path)
    with pytest.raises(StoreDamaged):
        opened(kind, path, clock)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    (shutil.copytree if source.is_dir() else shutil.copy)(source, path)

    found = check(str(path))
    assert not found.ok
    assert [f"'hello-{number}'" in found.findings[2 * number].what for number in range(tries)] == [True] * tries
    assert all("t/Subscriptions/d" in each.effect for each in found.findings[::2])
    assert repair(str(path), str(new)).findings == found.findings
    assert files_of(path) == before
    assert check(str(new)).ok
    assert {oct(each.stat().st_mode & 0o777) for each in [new, *new.rglob("*")]} <= {"0o600", "0o700"}

    store = opened(kind, new, clock)
    hello = [f"hello-{number}" for number in range(tries)]
    held = ids_in(store)
    after = [f"after-{number}-{index}" for number in range(tries) for index in range(5)]
    assert held["orders"] == [*[f"before-{number}" for number in (3, 5, *range(7, 20))], "scheduled-0", *after]
    assert held["orders/$DeadLetterQueue"] == ["before-2"]
    assert held["work"] == [f"step-{number}" for number in range(4)]
    assert (held["t/Subscriptions/a"], held["audit"], held["t/Subscriptions/c"]) == (hello, hello, hello)
    assert "t/Subscriptions/d" not in held
    rig = Rig(store, clock)
    assert bodies(rig.peek("t/Subscriptions/c")) == [{"hello": number} for number in range(tries)]
    assert store.history.events_of("before-0")[0].kind == "sent"
    rig.send("t", "works")
    assert bodies(rig.peek("t/Subscriptions/d")) == ["works"]
    assert store.check() == []
    store.close()


def busy_store(kind: str, path: Path, clock: VirtualClock, every: int = 500_000) -> None:
    store = opened(kind, path, clock, every)
    rig = Rig(store, clock)
    rig.queue("q", dedup_window=600)
    rig.queue("s", requires_session=True)
    rig.topic("t")
    rig.subscription("t", "one")
    rig.subscription("t", "two", forward_to="q")
    for number in range(10):
        rig.send("q", number, message_id=f"q{number}", dedup_key=f"k{number}")
        rig.send("t", number, message_id=f"t{number}")
        rig.send("s", number, message_id=f"s{number}", session_id="one")
    rig.complete(rig.one("q"))
    rig.settle(DEAD_LETTER, rig.one("q"), reason="Broken")
    rig.defer(rig.one("q"))
    store.close()


@pytest.mark.parametrize("every", [500_000, 5], ids=["log", "snapshots"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_store_has_no_findings(kind: str, every: int, tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "bus"
    busy_store(kind, path, clock, every)
    before = files_of(path)
    found = check(str(path))
    assert (found.findings, found.entities, found.messages > 30) == ([], 6, True)
    assert repair(str(path), str(tmp_path / "new")).ok
    assert not (tmp_path / "new").exists()
    assert files_of(path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_forwards_that_came_to_duplicates_or_were_refused_are_whole(
    kind: str, tmp_path: Path, clock: VirtualClock
) -> None:
    """In the order in which a fan-out writes them; what was forwarded is known after a restart, too."""
    path = tmp_path / "store"
    rig = Rig(opened(kind, path, clock), clock)
    rig.queue("known", dedup_window=600)
    rig.queue("full", max_count=1)
    rig.topic("t")
    rig.subscription("t", "here")
    for name, target in (("one", "known"), ("two", "full"), ("three", "known"), ("four", "full")):
        rig.subscription("t", name, forward_to=target)
    rig.run(sending("t", "a", message_id="a"), sending("t", "b", message_id="b"), sending("t", "a", message_id="a"))
    held = ids_in(rig.store)
    rig.store.close()
    assert check(str(path)).findings == []
    store = opened(kind, path, clock)
    assert (ids_in(store), store.check()) == (held, [])
    assert (held["known"], held["full"], held["t/Subscriptions/here"]) == (["a", "b"], ["a"], ["a", "b", "a"])
    assert Rig(store, clock).send("known", "again", message_id="b").duplicate
    store.close()


def break_group(kind: str, path: Path, seq: int) -> None:
    """The change `seq` is not what was written."""
    if kind == "sqlite":
        connection = apsw.Connection(str(path))
        connection.execute(
            "UPDATE log SET records = zeroblob(length(records)) WHERE seq <= ? AND last >= ?", (seq, seq)
        )
        connection.close()
        return
    [segment] = (path / "wal").glob("*.jsonl")
    lines = segment.read_bytes().split(b"\n")
    lines[seq - 1] = lines[seq - 1].replace(b'"seq":', b'"sEq":', 1)
    segment.write_bytes(b"\n".join(lines))


@pytest.mark.usefixtures("log_only")
@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_behind_an_unreadable_group_is_kept(kind: str, tmp_path: Path, clock: VirtualClock) -> None:
    path, new = tmp_path / "bus", tmp_path / "new"
    store = opened(kind, path, clock)
    rig = Rig(store, clock)
    rig.queue("q")
    for number in range(10):
        rig.send("q", number, message_id=f"m{number}")
    rig.complete(rig.one("q"))
    store.close()
    break_group(kind, path, 5)  # m3: the queue is change 1.
    with pytest.raises(StoreDamaged):
        opened(kind, path, clock)
    found = repair(str(path), str(new))
    assert len(found.findings) >= 1
    assert check(str(new)).ok
    store = opened(kind, new, clock)
    assert ids_in(store) == {"q": [f"m{number}" for number in range(10) if number not in (0, 3)]}
    assert len(list(store.history.replay_index("q", 0, 0).messages())) == 6  # History begins behind the gap.
    store.close()


def cut_log(kind: str, path: Path) -> None:
    """Take the last group off the log, as a copy does that was made too early."""
    if kind == "sqlite":
        connection = apsw.Connection(str(path))
        connection.execute("DELETE FROM log WHERE seq = (SELECT max(seq) FROM log)")
        connection.close()
        return
    [segment] = (path / "wal").glob("*.jsonl")
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:-1]))


@pytest.mark.usefixtures("log_only")
@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_lost_its_end_is_found_and_repaired(kind: str, tmp_path: Path, clock: VirtualClock) -> None:
    path, new = tmp_path / "bus", tmp_path / "new"
    store = opened(kind, path, clock)
    rig = Rig(store, clock)
    rig.queue("q")
    for number in range(3):
        rig.send("q", number, message_id=f"m{number}")
    store.close()
    cut_log(kind, path)
    with pytest.raises(StoreDamaged, match="1 change is missing"):
        opened(kind, path, clock)
    [finding] = check(str(path)).findings
    assert "ends with change 3" in finding.what
    repair(str(path), str(new))
    store = opened(kind, new, clock)
    assert ids_in(store) == {"q": ["m0", "m1"]}
    store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_repair_writes_over_nothing_and_needs_a_store_without_owner(
    kind: str, tmp_path: Path, clock: VirtualClock
) -> None:
    path = tmp_path / "bus"
    busy_store(kind, path, clock)
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(UsageError):
        repair(str(path), str(tmp_path / "taken"))
    with pytest.raises(UsageError):
        repair(str(path), str(tmp_path / "no folder" / "new"))
    with pytest.raises(StoreUnavailable):
        check(str(tmp_path / "nothing"))
    store = opened(kind, path, clock)
    with pytest.raises(StoreBusy):
        repair(str(path), str(tmp_path / "new"))
    if kind == "sqlite":
        assert check(str(path)).ok  # Beside its owner.
    else:
        with pytest.raises(StoreBusy):
            check(str(path))
    store.close()
    assert sorted(os.listdir(tmp_path)) == sorted(
        {"bus", "bus.lock", "taken"} - ({"bus.lock"} if kind != "sqlite" else set())
    )


def test_a_group_without_the_end_of_a_send_is_found() -> None:
    who = MessageRef("m", 1)
    topic = Passed(1, 1, 1, who, 50, None, 3, b"x")
    plain = Copied(1, 2, 1, who, 50, 0, 0, 1)
    forward = Passed(1, 3, 1, who, 50, None, 1, b"")
    dead = Declared(1, 9, 0, "d", 4, {})
    stored = Copied(1, 9, 1, who, 50, 0, 0, 3)
    last = Copied(1, 4, 1, who, 50, 0, 0, 4)
    topics = {1: {2, 3, 4}}
    assert half_sends([topic, plain, forward, dead, stored, last, topic, plain, forward, stored, last], topics) == []
    [half] = half_sends([topic, plain, forward, stored, topic, plain, forward, stored, last], topics)
    assert (half.index, half.stored) == (0, (2, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_a_subscription_that_is_declared_with_its_first_message_is_whole(
    kind: str, tmp_path: Path, clock: VirtualClock
) -> None:
    """In one group of the log: the topic, its subscriptions and what is sent to it."""
    path = tmp_path / "bus"
    store = opened(kind, path, clock)
    with store._committer.committing:  # Nothing is written meanwhile.
        commands = [
            Declare("t", TOPIC, {}),
            Declare(subscription_path("t", "one"), SUBSCRIPTION, {}),
            Declare(subscription_path("t", "two"), SUBSCRIPTION, {}),
            sending("t", "a"),
        ]
        answers = [store.apply([command]) for command in commands]
    for answer in answers:
        answer.wait(20)
    store.close()
    assert check(str(path)).findings == []


def test_what_cannot_be_checked_is_named(tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "bus.db"
    busy_store("sqlite", path, clock)
    empty, text, folder = tmp_path / "empty.db", tmp_path / "text", tmp_path / "folder"
    empty.touch()
    text.write_text("no store")
    folder.mkdir()
    for each, error in ((empty, StoreUnavailable), (folder, StoreUnavailable)):
        with pytest.raises(error, match=each.name):
            check(str(each))
    assert [each.effect for each in check(str(text)).findings] == ["it cannot be repaired: restore a backup"]
    for url in (f"jsonfile:///{path}", f"sqlite:///{folder}", "jsonfile://once", "redis://here"):
        with pytest.raises(UsageError):
            check(url)
    with pytest.raises(UsageError, match="another scheme"):
        repair(str(path), "jsonfile:///new")
    os.link(path, tmp_path / "second.db")
    with pytest.raises(StoreUnavailable, match="hard links"):
        check(str(tmp_path / "second.db"))


def test_a_folder_without_its_state_is_a_finding(tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "bus"
    busy_store("jsonfile", path, clock)
    (path / "state.json").unlink()
    [finding] = check(str(path)).findings
    assert "state.json" in finding.what


def test_a_file_that_cannot_be_read_by_a_repair_is_named_as_the_user_named_it(
    tmp_path: Path, clock: VirtualClock
) -> None:
    path = tmp_path / "bus.db"
    path.write_bytes(b"x" * 5000)
    with pytest.raises(StoreDamaged) as caught:
        repair(str(path), str(tmp_path / "new.db"))
    assert str(path) in str(caught.value)
    assert ".repair-" not in str(caught.value)


def test_a_log_without_its_file_is_kept(tmp_path: Path, clock: VirtualClock) -> None:
    """SQLite would delete the log that holds the messages of a file which was moved away."""
    path, aside = tmp_path / "bus.db", tmp_path / "aside.db"
    (tmp_path / "bus.db-wal").write_bytes(b"a log")
    with pytest.raises(StoreDamaged, match="belong to it"):
        opened("sqlite", path, clock)
    assert (tmp_path / "bus.db-wal").read_bytes() == b"a log"
    (tmp_path / "bus.db-wal").unlink()
    busy_store("sqlite", aside, clock)
    for part in (".lock", "-wal", "-shm", "-reserve"):
        with pytest.raises(StoreUnavailable, match="part of another store"):
            opened("sqlite", Path(f"{aside}{part}"), clock)


def zero_page_with(path: Path, text: bytes) -> None:
    """A page of the file that holds this text cannot be read any more."""
    data = bytearray(path.read_bytes())
    start = data.index(text) // 4096 * 4096
    data[start : start + 4096] = bytes(4096)
    path.write_bytes(data)


@pytest.mark.usefixtures("log_only")
def test_groups_behind_a_page_that_cannot_be_read_are_kept(tmp_path: Path, clock: VirtualClock) -> None:
    path, new = tmp_path / "bus.db", tmp_path / "new.db"
    store = opened("sqlite", path, clock)
    rig = Rig(store, clock)
    rig.queue("q")
    for number in range(200):
        rig.send("q", f"body {number:04} " + "x" * 200, message_id=f"m{number}")
    store.close()
    zero_page_with(path, b"body 0100")
    assert not check(str(path)).ok
    repair(str(path), str(new))
    store = opened("sqlite", new, clock)
    kept = ids_in(store)["q"]
    assert 170 < len(kept) < 200
    assert {"m0", "m50", "m150", "m199"} <= set(kept)
    assert "m100" not in kept
    store.close()


@pytest.mark.usefixtures("log_only")
@pytest.mark.parametrize("kind", KINDS)
def test_damage_in_front_of_the_snapshot_touches_no_message(kind: str, tmp_path: Path, clock: VirtualClock) -> None:
    path, new = tmp_path / "bus", tmp_path / "new"
    store = opened(kind, path, clock, 60)
    rig = Rig(store, clock)
    rig.queue("q")
    for number in range(100):
        rig.send("q", number, message_id=f"m{number}")
    for claimed in rig.claim("q", 20):
        rig.complete(claimed)
    before = ids_in(store)
    assert store.health().snapshot_seq > 10
    store.close()
    if kind == "sqlite":
        break_group(kind, path, 5)
    else:
        segment = min((path / "wal").glob("*.jsonl"))
        segment.write_bytes(segment.read_bytes().replace(b'"seq":5,', b'"sEq":5,', 1))
    [*findings] = check(str(path)).findings
    assert findings
    assert {each.effect for each in findings} == {"history before it is left out; no message is affected"}
    repair(str(path), str(new))
    assert check(str(new)).ok
    for each in (path, new):
        store = opened(kind, each, clock)
        assert ids_in(store) == before
        store.close()


def test_a_sequence_that_was_changed_on_disk_is_damage(tmp_path: Path, clock: VirtualClock) -> None:
    """New messages would get sequences of existing ones, and replace them silently."""
    path, new = tmp_path / "bus.db", tmp_path / "new.db"
    store = opened("sqlite", path, clock, 5)
    rig = Rig(store, clock)
    rig.queue("q")
    for number in range(30):
        rig.send("q", number, message_id=f"m{number}")
    while store.health().snapshot_seq < 30:
        rig.send("q", "more")
    before = len(ids_in(store)["q"])
    store.close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE entities SET sequence = 14 WHERE name = 'q'")
    snapshot = connection.execute("SELECT value FROM meta WHERE key = 'snapshot'").get
    connection.execute("DELETE FROM log WHERE last > ?", (snapshot,))  # Else the log would say which ones were given.
    connection.execute("UPDATE meta SET value = ? WHERE key IN ('reached', 'overlap')", (snapshot,))
    connection.close()
    with pytest.raises(StoreDamaged, match="last sequence is"):
        opened("sqlite", path, clock)
    repair(str(path), str(new))
    store = opened("sqlite", new, clock)
    Rig(store, clock).send("q", "new")
    assert len(ids_in(store)["q"]) >= before - 5
    assert store.check() == []
    store.close()
