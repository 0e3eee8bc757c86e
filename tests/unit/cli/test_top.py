"""`unibus top` watches a store beside the process that owns it."""

import json
import os
import signal
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from tests.unit.cli.owners import owner_of
from unibus.cli.connection.entity_rows import TopRow, TopWatch
from unibus.cli.entities.top import TopOrder, arranged, table
from unibus.core.lifecycle.events import Event
from unibus.stores.seam.store import EntityInfo
from unibus.sync import MessageBus


def row(name: str, waiting: int = 0, dead: int = 0, oldest_s: float | None = None, rate: float | None = None) -> TopRow:
    return TopRow(name, "queue", waiting, 0, 0, 0, dead, oldest_s, rate, rate)


def test_one_look_through_a_pipe(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send_many("orders", range(4))
        bus.send("orders", "later", delay=3_600)
        bus.receive_batch("orders", 1, timeout=0)[0].dead_letter("Broken")
        bus.receive_batch("orders", 1, timeout=0)
        bus.send_many("empty", [1])
        bus.receive_batch("empty", 1, timeout=0)[0].complete()
    orders, empty = shell.records("top", "--once")
    counts = {name: orders[name] for name in ("name", "kind", "waiting", "in_flight", "scheduled", "deferred", "dead")}
    assert counts == {
        "name": "orders",
        "kind": "queue",
        "waiting": 2,
        "in_flight": 1,
        "scheduled": 1,
        "deferred": 0,
        "dead": 1,
    }
    assert orders["oldest_s"] >= 0
    assert (orders["in_per_s"], empty["oldest_s"]) == (None, None)


def test_rates_beside_a_process_that_writes(shell: Any) -> None:
    with owner_of(shell.folder / "unibus.db") as owner:
        owner("write")
        watching = shell.start("top", "--every", "50ms")
        try:
            while True:
                look = json.loads(watching.stdout.readline())
                assert look["name"] == "busy"
                if look["in_per_s"] and look["out_per_s"]:
                    break
        finally:
            watching.send_signal(signal.SIGINT)
            _, errors = watching.communicate(timeout=60)
        assert (watching.returncode, errors) == (128 + signal.SIGINT, b"")


class Looks:
    """A view with prepared answers: `came` and `went` events are new at the next look."""

    def __init__(self) -> None:
        self.oldest, self.last = 1, 20
        self.came = self.went = 0

    def moment(self) -> AbstractContextManager[None]:
        return nullcontext()

    def bounds(self) -> tuple[int, int]:
        return self.oldest, self.last + self.came + self.went

    def entities(self) -> list[EntityInfo]:
        return [EntityInfo("q", "queue"), EntityInfo("quiet", "queue")]

    def events_after(self, seq: int, limit: int, kinds: Collection[str]) -> tuple[list[Event], int]:
        assert (seq, kinds) == (self.last, {"sent", "published", "copied", "activated", "completed"})
        new = ["sent"] * self.came + ["completed"] * self.went
        self.last += len(new)
        self.came = self.went = 0
        return [Event(seq + at, 0, "local", "q", kind, at) for at, kind in enumerate(new, 1)], self.last


def test_a_rate_is_only_told_of_what_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("unibus.cli.entities.top.time.monotonic", lambda: now_s)
    looks = Looks()
    watch = TopWatch(looks)  # type: ignore[arg-type]
    assert [(each.in_per_s, each.out_per_s) for each in watch.look()] == [(None, None)] * 2
    now_s += 2
    looks.came, looks.went = 20, 4
    assert [(each.in_per_s, each.out_per_s) for each in watch.look()] == [(10.0, 2.0), (0.0, 0.0)]
    now_s += 2
    looks.oldest, looks.last = 50, 60  # Events were pruned before they were counted, so the rates are unknown.
    assert [(each.in_per_s, each.out_per_s) for each in watch.look()] == [(None, None)] * 2


def test_the_order() -> None:
    rows = [row("b", 1, 2, 3.0, 4.0), row("a", 1, 0, None, None), row("c", 5, 1, 9.0, 1.0)]
    assert {order: "".join(each.name for each in arranged(rows, order)) for order in TopOrder} == {
        TopOrder.WAITING: "cab",
        TopOrder.DEAD: "bca",
        TopOrder.OLDEST: "cba",
        TopOrder.RATE: "bca",
    }


def test_the_table_fits_80_columns() -> None:
    busy = TopRow(
        "a.long.name[bold]/Subscriptions/of.somebody", "subscription", 1_234_567, 99, 1, 2, 9_999, 1.0, 1e5, 0.4
    )
    heading, _, line = table([busy], 80).plain.splitlines()
    assert max(len(heading), len(line)) <= 80
    assert line.split()[1:] == ["1,234,567", "99", "3", "9,999", "1", "s", "100,000", "0.4"]


def test_a_terminal_is_live_until_q(shell: Any, terminal: Any) -> None:
    with owner_of(shell.folder / "unibus.db") as owner:
        owner("fill orders 3")
        watching = terminal("top", "--every", "50ms")
        watching.read_until("by waiting")
        watching.type(b"\x1b[A")  # An arrow has no meaning.
        watching.type(b"d")
        watching.read_until("by dead")
        owner("bury orders Broken")
        watching.read_until("\x1b[1;31m1\x1b[0m")
        watching.type(b"q")
        assert watching.read_all() == 0, watching.output
    assert watching.output.count("\x1b[?1049h") == watching.output.count("\x1b[?1049l") == 1  # The alternate screen.
    assert "orders" in watching.output.rpartition("\x1b[?1049l")[2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_terminal_as_it_was(shell: Any, terminal: Any, number: int) -> None:
    termios = pytest.importorskip("termios")
    shell.records("send", "q", "x")
    watching = terminal("top")
    before = termios.tcgetattr(watching.file)
    watching.read_until("by waiting")
    assert not termios.tcgetattr(watching.file)[3] & termios.ECHO
    os.kill(watching.process.pid, number)
    assert watching.read_all() == 128 + number, watching.output
    assert "Traceback" not in watching.output
    assert termios.tcgetattr(watching.file) == before


@pytest.mark.parametrize("every", ["0", "1ms", "soon", "-1s"])
def test_a_time_that_is_none(shell: Any, every: str) -> None:
    shell.records("send", "q", "x")
    result = shell("top", "--every", every)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--every" in result.stderr
