"""Staged rows of a sink: written by the executors, listed by the driver, published, and then deleted.

    STAGING/<query>/stream/rows/<random>.arrow           what one task wrote: packed commands, synced
    STAGING/<query>/stream/<batch>.json                  which of these files are the batch, in which order
    STAGING/<query>/batch-<batch>/…                      the same for a batch write

The list makes a retry publish the same rows. It is durable before the first row is published; from then on the list is
the batch, even if Spark computes other rows at the retry. Files that no list names are from failed tasks; they are
deleted with the folder. Names are quoted (names.py): none can leave STAGING.
"""

import os
import shutil
import uuid
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from unibus.bus.outbox.outbox import OutboxRow, packed, unpacked
from unibus.core.lifecycle.commands import Send
from unibus.errors import StoreDamaged, StoreUnavailable, StoreVersion, UsageError
from unibus.pipeline.connector.names import file_name
from unibus.pipeline.connector.rows import Shape
from unibus.stores.files.disk import RealFiles, replace
from unibus.stores.files.private import make_folder, opener

FORMAT: Final = 1
CELL_ROWS: Final = 100
CELL_BYTES: Final = 1_000_000
"""Commands that are packed together: enough to make packing cheap, few enough to fill transactions evenly."""

_SCHEMA: Final = pa.schema([("rows", pa.int32()), ("crc32", pa.int64()), ("batch", pa.large_binary())])


class Staged(WriterCommitMessage):
    """The result of a task for the driver."""

    def __init__(self, file: str, rows: int, size: int, crc32: int) -> None:
        self.file = file
        self.rows = rows
        self.size = size
        self.crc32 = crc32
        self.checkpoint = ""
        """The id of the stream that the task belongs to."""


class StagedFile(msgspec.Struct, frozen=True):
    file: str
    rows: int
    bytes: int
    crc32: int


class StagedListing(msgspec.Struct, frozen=True):
    """The files of a batch. It does not change after the first row is published."""

    format: int
    files: list[StagedFile]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


class Cell(NamedTuple):
    """Commands that were packed together, and how many."""

    rows: int
    commands: list[Send]


