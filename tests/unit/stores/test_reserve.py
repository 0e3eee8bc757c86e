"""Space that is kept for a full disk: really there, given back in pieces, and made again."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from unibus.errors import StoreBusy
from unibus.stores.files import reserve as module
from unibus.stores.files.reserve import PIECES, Reserve
from unibus.sync import MessageBus

WANTED = 4 * 1024 * 1024


def made(path: Path, wanted: int = WANTED) -> Reserve:
    reserve = Reserve(str(path), wanted)
    reserve.open()
    assert reserve.refill()
    return reserve


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.db-reserve"


def test_the_space_is_allocated_and_not_only_promised(path: Path) -> None:
    reserve = made(path)
    assert reserve.size == WANTED
    assert path.stat().st_blocks * 512 >= WANTED
    assert path.stat().st_mode & 0o077 == 0


def test_zeros_are_written_where_space_cannot_be_allocated_otherwise(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(file: int, offset: int, length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", refused)
    made(path)
    assert path.stat().st_blocks * 512 >= WANTED


def test_it_is_released_in_pieces_until_nothing_is_left(path: Path) -> None:
    reserve = made(path)
    sizes = [reserve.size]
    while reserve.release():
        assert reserve.full
        assert path.stat().st_size == reserve.size
        sizes.append(reserve.size)
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == PIECES + 1
    assert sizes[-1] == 0
    assert not reserve.release()
    assert reserve.refill()
    assert not reserve.full
    assert path.stat().st_size == WANTED


def test_a_refill_needs_more_space_than_its_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next send would run the store full again."""
    reserve = made(path)
    reserve.release()
    missing = WANTED - reserve.size
    monkeypatch.setattr(reserve, "free_bytes", lambda: missing + WANTED // 2 - 1)
    assert not reserve.refill()
    assert reserve.full
    monkeypatch.setattr(reserve, "free_bytes", lambda: missing + WANTED // 2)
    assert reserve.refill()


def test_a_refill_that_fails_half_way_takes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = made(path)
    reserve.release()
    size = reserve.size

    def half(file: int, offset: int, length: int) -> None:
        os.truncate(file, size + 4096)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", half)
    assert not reserve.refill()
    assert (path.stat().st_size, reserve.size, reserve.full) == (size, size, True)


def test_an_orderly_close_removes_it_but_not_if_the_store_is_full(path: Path) -> None:
    reserve = made(path)
    reserve.close()
    assert not path.exists()
    reserve = made(path)
    reserve.release()
    reserve.close()
    assert path.exists()
    again = Reserve(str(path), WANTED)
    again.open()
    assert again.size == reserve.size


def test_holes_do_not_count(path: Path) -> None:
    """A copy of the file may have them."""
    with path.open("wb") as file:
        file.truncate(WANTED)
    reserve = Reserve(str(path), WANTED)
    reserve.open()
    assert reserve.size == 0
    assert reserve.refill()
    assert path.stat().st_blocks * 512 >= WANTED


def test_a_small_file_system_keeps_less(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(path.parent)._replace(total=16 * 100_000)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    reserve = Reserve(str(path), WANTED)
    reserve.open()
    assert 90_000 < reserve.wanted <= 100_000


def test_none_is_none(path: Path) -> None:
    reserve = Reserve(str(path), 0)
    reserve.open()
    assert reserve.refill()
    assert not reserve.release()
    reserve.enter()
    assert not reserve.full
    reserve.close()
    assert not path.exists()


def test_a_link_is_not_followed(path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is truncated and filled must be ours."""
    other = tmp_path / "precious"
    other.write_text("words")
    path.symlink_to(other)
    reserve = Reserve(str(path), WANTED)
    reserve.open()
    assert reserve.refill()
    assert other.read_text() == "words"
    assert reserve.wanted == 0
    assert "has no reserve of disk space" in caplog.text


@pytest.mark.parametrize(("kind", "name"), [("sqlite", "bus-reserve"), ("jsonfile", "bus/reserve")])
def test_a_second_bus_leaves_the_reserve_of_the_owner_alone(tmp_path: Path, kind: str, name: str) -> None:
    url = f"{kind}:///{tmp_path}/bus"
    with MessageBus(url):
        assert (tmp_path / name).stat().st_size == WANTED
        with pytest.raises(StoreBusy):
            MessageBus(url)
        assert (tmp_path / name).exists()
    assert not (tmp_path / name).exists()


def test_a_url_may_ask_for_none(tmp_path: Path) -> None:
    with MessageBus(f"sqlite:///{tmp_path}/bus?reserve_mb=0") as bus:
        bus.send("orders", 1)
        assert not (tmp_path / "bus-reserve").exists()
        assert bus.health_check().status == "healthy"
