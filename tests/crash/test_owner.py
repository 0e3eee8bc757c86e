"""One owner at a time, and it is named; others may read the file meanwhile, and change nothing by that."""

import json
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from tests.crash.child import open_journal
from tests.crash.kills import BYTES_MAX, ROOT
from tests.crash.ledger import Ledger
from tests.crash.power import StillTimers
from tests.crash.workload import Worker
from unibus.clock import SYSTEM_CLOCK
from unibus.errors import StoreBusy
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.sqlite.journal import SqliteJournal

NAMES = pytest.mark.parametrize("name", ["bus.db", "bus.json"])

HOLD = """
import sys
from tests.crash.child import open_journal
journal = open_journal(sys.argv[1], 1000)
print("held", flush=True)
sys.stdin.read()
"""

READ = """
import apsw, json, sys
reader = apsw.Connection(f"file:{sys.argv[1]}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
for _ in sys.stdin:
    rows = reader.execute("SELECT seq, last, crc FROM log ORDER BY seq").fetchall()
    print(json.dumps(rows), flush=True)
"""


def python(code: str, path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@NAMES
def test_a_second_owner_is_refused_and_told_who_the_first_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with python(HOLD, path) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreBusy, match=rf"{name}.* is in use by process {other.pid} "):
            open_journal(str(path), BYTES_MAX)
        other.kill()
    # Its death was enough.
    open_journal(str(path), BYTES_MAX).close()


@NAMES
def test_a_second_owner_through_a_link_is_refused_until_the_first_is_dead(tmp_path: Path, name: str) -> None:
    (tmp_path / f"alias-{name}").symlink_to(name)
    with python(HOLD, tmp_path / name) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreBusy, match=rf"{name}.* is in use by process {other.pid} "):
            open_journal(str(tmp_path / f"alias-{name}"), BYTES_MAX)
        other.kill()
    open_journal(str(tmp_path / f"alias-{name}"), BYTES_MAX).close()


@NAMES
def test_the_same_process_is_no_second_owner_either(tmp_path: Path, name: str) -> None:
    journal = open_journal(str(tmp_path / name), BYTES_MAX)
    with pytest.raises(StoreBusy):
        open_journal(str(tmp_path / name), BYTES_MAX)
    journal.close()


def test_history_is_read_from_another_process_while_the_owner_works(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    ledger = Ledger()
    store = EmbeddedStore(SqliteJournal(str(path)), SYSTEM_CLOCK, StillTimers(), snapshot_every=50)
    worker = Worker(store, ledger, "w")
    worker.prepare()
    with python(READ, path) as reader:
        before: list[list[int]] = []
        for _ in range(5):
            for _ in range(20):
                worker.step()
            worker.flush()
            size = path.stat().st_size
            rows = rows_of(reader)
            assert rows[: len(before)] == before
            assert rows[-1][1] == store.health().last_seq
            assert path.stat().st_size == size, "the reader has moved the log into the file"
            before = rows
        assert reader.stdin is not None
        reader.stdin.close()
        assert reader.wait(30) == 0
    store.close()
    assert ledger.findings.all() == []


def rows_of(reader: "subprocess.Popen[str]") -> list[list[int]]:
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write("\n")
    reader.stdin.flush()
    rows: list[list[int]] = json.loads(reader.stdout.readline())
    return rows


def test_a_reader_can_write_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    store = EmbeddedStore(SqliteJournal(str(path)), SYSTEM_CLOCK, StillTimers())
    Worker(store, Ledger(), "w").prepare()
    reader = apsw.Connection(f"file:{path}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("DELETE FROM log")
    reader.close()
    store.close()
