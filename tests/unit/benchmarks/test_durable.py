"""From rounds to figures: which round counts, growth is relative to the smallest backlog."""

from pathlib import Path

import pytest

from benchmarks.backlog import figures_of
from benchmarks.durable import BESIDE, chosen, figure, handled_figure
from benchmarks.durable_channel import handled
from benchmarks.durable_load import Rates
from benchmarks.durable_peers import PEERS

ROUNDS = [Rates(10.0, 200.0, 30.0), Rates(30.0, 100.0, 20.0), Rates(20.0, 300.0, 10.0)]


def test_the_best_of_every_operation_counts() -> None:
    choice = BESIDE[""][1]
    assert chosen(choice, ROUNDS) == Rates(30.0, 300.0, 30.0)


def test_beside_a_busy_thread_luck_does_not_count() -> None:
    choice = BESIDE[", busy"][1]
    assert chosen(choice, ROUNDS) == Rates(20.0, 200.0, 20.0)


def test_ours_stands_beside_every_peer_and_the_limit() -> None:
    best = {name: Rates(1.0, 2.0, 3.0) for name in (*PEERS, "memory")}
    best |= {"ours": Rates(4.0, 6.0, 9.0), "limit": Rates(8.0, 8.0, 8.0)}
    found = figure("send_batches", best, "send, batches")
    assert found.ours == 6.0
    assert found.peers == dict.fromkeys(PEERS, 2.0)
    assert found.ratio_best_peer == pytest.approx(3.0)
    assert found.ratio_limit == pytest.approx(0.75)


def test_handling_stands_beside_a_send_and_a_receive_of_those_who_have_no_handlers() -> None:
    best = {name: Rates(20.0, 2.0, 20.0) for name in PEERS} | {"limit": Rates(40.0, 2.0, 40.0)}
    found = handled_figure(8, 5.0, best)
    assert (found.figure, found.ours) == ("publish → handler, concurrency 8", 5.0)
    assert found.peers == dict.fromkeys(PEERS, pytest.approx(10.0))
    assert found.limit == pytest.approx(20.0)


async def test_every_message_of_a_persistent_channel_is_handled(tmp_path: Path) -> None:
    assert await handled(tmp_path, 2, 300) > 0


def test_growth_is_told_against_the_smallest_backlog() -> None:
    base, small, large = figures_of("send", {1_000: 10.0, 10_000: 12.0, 1_000_000: 20.0})
    assert (base.figure, base.unit, base.ours) == ("send, 1,000 waiting", "ns", 10.0)
    assert (small.figure, small.unit, small.ours) == ("send, 10,000 over 1,000", "times", pytest.approx(1.2))
    assert small.reaches_target is True
    assert large.ours == pytest.approx(2.0)
    assert large.reaches_target is False
