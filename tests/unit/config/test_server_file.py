"""`FILE.serve.json`: whole and private from its first byte, believed only if no other user could have written it."""

import json
import os
from pathlib import Path

import pytest

from unibus.config import server_file
from unibus.config.server_file import (
    ServerFile,
    ServerFileIgnored,
    local_rule,
    proof_of,
    read_server_file,
    remove_server_file,
    write_server_file,
)
from unibus.core.access.rights import Right
from unibus.stores.files.lock_holder import SERVER_SUFFIX

FOUND = ServerFile("http://127.0.0.1:5300", 4711, "local-1", "k" * 43 + "=", "1.0", 17)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "bus.db")


def written(path: str) -> Path:
    return Path(f"{path}.serve.json")


def test_what_was_written_is_read(path: str) -> None:
    assert read_server_file(path) is None
    write_server_file(path, FOUND)
    assert read_server_file(path) == FOUND
    assert os.listdir(os.path.dirname(path)) == ["bus.db.serve.json"]


def test_it_is_private_from_its_first_byte(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    genuine = os.open

    def opened(name: str, flags: int, mode: int = 0o777) -> int:
        assert flags & os.O_EXCL
        assert flags & os.O_NOFOLLOW
        modes.append(mode)
        return genuine(name, flags, mode)

    monkeypatch.setattr(server_file.os, "open", opened)
    before = os.umask(0)
    try:
        write_server_file(path, FOUND)
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert written(path).stat().st_mode & 0o777 == 0o600


def test_a_link_in_its_place_is_replaced_and_not_followed(path: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    written(path).symlink_to(victim)
    with pytest.raises(ServerFileIgnored, match="cannot be opened"):
        read_server_file(path)
    write_server_file(path, FOUND)
    assert victim.read_text() == "mine"
    assert read_server_file(path) == FOUND


def test_it_is_beside_the_real_file(path: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "alias.db").symlink_to(tmp_path / "there" / "bus.db")
    write_server_file(str(tmp_path / "alias.db"), FOUND)
    assert (tmp_path / "there" / "bus.db.serve.json").exists()
    assert read_server_file(str(tmp_path / "there" / "bus.db")) == FOUND


def test_a_write_that_fails_leaves_what_was_there(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_server_file(path, FOUND)
    monkeypatch.setattr(server_file.os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        write_server_file(path, ServerFile("http://127.0.0.1:1", 1, "x", "y", "", 0))
    assert read_server_file(path) == FOUND
    assert os.listdir(os.path.dirname(path)) == ["bus.db.serve.json"]


def test_a_server_removes_its_own_and_not_that_of_the_next(path: str) -> None:
    write_server_file(path, FOUND)
    remove_server_file(path, "another key")
    assert read_server_file(path) == FOUND
    remove_server_file(path, FOUND.key)
    assert read_server_file(path) is None
    remove_server_file(path, FOUND.key)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o602])
def test_a_file_that_others_can_read_or_write_is_ignored(path: str, mode: int) -> None:
    write_server_file(path, FOUND)
    written(path).chmod(mode)
    with pytest.raises(ServerFileIgnored, match="mode"):
        read_server_file(path)


def test_a_file_of_another_user_is_ignored(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_server_file(path, FOUND)
    monkeypatch.setattr(server_file.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ServerFileIgnored, match="another user"):
        read_server_file(path)


def test_a_pipe_is_ignored_and_not_waited_for(path: str) -> None:
    os.mkfifo(written(path), 0o600)
    with pytest.raises(ServerFileIgnored, match="regular"):
        read_server_file(path)


WHOLE = vars(FOUND)
DAMAGED = [
    *(b"", b"{", b"[]", b"null", b"[" * 50_000, b"\xff", b" " * 20_000),
    *(json.dumps({**WHOLE, "pid": value}).encode() for value in ("4711", True, None, 1.5)),
    *(json.dumps({**WHOLE, "key": value}).encode() for value in (None, 1, ["x"])),
    *(json.dumps({name: WHOLE[name] for name in WHOLE if name != left}).encode() for left in WHOLE),
    *(
        json.dumps({**WHOLE, "url": url}).encode()
        for url in ("http://example.com:5300", "https://127.0.0.1:1", "http://127.0.0.1", "http://[", "x", "http://1:x")
    ),
]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_ignored(path: str, text: bytes) -> None:
    write_server_file(path, FOUND)
    written(path).write_bytes(text)
    with pytest.raises(ServerFileIgnored, match="damaged"):
        read_server_file(path)


def test_the_key_is_in_no_text(path: str) -> None:
    assert FOUND.key not in repr(FOUND)
    written(path).write_text(json.dumps({**WHOLE, "pid": None}))
    written(path).chmod(0o600)
    with pytest.raises(ServerFileIgnored) as caught:
        read_server_file(path)
    assert FOUND.key not in str(caught.value)


def test_the_rule_is_new_each_time_and_has_every_right() -> None:
    first, second = local_rule(), local_rule()
    assert first.rights == frozenset(Right)
    assert first.name != second.name
    assert first.primary_key != second.primary_key


def test_a_proof_needs_the_key() -> None:
    assert FOUND.proof("n") == proof_of(FOUND.key, "n") != proof_of("other", "n")
    assert FOUND.proof("n") != FOUND.proof("m")


def test_stores_and_servers_name_the_file_alike() -> None:
    assert SERVER_SUFFIX == server_file.SUFFIX
