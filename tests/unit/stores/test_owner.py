"""One owner for one store: the lock, the words for people, and the end of a process that held it."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from unibus.errors import StoreBusy, StoreUnavailable
from unibus.stores.files.owner import Owner


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "bus.db")


def test_a_second_owner_in_this_process_is_told_so(path: str) -> None:
    owner = Owner(path)
    with pytest.raises(StoreBusy, match=rf"bus\.db is in use by process {os.getpid()} .*this process has it") as caught:
        Owner(path)
    assert "close" in caught.value.hint
    assert caught.value.retryable
    owner.release()


def test_a_link_leads_to_the_lock_beside_the_real_file(path: str, tmp_path: Path) -> None:
    (tmp_path / "alias.db").symlink_to(path)
    owner = Owner(path)
    with pytest.raises(StoreBusy):
        Owner(str(tmp_path / "alias.db"))
    owner.release()
    assert not (tmp_path / "alias.db.lock").exists()


def test_released_it_is_free_and_the_file_stays(path: str) -> None:
    owner = Owner(path)
    assert json.loads(Path(f"{path}.lock").read_text())["pid"] == os.getpid()
    owner.release()
    owner.release()
    # Removed, two processes could each lock a file of that name.
    assert Path(f"{path}.lock").read_text() == ""
    Owner(path).release()


@pytest.mark.processes
@pytest.mark.parametrize("text", ["", "not json", "[]", '{"pid": 1}'])
def test_a_text_of_no_owner_is_only_another_process(path: str, text: str) -> None:
    with holding(path) as holder:
        Path(f"{path}.lock").write_text(text)
        with pytest.raises(StoreBusy, match="in use by another process"):
            Owner(path)
        holder.kill()


def test_an_old_text_locks_nobody_out(path: str) -> None:
    Path(f"{path}.lock").write_text(json.dumps({"pid": 1, "host": "x", "program": "y" * 5_000}))
    owner = Owner(path)
    assert json.loads(Path(f"{path}.lock").read_text())["pid"] == os.getpid()  # Nothing of the longer one is left.
    owner.release()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        Owner(str(tmp_path / "nowhere" / "bus.db"))
    assert caught.value.hint


def test_two_files_have_two_owners(tmp_path: Path) -> None:
    owners = [Owner(str(tmp_path / name)) for name in ("a.db", "b.db")]
    for owner in owners:
        owner.release()


HOLD = """
import sys
from unibus.stores.files.owner import Owner
owner = Owner(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(path: str) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder


@pytest.mark.processes
@pytest.mark.parametrize("ending", ["killed", "ended"])
def test_the_end_of_a_process_is_the_end_of_its_lock(path: str, ending: str) -> None:
    with holding(path) as holder:
        with pytest.raises(StoreBusy, match=f"process {holder.pid}"):
            Owner(path)
        if ending == "killed":
            holder.kill()
        else:
            holder.communicate(timeout=30)
    Owner(path).release()


def test_released_it_is_free_though_a_child_has_a_copy(path: str) -> None:
    # Whatever was forked meanwhile holds one; so does, for a moment, a program that is just being started.
    owner = Owner(path)
    copy = os.dup(owner._file)
    owner.release()
    try:
        Owner(path).release()
    finally:
        os.close(copy)


# Disks and file systems that refuse


def refusing(number: int) -> Callable[..., int]:
    def refuse(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_the_lock_needs_no_text(path: str, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refusing(errno.ENOSPC))
        owner = Owner(path)
        with pytest.raises(StoreBusy, match="this process"):
            Owner(path)
        owner.release()
    Owner(path).release()


def test_a_file_system_without_locks_is_not_another_process(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refusing(errno.ENOTSUP))
        with pytest.raises(StoreUnavailable, match="cannot lock") as caught:
            Owner(path)
        assert not isinstance(caught.value, StoreBusy)
    Owner(path).release()


def test_a_lock_file_that_is_a_link_is_not_written_to(path: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    Path(f"{path}.lock").symlink_to(victim)
    with pytest.raises(StoreUnavailable):
        Owner(path)
    assert victim.read_text() == "precious"
