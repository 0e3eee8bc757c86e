"""A folder on a real disk, for benchmarks whose figure is what a sync to the disk costs.

The usual place for scratch files may be memory that only looks like a file system; a sync costs nothing there, and
every durable figure would be a lie. So the folder is made where the command runs, and a file system in memory is
refused by name.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOUNTS = Path("/proc/mounts")
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
BUILD_FOLDER = ".build"
"""Ignored by git and removed by `make clean`, should a run be killed."""


class NotADisk(RuntimeError):
    """The folder is in memory; a figure taken there would say nothing."""


@contextmanager
def scratch(prefix: str = "bench-") -> Iterator[Path]:
    """A fresh folder below the current one; gone with everything in it when left."""
    parent = Path.cwd() / BUILD_FOLDER
    parent.mkdir(exist_ok=True)
    check_disk(parent, MOUNTS.read_text() if MOUNTS.is_file() else "")
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as made:
        yield Path(made)


def check_disk(folder: Path, mounts: str) -> None:
    kind = file_system(folder, mounts)
    if kind in IN_MEMORY:
        raise NotADisk(f"{folder} is on {kind}; start the benchmark from a folder on a disk")


def file_system(folder: Path, mounts: str) -> str | None:
    """The kind of file system that holds `folder`, by the kernel's list of mounts; None where there is no such list."""
    found, depth = None, -1
    for line in mounts.splitlines():
        _device, point, kind, *_ = line.split()
        mounted = Path(point.replace("\\040", " "))
        # The last mount on a point hides the earlier ones.
        if folder.is_relative_to(mounted) and len(mounted.parts) >= depth:
            found, depth = kind, len(mounted.parts)
    return found
