"""Power cuts at any step: what was acknowledged exists, once and complete. And the check finds planted defects."""

import pytest

from tests.crash import planted
from tests.crash.ledger import Ledger
from tests.crash.power import MACHINES, Planting, Tally, one_cycle
from tests.crash.workload import Worker
from unibus.errors import StoreDamaged

CYCLES = {"sqlite": 30, "jsonfile": 5}  # The long campaign is in tests/soak.
"""About ten seconds and a few; `make soak` runs for minutes, with other seeds."""

kinds = pytest.mark.parametrize("kind", MACHINES)


@kinds
def test_what_was_answered_survives_power_cuts_kills_and_recoveries_that_are_cut(kind: str) -> None:
    tally = Tally()
    for number in range(CYCLES[kind]):
        tally.add(one_cycle(f"cut-{number}", kind=MACHINES[kind]))
    assert tally.findings.all() == []
    assert tally.counts["cuts"] > CYCLES[kind]
    assert tally.counts["acked"] > 50 * CYCLES[kind]
    assert tally.counts["completed"] > 50 * CYCLES[kind]


@kinds
def test_a_cycle_follows_from_its_seed(kind: str) -> None:
    assert one_cycle("again", kind=MACHINES[kind]).counts == one_cycle("again", kind=MACHINES[kind]).counts


@kinds
@pytest.mark.parametrize("seed", range(10))
def test_a_reader_of_history_finds_its_place_again(seed: int, kind: str) -> None:
    machine = MACHINES[kind](f"cursor-{seed}")
    store = machine.start()
    worker = Worker(store, machine.ledger, "w")
    worker.prepare()
    store.history.move_cursor("reader", 3)
    store.history.move_cursor("reader", 5)
    machine.disk.cut()
    machine.release(store)
    store = machine.start()
    assert store.history.cursor("reader") == 5
    store.close()


def found_in(seed: str, planting: Planting | None, lying_sync: bool, kind: str) -> Ledger:
    try:
        return one_cycle(seed, planting, lying_sync=lying_sync, kind=MACHINES[kind])
    except StoreDamaged as error:
        # What is broken enough is found by the store itself.
        ledger = Ledger()
        ledger.findings.wrong.append(str(error))
        return ledger


@kinds
def test_a_disk_that_lies_about_syncs_is_found_to_lose_messages(kind: str) -> None:
    for number in range(30):
        findings = found_in(f"lying-{number}", None, True, kind).findings
        # Among many files so much is missing then that the store finds it by itself.
        if findings.lost or (kind == "jsonfile" and findings.wrong):
            return
    raise AssertionError("nothing was lost on a disk that makes nothing durable")


@pytest.mark.parametrize(
    ("planting", "found", "kind"),
    [
        (planted.AnswersFirst, "lost", "sqlite"),
        (planted.NeverSyncs, "lost", "sqlite"),
        (planted.TearsGroups, "half", "sqlite"),
        (planted.KeepsTheGone, "doubled", "sqlite"),
        (planted.MixesBodies, "wrong", "sqlite"),
        # The audit is the same; what has to be shown again is what the disk and the files have to do with.
        (planted.NeverSyncs, "lost", "jsonfile"),
        (planted.KeepsTheGone, "doubled", "jsonfile"),
    ],
)
@pytest.mark.unchecked
def test_a_planted_bug_is_found(planting: Planting, found: str, kind: str) -> None:
    for number in range(40):
        if getattr(found_in(f"planted-{number}", planting, False, kind).findings, found):
            return
    raise AssertionError(f"{planting} was not found")


@pytest.mark.parametrize("seed", ["decade.1210"])
def test_what_a_campaign_has_found(seed: str) -> None:
    """decade.1210: a scheduled message gets its place, and is dead-lettered while a snapshot is being written."""
    assert one_cycle(seed).findings.all() == []
