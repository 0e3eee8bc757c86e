"""Power cuts at any step: what was answered is there, once and whole. And the check finds what it has to find."""

import pytest

from tests.crash import planted
from tests.crash.ledger import Ledger
from tests.crash.power import Machine, Planting, Tally, one_cycle
from tests.crash.workload import Worker
from unibus.errors import StoreDamaged

CYCLES = 60
"""About ten seconds; `make soak` goes on for minutes, with other seeds."""


def test_what_was_answered_survives_power_cuts_kills_and_recoveries_that_are_cut() -> None:
    tally = Tally()
    for number in range(CYCLES):
        tally.add(one_cycle(f"cut-{number}"))
    assert tally.findings.all() == []
    assert tally.counts["cuts"] > CYCLES
    assert tally.counts["acked"] > 50 * CYCLES
    assert tally.counts["completed"] > 50 * CYCLES


def test_a_cycle_follows_from_its_seed() -> None:
    assert one_cycle("again").counts == one_cycle("again").counts


@pytest.mark.parametrize("seed", range(10))
def test_a_reader_of_history_finds_its_place_again(seed: int) -> None:
    machine = Machine(f"cursor-{seed}")
    store = machine.start()
    worker = Worker(store, machine.ledger, "w")
    worker.prepare()
    store.history.move_cursor("reader", 3)
    store.history.move_cursor("reader", 5)
    machine.disk.cut()
    machine.let_go(store)
    store = machine.start()
    assert store.history.cursor("reader") == 5
    store.close()


def found_in(seed: str, planting: Planting | None, lying_sync: bool) -> Ledger:
    try:
        return one_cycle(seed, planting, lying_sync=lying_sync)
    except StoreDamaged as error:
        # What is broken enough is found by the store itself.
        ledger = Ledger()
        ledger.findings.wrong.append(str(error))
        return ledger


def test_a_disk_that_lies_about_syncs_is_found_to_lose_messages() -> None:
    for number in range(30):
        if found_in(f"lying-{number}", None, True).findings.lost:
            return
    raise AssertionError("nothing was lost on a disk that makes nothing durable")


@pytest.mark.parametrize(
    ("planting", "kind"),
    [
        (planted.AnswersFirst, "lost"),
        (planted.NeverSyncs, "lost"),
        (planted.TearsGroups, "half"),
        (planted.KeepsTheGone, "doubled"),
        (planted.MixesBodies, "wrong"),
    ],
)
def test_a_planted_bug_is_found(planting: Planting, kind: str) -> None:
    for number in range(40):
        if getattr(found_in(f"planted-{number}", planting, False).findings, kind):
            return
    raise AssertionError(f"{planting} was not found")


@pytest.mark.parametrize("seed", ["decade.1210"])
def test_what_a_campaign_has_found(seed: str) -> None:
    """decade.1210: a scheduled message gets its place, and is dead-lettered while a snapshot is being written."""
    assert one_cycle(seed).findings.all() == []
