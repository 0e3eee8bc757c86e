"""A file system that is really full: whoever waits is told, and with room again all that was answered is there."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.audit import audit
from tests.crash.child import open_journal
from tests.crash.kills import BYTES_MAX
from tests.crash.ledger import Ledger
from tests.crash.power import StillTimers
from tests.crash.workload import Worker
from unibus.errors import BusError, StoreBusy, StoreFailed, StoreUnavailable
from unibus.stores.embedded import EmbeddedStore
from unibus.sync import MessageBus
from unibus.testing.virtual_clock import VirtualClock


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte. The same on a simulated disk is in test_faults.py, for everybody."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.name != "posix" or os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def opened(path: Path) -> EmbeddedStore:
    journal = open_journal(str(path), BYTES_MAX)
    try:
        return EmbeddedStore(journal, VirtualClock(), StillTimers(), snapshot_every=100)
    except BaseException:
        journal.close()
        raise


def fill(worker: Worker) -> None:
    while True:
        worker.send_many()
        worker.flush()


@pytest.mark.parametrize(("name", "reason"), [("bus.db", "full"), ("bus.json", "No space left")])
def test_a_full_file_system_stops_the_store_and_loses_nothing(small: Path, name: str, reason: str) -> None:
    ledger = Ledger()
    store = opened(small / name)
    worker = Worker(store, ledger, "w")
    worker.prepare()
    with pytest.raises(StoreFailed, match=rf"{name} could not be written"):
        fill(worker)
    assert reason in store.health().problem
    with pytest.raises(StoreFailed):
        worker.send()
    store.close()
    assert ledger.counts["acked"] > 10

    # Still full: opening works or says no, and breaks nothing.
    try:
        opened(small / name).close()
    except BusError as error:
        assert name in str(error)  # noqa: PT017

    subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
    store = opened(small / name)
    audit(store, ledger, len(ledger.ops))
    assert ledger.findings.all() == []
    Worker(store, ledger, "v").send_durably()
    store.close()


def fill_with(path: Path) -> None:
    with open(path, "wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))


@pytest.mark.parametrize("scheme", ["sqlite", "jsonfile"])
def test_a_store_that_a_full_disk_could_not_make_is_made_once_there_is_room(small: Path, scheme: str) -> None:
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
