"""Every contender really does the work that it is timed for, and the trial would tell if it did not.

A server that is missing is a failure, not a test left out: `make test` installs it, or says how.
"""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks.durable_bus import Ours
from benchmarks.durable_load import BATCH, BODY, Opened, Phase, measured
from benchmarks.durable_peers import LIMIT, PEERS, Lite, RawSQLite, raw_connection, raw_insert
from benchmarks.redis_server import NoServer, executable, running

ROOT = Path(__file__).parents[3]
CONTENDERS: dict[str, Opened] = {**PEERS, "limit": LIMIT, "ours": Ours.on_sqlite, "in memory": Ours.in_memory}
LONG = 3_600.0

each_contender = pytest.mark.parametrize("opened", CONTENDERS.values(), ids=CONTENDERS)


@each_contender
async def test_what_is_sent_waits_until_it_is_received(opened: Opened, tmp_path: Path) -> None:
    async with opened(tmp_path) as contender:
        await contender.send_each(Phase(7, LONG))
        assert await contender.waiting() == 7
        await contender.send_batches(Phase(BATCH, LONG))
        assert await contender.waiting() == BATCH + 7
        await contender.receive(Phase(BATCH + 7, LONG))
        assert await contender.waiting() == 0


@each_contender
async def test_all_phases_give_a_rate(opened: Opened, tmp_path: Path) -> None:
    rates = await measured(opened, tmp_path, BATCH, nullcontext())
    assert min(rates.send_each, rates.send_batches, rates.receive) > 0


@pytest.mark.parametrize("name", ["litequeue", "persist-queue", "limit", "ours"])
async def test_what_was_sent_is_still_there_after_a_restart(name: str, tmp_path: Path) -> None:
    opened = CONTENDERS[name]
    async with opened(tmp_path) as contender:
        await contender.send_batches(Phase(BATCH, LONG))
    async with opened(tmp_path) as contender:
        assert await contender.waiting() == BATCH


async def test_redis_has_written_to_its_log_before_it_answers(tmp_path: Path) -> None:
    async with PEERS["redis"](tmp_path) as contender:
        await contender.send_each(Phase(3, LONG))
        assert _logged(tmp_path) == 3


def _logged(folder: Path) -> int:
    return sum(path.read_bytes().count(BODY) for path in folder.rglob("*.aof"))


async def test_litequeue_and_the_limit_sync_every_commit(tmp_path: Path) -> None:
    async with Lite.opened(tmp_path) as lite, RawSQLite.opened(tmp_path) as raw:
        await lite.send_each(Phase(1, LONG))
        await lite.receive(Phase(1, LONG))
        full = 2
        assert lite._queue.conn.execute("PRAGMA synchronous").fetchone()[0] == full
        assert raw._connection.execute("PRAGMA synchronous").fetchall() == [(full,)]
        assert raw._connection.execute("PRAGMA journal_mode").fetchall() == [("wal",)]


def test_raw_rows_are_whole(tmp_path: Path) -> None:
    connection = raw_connection(tmp_path)
    raw_insert(connection, [BODY] * 3)
    assert connection.execute("SELECT body FROM queue").fetchall() == [(BODY,)] * 3
    connection.close()


def test_two_servers_do_not_meet(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with running(first) as port, running(second) as other:
        assert port != other


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").write_text("not a folder")
    with pytest.raises(NoServer, match=r"did not start: .*appendonly"), running(tmp_path):
        pass


def test_without_a_server_and_without_a_way_to_get_one_the_hint_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoServer, match="as root: apt-get install redis-server"):
        executable()


def test_make_gives_the_same_hint_before_it_runs_the_tests() -> None:
    command = [sys.executable, "tools/prepare.py", "servers"]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": ""}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "redis-server is missing" in done.stderr
    assert "as root: apt-get install redis-server" in done.stderr
