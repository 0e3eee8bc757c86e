"""A disk that keeps nothing but what was synced: the worst that a power cut can leave of a folder.

Over the real file system, since delta-rs and Arrow write to that by themselves: `SimulatedDisk` sees what goes through
our `Files` only.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

Left = Literal["lost", "empty", "torn"]
"""What a cut leaves of files that were not synced: not even a name, a name without content, the first half."""


class PowerCut(Exception):
    pass


class Disk:
    """Remembers, at each sync, the content of that file or the names of that folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._folders: set[int] = set()
        self.syncs_left = -1
        """So many more are done before the power goes; -1 for as many as there are."""
        self._held: dict[int, int] = {}
        """Open files by their numbers: that of one that is gone must not become that of another."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        self._root.mkdir(parents=True, exist_ok=True)
        self.sync(self._hold(self._root))
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "fsync", self.sync)
                patch.setattr("unibus.stores.files.disk._sync_data", self.sync)
                yield
        finally:
            for handle in self._held.values():
                os.close(handle)

    def sync(self, handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if not path.is_relative_to(self._root):
            return
        if not self.syncs_left:
            raise PowerCut
        self.syncs_left -= 1
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

    def left(self, to: Path, unsynced: Left) -> None:
        """The files after the cut."""
        there = [each for each in self._root.rglob("*") if not each.name.endswith(".lock")]
        files = {each.stat().st_ino: each for each in there if each.is_file()}
        names = dict(self._names)
        if unsynced != "lost":
            for folder in (self._root, *(each for each in there if each.is_dir())):
                names[folder.stat().st_ino] = {each.name: each.stat().st_ino for each in folder.iterdir()}
        self._write(self._root.stat().st_ino, to, names, files if unsynced == "torn" else {})

    def _write(self, folder: int, to: Path, names: dict[int, dict[str, int]], torn: dict[int, Path]) -> None:
        to.mkdir()
        for name, number in names.get(folder, {}).items():
            if number in names or number in self._folders:
                self._write(number, to / name, names, torn)
                continue
            content = self._content.get(number)
            if content is None:
                whole = torn[number].read_bytes() if number in torn else b""
                content = whole[: len(whole) // 2]
            (to / name).write_bytes(content)
