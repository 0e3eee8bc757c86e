"""Which handshake runs, waits or is cut, with handshakes that do nothing; and how many files there are for them."""

import logging

import pytest

from unibus.config.settings import ServerSettings
from unibus.endpoints.transport import open_files
from unibus.endpoints.transport.connections import Connections
from unibus.endpoints.transport.handshakes import OLD_TICKS, Handshakes


class Fake:
    """Records what happens to it. One of a closed port ends as soon as it runs."""

    def __init__(self, among: Handshakes, port_is_open: bool = True) -> None:
        self.began = -1
        self.events: list[str] = []
        self._among = among
        self._port_is_open = port_is_open

    def run(self) -> None:
        self.events.append("run")
        if not self._port_is_open:
            self._among.discard(self)

    def hold(self) -> None:
        self.events.append("hold")

    def cut(self) -> None:
        self.events.append("cut")


class Rig:
    def __init__(self, most: int) -> None:
        self.cut = 0
        self.all = Handshakes(most, self._count)

    def _count(self) -> None:
        self.cut += 1

    def add(self, count: int = 1) -> list[Fake]:
        made = [Fake(self.all) for _ in range(count)]
        for each in made:
            self.all.add(each)
        return made


def events(fakes: list[Fake]) -> list[str]:
    return ["-".join(each.events) for each in fakes]


def test_a_burst_waits_for_its_turn_and_none_is_cut() -> None:
    rig = Rig(2)
    fakes = rig.add(5)
    assert (events(fakes), len(rig.all)) == (["run", "run", "hold", "hold", "hold"], 2)
    rig.all.sweep(OLD_TICKS - 1)
    for each in fakes:
        rig.all.discard(each)
    assert (rig.cut, len(rig.all)) == (0, 0)
    assert events(fakes[:2]) == ["run", "run"]


def test_the_latest_that_waits_is_next() -> None:
    rig = Rig(1)
    first, waits, latest = rig.add(3)
    rig.all.discard(first)
    assert events([waits, latest]) == ["hold", "hold-run"]


def test_the_oldest_is_cut_for_a_new_one_when_it_is_old() -> None:
    rig = Rig(2)
    held = rig.add(2)
    rig.all.sweep(OLD_TICKS)
    assert (events(held), rig.cut) == (["run", "run"], 0)  # None waits: they may continue.
    healthy = rig.add()
    assert (events(held), events(healthy), rig.cut) == (["run-cut", "run"], ["run"], 1)
    rig.all.discard(held[0])  # Its task has ended.
    assert len(rig.all) == 2


def test_a_sweep_cuts_as_many_as_wait() -> None:
    rig = Rig(3)
    held, waiting = rig.add(3), rig.add(2)
    rig.all.sweep(OLD_TICKS)
    assert (events(held), events(waiting)) == (["run-cut", "run-cut", "run"], ["hold-run", "hold-run"])
    assert (len(rig.all), rig.cut) == (3, 2)
    assert [each.began for each in waiting] == [OLD_TICKS, OLD_TICKS]


def test_many_that_end_at_once_do_not_nest() -> None:
    rig = Rig(1)
    [held] = rig.add()
    for _ in range(5_000):
        rig.all.add(Fake(rig.all, port_is_open=False))
    rig.all.discard(held)
    assert len(rig.all) == 0


# Connections


class Silent:
    def __init__(self, connections: Connections) -> None:
        self.since = connections.tick
        self.is_closed = False
        self._connections = connections
        connections.add_silent(self)

    def sweep(self, tick: int) -> None:
        """Its deadline is far away."""

    def shutdown(self) -> None:
        self.abort()

    def abort(self) -> None:
        self.is_closed = True
        self._connections.discard_silent(self)


def test_the_oldest_silent_connection_is_cut_for_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    connections = Connections(ServerSettings(connections_max=3), set())
    silent = [Silent(connections) for _ in range(3)]
    assert not connections.has_room()
    for _ in range(OLD_TICKS):
        connections.sweep()
    assert [connections.has_room() for _ in range(2)] == [True, True]
    assert [each.is_closed for each in silent] == [True, False, False]
    Silent(connections)
    assert connections.has_room()
    assert (connections.cut, [each.is_closed for each in silent]) == (2, [True, True, False])
    connections.sweep()
    connections.sweep()
    assert [each.getMessage() for each in caplog.records] == [
        "idle connections closed for new ones: connections_max is reached"
    ]


# Files


class Limits:
    """Those of a process, as `resource` has them."""

    RLIMIT_NOFILE = 7
    RLIM_INFINITY = -1

    def __init__(self, soft: int, hard: int, refuses: bool = False) -> None:
        self.now = (soft, hard)
        self._refuses = refuses

    def getrlimit(self, kind: int) -> tuple[int, int]:
        return self.now

    def setrlimit(self, kind: int, limits: tuple[int, int]) -> None:
        if self._refuses:
            raise ValueError("current limit exceeds maximum limit")
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "raised", "allowed"),
    [
        (1_024, 524_288, 10_000, 10_128, 10_000),
        (1_024, -1, 10_000, 10_128, 10_000),
        (1_024, 4_096, 10_000, 4_096, 3_968),
        (20_000, 20_000, 10_000, 20_000, 10_000),
        (-1, -1, 10_000, -1, 10_000),
        (-1, -1, 0, -1, 0),
        (1_024, 4_096, 0, 1_024, 896),
        (64, 64, 10_000, 64, 32),
    ],
)
def test_files_bound_connections(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, wanted: int, raised: int, allowed: int
) -> None:
    limits = Limits(soft, hard)
    monkeypatch.setattr(open_files, "resource", limits)
    open_files.raise_limit(wanted)
    assert limits.now == (raised, hard)
    assert open_files.connections_allowed(wanted) == allowed


def test_a_limit_that_cannot_be_raised_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "resource", Limits(1_024, 4_096, refuses=True))
    open_files.raise_limit(10_000)
    assert open_files.connections_allowed(10_000) == 896
