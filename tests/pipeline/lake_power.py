"""A disk that keeps nothing but what was synced: the worst that a power cut can leave of a folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Disk:
    """Remembers, at each sync, the content of that file or the names of that folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._folders: set[int] = set()
        self._held: dict[int, int] = {}
        """Open files by their numbers: that of one that is gone must not become that of another."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        self._root.mkdir(parents=True, exist_ok=True)
        self.sync(self._hold(self._root))
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "fsync", self.sync)
                patch.setattr("unibus.stores.journals.jsonfile_files._sync_data", self.sync)
                yield
        finally:
            for handle in self._held.values():
                os.close(handle)

    def sync(self, handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if not path.is_relative_to(self._root):
            return
        self._hold(path)
        if path.is_dir():
            self._names[path.stat().st_ino] = {each.name: each.stat().st_ino for each in path.iterdir()}
            for each in path.iterdir():
                self._hold(each)
        else:
            self._content[path.stat().st_ino] = path.read_bytes()

    def _hold(self, path: Path) -> int:
        number = path.stat().st_ino
        if path.is_dir():
            self._folders.add(number)
        if number not in self._held:
            self._held[number] = os.open(path, os.O_RDONLY)
        return self._held[number]

    def left(self, to: Path, *, all_names: bool) -> None:
        """What is there after the cut. A file system may keep names that nobody synced, of files then empty."""
        names = dict(self._names)
        if all_names:
            for folder in (self._root, *(each for each in self._root.rglob("*") if each.is_dir())):
                number = folder.stat().st_ino
                names[number] = names.get(number, {}) | {each.name: each.stat().st_ino for each in folder.iterdir()}
        self._write(self._root.stat().st_ino, to, names)

    def _write(self, folder: int, to: Path, names: dict[int, dict[str, int]]) -> None:
        to.mkdir()
        for name, number in names.get(folder, {}).items():
            if number in names or number in self._folders:
                self._write(number, to / name, names)
            else:
                (to / name).write_bytes(self._content.get(number, b""))
