"""Who holds the lock of a store: found without taking it, and without keeping a program from starting."""

import fcntl
import json
import os
import threading
from pathlib import Path

import pytest

from tests.unit.stores.test_owner import holding
from unibus.errors import StoreBusy
from unibus.stores.files import lock_holder, owner
from unibus.stores.files.lock_holder import is_held_by, server_url
from unibus.stores.files.owner import Owner


@pytest.fixture(params=["table", "probe"])
def path(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By the table of the kernel, and as on a system that has none."""
    if request.param == "probe":
        monkeypatch.setattr(lock_holder, "TABLE", str(tmp_path / "none"))
    return str(tmp_path / "bus.db")


@pytest.mark.processes
def test_only_the_process_that_has_the_lock_holds_it(path: str) -> None:
    assert not is_held_by(path, os.getpid())
    with holding(path) as holder:
        assert is_held_by(path, holder.pid)
        assert not is_held_by(path, os.getpid())
        assert not is_held_by(path, 2**40)
        holder.kill()
    assert not is_held_by(path, holder.pid)


def test_a_process_that_released_it_does_not_hold_it(path: str) -> None:
    held = Owner(path)
    assert is_held_by(path, os.getpid())
    held.release()
    assert not is_held_by(path, os.getpid())


@pytest.mark.processes
def test_the_table_counts_and_not_the_text(tmp_path: Path) -> None:
    path = str(tmp_path / "bus.db")
    with holding(path) as holder:
        Path(f"{path}.lock").write_text(json.dumps({"pid": os.getpid()}))
        assert not is_held_by(path, os.getpid())
        holder.kill()


@pytest.mark.parametrize("text", ["", '{"pid": 4194999}'], ids=["none", "of a process that ended"])
def test_a_program_that_starts_while_a_command_looks_gets_the_lock(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "bus.db")
    Path(f"{path}.lock").write_text(text)
    probe = os.open(f"{path}.lock", os.O_RDONLY)
    fcntl.flock(probe, fcntl.LOCK_SH)
    tried = threading.Event()
    genuine = owner._lock

    def locked(file: int) -> bool:
        found = genuine(file)
        if not found:
            os.close(probe)  # The command has seen enough.
            tried.set()
        return found

    monkeypatch.setattr(owner, "_lock", locked)
    Owner(path).release()
    assert tried.is_set()


def serve_json(path: str, **found: object) -> None:
    Path(f"{path}.serve.json").write_text(json.dumps(found))


@pytest.mark.processes
def test_a_busy_store_names_the_server_that_owns_it(path: str) -> None:
    with holding(path) as holder:
        serve_json(path, pid=holder.pid, url="http://127.0.0.1:5300")
        with pytest.raises(StoreBusy, match=r"in use by the server http://127\.0\.0\.1:5300, process") as caught:
            Owner(path)
        assert "unibus server stop" in caught.value.hint
        serve_json(path, pid=os.getpid(), url="http://127.0.0.1:5300")  # Left behind by another one.
        with pytest.raises(StoreBusy, match="in use by process") as caught:
            Owner(path)
        assert "unibus serve FILE" in caught.value.hint
        holder.kill()


@pytest.mark.parametrize("found", [{}, {"pid": "x"}, {"url": 7}, {"url": "http://\x1b[31m"}, {"url": "h" * 500}])
def test_a_damaged_file_names_no_server(path: str, found: dict[str, object]) -> None:
    held = Owner(path)
    serve_json(path, **{"pid": os.getpid(), "url": "http://x", **found} if found else {})
    assert server_url(f"{path}.lock") == ""
    held.release()
