"""One owner for one store: the lock, the words for people, and the end of a process that held it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unibus.errors import StoreBusy, StoreUnavailable
from unibus.stores.owner import Owner


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "bus.db")


def test_whoever_comes_second_is_told_who_was_first(path: str) -> None:
    owner = Owner(path)
    with pytest.raises(StoreBusy) as caught:
        Owner(path)
    assert f"process {os.getpid()}" in str(caught.value)
    assert "bus.db" in str(caught.value)
    assert caught.value.retryable
    owner.release()


def test_released_it_is_free_and_the_file_stays(path: str) -> None:
    owner = Owner(path)
    assert json.loads(Path(f"{path}.lock").read_text())["pid"] == os.getpid()
    owner.release()
    owner.release()
    # Removed, two processes could each lock a file of that name.
    assert Path(f"{path}.lock").read_text() == ""
    Owner(path).release()


def test_what_is_no_owners_text_is_only_another_process(path: str) -> None:
    owner = Owner(path)
    for text in ("", "not json", "[]", '{"pid": 1}'):
        Path(f"{path}.lock").write_text(text)
        with pytest.raises(StoreBusy, match="another process"):
            Owner(path)
    owner.release()


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
from unibus.stores.owner import Owner
owner = Owner(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ending", ["killed", "ended"])
def test_the_end_of_a_process_is_the_end_of_its_lock(path: str, ending: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
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