class Staging:
    """One folder: of a batch write, or of a stream, whose batches are written one after the other."""

    def __init__(self, root: str, query: str, batch: str | None = None) -> None:
        self.root = root
        self.folder = os.path.join(root, file_name(query), "stream" if batch is None else f"batch-{file_name(batch)}")

    # On an executor

    def write(self, batches: Iterable[pa.RecordBatch], shape: Shape, rows_at_once: int = CELL_ROWS) -> Staged:
        """Write all rows of a task, durably. Leaves no file if one of the rows is not a valid message.

        At most `rows_at_once` rows become one cell, which is published as a whole.
        """
        name = uuid.uuid4().hex
        path = self._path(name)
        make_folder(os.path.dirname(path))
        try:
            rows = _write(path, batches, shape, min(rows_at_once, CELL_ROWS))
            return Staged(name, rows, os.path.getsize(path), _crc32(path))
        except BaseException:
            _remove(path)
            raise

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, "rows", f"{name}.arrow")

    # On the driver

    def is_listed(self, batch: str) -> bool:
        return os.path.exists(self._list_path(batch))

    def listed(self, batch: str) -> StagedListing | None:
        """The list of a batch that an earlier attempt has written."""
        try:
            with open(self._list_path(batch), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        try:
            found = msgspec.json.decode(data, type=StagedListing)
        except msgspec.MsgspecError as error:
            raise StoreDamaged(
                f"{self._list_path(batch)} cannot be read: {error}", "restore it from a backup"
            ) from error
        if found.format != FORMAT:
            raise StoreVersion("another version of unibus has staged these rows", "publish them with that version")
        return found

    def list(self, batch: str, staged: Iterable[Staged]) -> StagedListing:
        """Write the list, durably, and replace an earlier one. In the order of Spark's partitions."""
        files = [StagedFile(each.file, each.rows, each.size, each.crc32) for each in staged if each.rows]
        for each in files:
            self._check_seen(each)
        listing = StagedListing(FORMAT, files)
        replace(RealFiles(), self._list_path(batch), msgspec.json.encode(listing))
        return listing

    def _list_path(self, batch: str) -> str:
        return os.path.join(self.folder, f"{file_name(batch)}.json")

    def _check_seen(self, staged: StagedFile) -> None:
        if not os.path.exists(self._path(staged.file)):
            raise StoreUnavailable(
                f"rows that an executor staged in {self.folder} cannot be seen by the driver",
                "set the option staging to a folder that driver and executors share",
            )

    def cells(self, listing: StagedListing, done: int) -> Iterator[Cell]:
        """The cells of a batch after the first `done` rows."""
        for each in listing.files:
            if done >= each.rows:
                done -= each.rows
                continue
            for cell in self._cells(each):
                if done >= cell.rows:
                    done -= cell.rows
                elif done:
                    raise StoreDamaged(f"{each.file} has other rows than those that were published", "restore it")
                else:
                    yield Cell(cell.rows, unpacked(cell.packed))

    def _cells(self, staged: StagedFile) -> "Iterator[_PackedCell]":
        path = self._path(staged.file)
        try:
            is_sound = _crc32(path) == staged.crc32
        except OSError as error:
            raise StoreDamaged(f"{path} cannot be read: {error.strerror}", "restore it from a backup") from error
        if not is_sound:
            raise StoreDamaged(f"{path} is not what was staged", "restore it from a backup")
        with pa.memory_map(path) as mapped, pa.ipc.open_file(mapped) as reader:
            for number in range(reader.num_record_batches):
                yield from _packed_cells(reader.get_batch(number))

    def remove(self) -> None:
        """Delete the folder, and the folder of the query if it is empty then."""
        root, folder = os.path.realpath(self.root), os.path.realpath(self.folder)
        if folder == root or os.path.commonpath([root, folder]) != root:
            raise UsageError(
                f"{self.folder} is outside of {self.root}, and is not deleted",
                "use no symbolic links inside of staging",
            )
        shutil.rmtree(self.folder, ignore_errors=True)
        for parent in (os.path.dirname(self.folder), self.root):
            try:
                os.rmdir(parent)
            except OSError:
                return

    def remove_files(self, staged: Iterable[Staged | None], keep: StagedListing | None) -> None:
        """Delete the files of a failed job, except those of the listing `keep`."""
        kept = set() if keep is None else {each.file for each in keep.files}
        for each in staged:
            if each is not None and each.file not in kept:
                _remove(self._path(each.file))


class _PackedCell(NamedTuple):
    rows: int
    packed: OutboxRow


def _packed_cells(batch: pa.RecordBatch) -> Iterator[_PackedCell]:
    for rows, crc, data in zip(*(batch.column(name) for name in _SCHEMA.names), strict=True):
        yield _PackedCell(rows.as_py(), OutboxRow(0, "", data.as_py(), crc.as_py()))


def _write(path: str, batches: Iterable[pa.RecordBatch], shape: Shape, cell_rows: int) -> int:
    rows = 0
    prefix = uuid.uuid4().hex
    with open(path, "xb", opener=opener) as file:
        with pa.ipc.new_file(file, _SCHEMA) as writer:
            for batch in batches:
                for count, data in _packed(shape.commands(batch, prefix, rows), cell_rows):
                    values = (count, zlib.crc32(data), data)
                    columns = [pa.array([value], kind) for value, kind in zip(values, _SCHEMA.types, strict=True)]
                    writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
                rows += batch.num_rows
        file.flush()
        os.fsync(file.fileno())
    return rows


def _crc32(path: str) -> int:
    crc = 0
    with open(path, "rb") as file:
        while data := file.read(1_000_000):
            crc = zlib.crc32(data, crc)
    return crc


def _packed(commands: Iterable[Send], cell_rows: int) -> Iterator[tuple[int, bytes]]:
    cell: list[Send] = []
    size = 0
    for command in commands:
        cell.append(command)
        size += command.size
        if len(cell) >= cell_rows or size >= CELL_BYTES:
            yield len(cell), packed(cell)
            cell, size = [], 0
    if cell:
        yield len(cell), packed(cell)


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except FileNotFoundError:
        pass
