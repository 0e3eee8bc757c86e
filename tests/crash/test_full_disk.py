"""A file system that is really full: sends are refused, deliveries go on, and with space again everything does.

The same on a simulated disk, at every write, is in test_faults.py, for everybody.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.audit import audit
from tests.crash.child import open_journal
from tests.crash.full_child import BEFORE, BODY, fill, send_until_full
from tests.crash.kills import BYTES_MAX
from tests.crash.ledger import Ledger
from tests.crash.power import StillTimers
from tests.crash.workload import Worker
from unibus.errors import BusError, StoreBusy, StoreFailed, StoreFull, StoreUnavailable
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.opening import open_store
from unibus.sync import MessageBus
from unibus.testing.clock.virtual_clock import VirtualClock

SMALL = "16M"


def run_as_root(*command: str) -> None:
    """Where mounting is not allowed there is no test; but a build that is root must not leave it out."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
        return
    except (OSError, subprocess.CalledProcessError) as error:
        problem = f"{error}: {getattr(error, 'stderr', '')}"
    if os.environ.get("CI"):
        pytest.fail(problem)
    pytest.skip(problem)


def mounted(folder: Path, *arguments: str) -> None:
    run_as_root("mount", *arguments, str(folder))


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted(folder, "-t", "tmpfs", "-o", "size=1m", "tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(params=["tmpfs", "ext4"])
def small(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of some megabytes: one in memory, and one that allocates late and keeps a journal."""
    folder = tmp_path / "small"
    folder.mkdir()
    if request.param == "tmpfs":
        mounted(folder, "-t", "tmpfs", "-o", f"size={SMALL.lower()}", "tmpfs")
    else:
        image = tmp_path / "image"
        run_as_root("truncate", "-s", SMALL, str(image))
        run_as_root("mkfs.ext4", "-q", "-m", "0", str(image))
        mounted(folder, "-o", "loop", str(image))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(params=["sqlite", "jsonfile"])
def url(small: Path, request: pytest.FixtureRequest) -> str:
    return f"{request.param}:///{small}/bus"


def opened(url: str, clock: VirtualClock) -> MessageBus:
    return MessageBus(open_store(url, clock, clock.timers(lambda: True)), clock=clock)


def receive_all(bus: MessageBus, filler: Path | None = None) -> list[int]:
    """One by one: the worst for a reserve. With a filler another program takes whatever is freed."""
    numbers = []
    while found := bus.receive_batch("orders", 1, timeout=0):
        for message in found:
            assert message.body[1] == BODY
            numbers.append(message.body[0])
            if filler is not None:
                fill(str(filler))
            message.complete()
    return numbers


def check_works_again(bus: MessageBus, clock: VirtualClock, filler: Path) -> None:
    filler.unlink()
    clock.advance(1.0)
    assert bus.health_check().status == "healthy"
    bus.send("orders", [-1, BODY])


def test_sends_are_refused_and_deliveries_go_on(
    url: str, small: Path, virtual_clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "unibus")
    filler = small / "filler"
    bus = opened(url, virtual_clock)
    for number in range(BEFORE):
        bus.send("orders", [number, BODY])
    bus.send("failed", 1)
    for message in bus.receive_batch("failed", 1, timeout=0):
        message.dead_letter("why")
    assert bus.health_check().status == "healthy"
    fill(str(filler))
    stored = send_until_full(bus, BEFORE)
    health = bus.health_check()
    assert (health.status, health.ok) == ("degraded", True)
    assert "full" in health.problem
    with pytest.raises(StoreFull):
        bus.create_queue("more")
    with pytest.raises(StoreFull):
        bus.dead_letter_queue().retry_all()
    virtual_clock.advance(5.0)
    with pytest.raises(StoreFull):
        bus.send("orders", "still full")

    assert receive_all(bus) == list(range(stored))
    check_works_again(bus, virtual_clock, filler)
    bus.close()
    told = [record for record in caplog.records if "full" in record.getMessage()]
    assert [record.levelname for record in told] == ["WARNING", "INFO"]

    with opened(url, virtual_clock) as bus:
        assert receive_all(bus) == [-1]


def test_another_program_that_takes_whatever_is_freed_does_not_stop_deliveries(
    url: str, small: Path, virtual_clock: VirtualClock
) -> None:
    filler = small / "filler"
    bus = opened(url, virtual_clock)
    for number in range(20):  # A limit: each piece of the reserve serves a few groups only then.
        bus.send("orders", [number, BODY])
    fill(str(filler))
    stored = send_until_full(bus, 20)
    assert receive_all(bus, filler) == list(range(stored))
    check_works_again(bus, virtual_clock, filler)
    bus.close()


def test_a_disk_that_is_filled_in_a_moment_leaves_enough_for_a_checkpoint(
    tmp_path: Path, virtual_clock: VirtualClock
) -> None:
    """With much in the write-ahead log that the file has no pages for yet: more than the reserve."""
    folder = tmp_path / "wide"
    folder.mkdir()
    mounted(folder, "-t", "tmpfs", "-o", "size=80m", "tmpfs")
    try:
        bus = opened(f"sqlite:///{folder}/bus", virtual_clock)
        for first in range(0, 3_000, 50):
            bus.send_many("orders", [[number, BODY] for number in range(first, first + 50)])
        fill(str(folder / "filler"))
        stored = send_until_full(bus, 3_000)
        assert receive_all(bus) == list(range(stored))
        check_works_again(bus, virtual_clock, folder / "filler")
        bus.close()
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_store_that_was_killed_opens_full(url: str, small: Path, virtual_clock: VirtualClock) -> None:
    filler = small / "filler"
    child = subprocess.run(
        [sys.executable, "-m", "tests.crash.full_child", url, str(filler)], capture_output=True, text=True, timeout=60
    )
    assert child.returncode == -9, child.stderr
    stored = int(child.stdout)
    assert stored >= BEFORE

    bus = opened(url, virtual_clock)
    assert bus.health_check().status == "degraded"
    with pytest.raises(StoreFull):
        bus.send("orders", "nothing")
    assert receive_all(bus) == list(range(stored))
    bus.close()  # Still full: nothing that was settled is redelivered.
    bus = opened(url, virtual_clock)
    assert receive_all(bus) == []
    check_works_again(bus, virtual_clock, filler)
    bus.close()


def test_a_first_start_on_a_full_disk_is_refused_by_name(url: str, small: Path) -> None:
    filler, path = small / "filler", small / "bus"
    if url.startswith("jsonfile"):
        path.mkdir()
        path = path / "state.json"
    Path(f"{path}.lock").write_text("{}")  # Of an owner of before: what comes after it finds no space.
    fill(str(filler))
    with pytest.raises(BusError, match="bus"):
        MessageBus(url)
    filler.unlink()
    with MessageBus(url) as bus:
        bus.send("orders", 1)


def journal_store(path: Path) -> EmbeddedStore:
    journal = open_journal(str(path), BYTES_MAX)
    try:
        return EmbeddedStore(journal, VirtualClock(), StillTimers(), snapshot_every=100)
    except BaseException:
        journal.close()
        raise


def fill_up(worker: Worker) -> None:
    while True:
        worker.send_many()
        worker.flush()


@pytest.mark.parametrize("name", ["bus.db", "bus.json"])
def test_without_a_reserve_the_store_stops_and_loses_nothing(tiny: Path, name: str) -> None:
    ledger = Ledger()
    store = journal_store(tiny / name)
    worker = Worker(store, ledger, "w")
    worker.prepare()
    with pytest.raises(StoreFull, match=rf"{name} could not be written.*nothing of the last calls was stored"):
        fill_up(worker)
    assert not store.health().ok
    with pytest.raises(StoreFailed):
        worker.send()
    store.close()
    assert ledger.counts["acked"] > 10

    # Still full: opening works or is refused, and breaks nothing.
    try:
        journal_store(tiny / name).close()
    except BusError as error:
        assert name in str(error)  # noqa: PT017

    subprocess.run(["mount", "-o", "remount,size=8m", str(tiny)], check=True)
    store = journal_store(tiny / name)
    audit(store, ledger, len(ledger.ops))
    assert ledger.findings.all() == []
    Worker(store, ledger, "v").send_durably()
    store.close()


def fill_with(path: Path) -> None:
    with open(path, "wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))


@pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])
def test_a_store_that_a_full_disk_could_not_create_is_created_once_there_is_space(small: Path, scheme: str) -> None:
    with pytest.raises(OSError, match="No space"):
        fill_with(small / "ballast")
    for _ in range(2):  # The first error keeps no lock.
        with pytest.raises(StoreUnavailable) as caught:
            MessageBus(f"{scheme}:///{small}/bus")
        assert not isinstance(caught.value, StoreBusy)
        assert caught.value.__cause__ is not None
        assert "free space" in caught.value.hint
    (small / "ballast").unlink()
    with MessageBus(f"{scheme}:///{small}/bus") as bus:
        assert bus.send("q", 1).durability == "D2"
