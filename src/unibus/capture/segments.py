"""Segments: written atomically, and verified (size, checksum, row count, schema) before they are read.

Exactly-once rests on the order of writing:

    write FILE.new ──▶ sync ──▶ rename to FILE ──▶ sync its folder ──▶ append the manifest line ──▶ sync

A crash before the manifest line leaves a file that the manifest does not name: the next writer deletes it and reads the
same rows from the store again. After a crash behind the line the segment is complete.

The generator of test data uses this writer too, so its directories have the same form.
"""

import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unibus.capture import schema
from unibus.capture.manifest import (
    BODIES,
    FORMAT,
    SEGMENTS,
    BodiesFile,
    CaptureMetadata,
    Gap,
    Manifest,
    ManifestWriter,
    Removed,
    RemovedBodies,
    Segment,
    file_of,
    save_about,
)
from unibus.counting import counted
from unibus.errors import CaptureBusy, CaptureDamaged, CaptureMismatch, StoreBusy, StoreUnavailable, UsageError
from unibus.stores.files.disk import Files, RealFiles, replace
from unibus.stores.files.local_folder import local_folder
from unibus.stores.files.owner import Owner
from unibus.stores.files.private import make_folder

GROUP_ROWS: Final = 250_000
"""Rows of a row group: the unit that one task of a reader takes, and that one bloom filter covers."""

GROUP_BYTES: Final = 64_000_000
"""About the size in memory at which compaction ends a row group early."""

GRACE_US: Final = 600_000_000
"""How long a replaced segment stays on the disk: a reader that looked it up before may have it open."""

BATCH_ROWS: Final = 65_536
LEVEL: Final = 1
_FEW_VALUES: Final = (
    *("domain", "channel", "channel_key", "kind", "kind_code", "delivery_count", "size", "reason", "signature"),
    *("consumer", "attrs.key_value.key", "attrs.key_value.value"),
)
"""Columns with few distinct values. For other columns Parquet would build a dictionary and discard it."""
_FEW_BODY_VALUES: Final = ("domain", "channel", "channel_key", "content_type", "headers.key_value.key")


class SegmentWriter:
    """The only writer of a capture directory, which it creates if necessary. `close` releases the lock.

    `files` is for tests with a simulated disk, which need no lock.
    """

    def __init__(self, folder: str, domain: str = "local", *, store: str = "", files: Files | None = None) -> None:
        self.folder = folder = local_folder(folder, "a capture")
        self._files: Files = files or RealFiles()
        self._owner: Owner | None = None
        if files is None:
            make_folder(folder)
            # Before anything is read: two writers would append to one manifest. The simulated disk of tests has one
            # writer.
            self._owner = _lock(folder)
        try:
            self._lines = ManifestWriter(self._begin(domain, store), self._files)
            # What a crash has left: segments that were renamed, but not named by the manifest, and temporary files.
            self.sweep()
        except BaseException:
            self.close()
            raise

    def _begin(self, domain: str, store: str) -> Manifest:
        for name in (SEGMENTS, BODIES):
            self._files.make_folder(f"{self.folder}/{name}")
        if self._files.size(f"{self.folder}/capture.json") < 0:
            # A new capture.json would let another store continue this manifest.
            if self._files.size(f"{self.folder}/manifest.jsonl") > 0:
                raise CaptureDamaged(f"{self.folder} has a manifest, but no capture.json", "restore it from a backup")
            made_us = time.time_ns() // 1_000
            # The entry of the new folder in its parent has to be durable before the files in it are.
            self._files.sync_folder(os.path.dirname(os.path.abspath(self.folder)))
            save_about(self.folder, CaptureMetadata(FORMAT, domain, store, made_us), self._files)
        manifest = Manifest.load(self.folder, self._files)
        about = manifest.about
        if about.domain != domain or (about.store and store and about.store != store):
            raise CaptureMismatch(
                f"{self.folder} holds the history of domain {about.domain!r}, not of {domain!r}"
                if about.domain != domain
                else f"{self.folder} holds the history of another store",
                "capture into another directory",
            )
        return manifest

    @property
    def manifest(self) -> Manifest:
        return self._lines.manifest

    @property
    def last(self) -> int:
        return self.manifest.last

    def write(self, table: pa.Table, bodies: pa.Table | None = None, last: int | None = None) -> Segment:
        """Seal rows that follow the existing ones. `last`: the end of the range, if it is after the last row."""
        if not table.num_rows:
            raise UsageError("the table has no rows, but a segment needs at least one", "write only tables with rows")
        first = self.last + 1
        last = table["seq"][-1].as_py() if last is None else last
        for rows in (table, bodies):
            if rows is not None and rows.num_rows:
                # Before the file is written: the manifest must never name a segment whose rows contradict its range.
                _check_order(rows["seq"], first, last)
        segment = self._seal(first, last, table, bodies)
        # The commit point. Before it the file is garbage, after it the rows are captured.
        self._lines.append(segment)
        return segment

    def join(self, gone: Sequence[Segment]) -> Segment:
        """Replace contiguous segments by one. They are copied one row group at a time: a file that is small on the disk
        may be large in memory."""
        first, last = gone[0].first, gone[-1].last
        kept: BodiesFile | None = None
        bodies = [each.bodies for each in gone if each.bodies is not None]
        if bodies:
            # Bodies first: a segment line names both files, so both have to be durable before it.
            file = file_of(BODIES, first, last)
            size, crc = self._put(file, self._joined(bodies, schema.BODIES, _FEW_BODY_VALUES))
            kept = BodiesFile(file, sum(each.rows for each in bodies), size, crc)
        file = file_of(SEGMENTS, first, last)
        size, crc = self._put(file, self._joined(gone, schema.EVENTS, _FEW_VALUES))
        segment = Segment(
            first=first,
            last=last,
            rows=sum(each.rows for each in gone),
            bytes=size,
            crc32=crc,
            from_us=min(each.from_us for each in gone),
            to_us=max(each.to_us for each in gone),
            sealed_us=max(each.sealed_us for each in gone),
            file=file,
            bodies=kept,
            tail=gone[-1].tail,
        )
        self._lines.replace(gone, segment)
        return segment

    def _joined(self, parts: Sequence[Segment | BodiesFile], wanted: pa.Schema, few_values: tuple[str, ...]) -> bytes:
        # Lazily: one row group in memory at a time, besides the compressed result.
        groups = _gathered(self._row_groups(parts, wanted))
        return parquet_of(groups, wanted, sum(each.rows for each in parts), few_values)

    def _row_groups(self, parts: Sequence[Segment | BodiesFile], wanted: pa.Schema) -> Iterator[pa.Table]:
        for each in parts:
            # Verified before it is copied: damage must not get a new and valid checksum.
            file = _checked(self.folder, each, wanted, self._files)
            for number in range(file.num_row_groups):
                yield _with_all(file.read_row_group(number), wanted)

    def read(self, segment: Segment) -> pa.Table:
        """All rows of a segment. CaptureDamaged if the file is not what was written."""
        return _with_all(_checked(self.folder, segment, schema.EVENTS, self._files).read(), schema.EVENTS)

    def read_bodies(self, segment: Segment) -> pa.Table:
        assert segment.bodies is not None
        return _with_all(_checked(self.folder, segment.bodies, schema.BODIES, self._files).read(), schema.BODIES)

    def gap(self, first: int, last: int) -> None:
        self._lines.append(Gap(first, last))

    def remove(self, *lines: Removed | RemovedBodies) -> None:
        self._lines.append(*lines)

    def set_about(self, about: CaptureMetadata) -> None:
        save_about(self.folder, about, self._files)
        self.manifest.about = about

    def _seal(self, first: int, last: int, table: pa.Table, bodies: pa.Table | None) -> Segment:
        kept: BodiesFile | None = None
        if bodies is not None and bodies.num_rows:
            file = file_of(BODIES, first, last)
            size, crc = self._put(file, _parquet(bodies, schema.BODIES, _FEW_BODY_VALUES))
            kept = BodiesFile(file, bodies.num_rows, size, crc)
        file = file_of(SEGMENTS, first, last)
        size, crc = self._put(file, _parquet(table, schema.EVENTS, _FEW_VALUES))
        times = pc.min_max(micros(table["ts"])).as_py()
        return Segment(
            first=first,
            last=last,
            rows=table.num_rows,
            bytes=size,
            crc32=crc,
            from_us=times["min"],
            to_us=times["max"],
            sealed_us=time.time_ns() // 1_000,
            file=file,
            bodies=kept,
            tail=fingerprint(table, table.num_rows - 1),
        )

    def _put(self, file: str, data: bytes) -> tuple[int, int]:
        replace(self._files, f"{self.folder}/{file}", data)
        return len(data), zlib.crc32(data)

    def sweep(self) -> list[str]:
        """Delete files that the manifest does not name: left by a crash, or replaced longer than GRACE_US ago."""
        manifest = self.manifest
        named = manifest.names()
        before_us = time.time_ns() // 1_000 - GRACE_US
        gone = []
        for folder in (SEGMENTS, BODIES):
            for name in self._files.list(f"{self.folder}/{folder}"):
                file = f"{folder}/{name}"
                # A file that the manifest never named is deleted at once: no reader can know it. One that was replaced
                # waits.
                if file not in named and manifest.removed.get(file, 0) <= before_us:
                    self._files.remove(f"{self.folder}/{file}")
                    gone.append(file)
        return gone

    def shorten(self) -> bool:
        """Rewrite the manifest if it has grown long."""
        return self._lines.shorten(time.time_ns() // 1_000 - GRACE_US)

    def close(self) -> None:
        if self._owner is not None:
            self._owner.release()
            self._owner = None


def _lock(folder: str) -> Owner:
    try:
        return Owner(f"{folder}/capture")
    except StoreBusy as error:
        raise CaptureBusy(
            f"the capture directory {folder} is in use by {error.holder}",
            "a directory has one capture: stop that one, or name another directory",
        ) from None


def _check_order(seqs: pa.ChunkedArray, first: int, last: int) -> None:
    """Readers find a row by the range of its segment, so a row out of order or out of range would be lost to them."""
    low, high = seqs[0].as_py(), seqs[-1].as_py()
    if low < first or last < high:
        raise UsageError(
            f"the rows have seq {low} to {high}, but the segment is for {first} to {last}", "sort rows by seq"
        )
    if pc.any(pc.less_equal(seqs.slice(1), seqs.slice(0, len(seqs) - 1))).as_py():
        raise UsageError(f"the rows with seq {low} to {high} are not in order", "sort rows by seq, without duplicates")


def _parquet(table: pa.Table, wanted: pa.Schema, few_values: tuple[str, ...]) -> bytes:
    """The bytes of one table. Casts only if necessary: a cast costs time for each column even if nothing changes."""
    cast = table if table.schema.equals(wanted) else table.cast(wanted)
    return parquet_of([cast], wanted, table.num_rows, few_values)


def parquet_of(parts: Iterable[pa.Table], wanted: pa.Schema, rows: int, few_values: tuple[str, ...]) -> bytes:
    """The bytes of a segment: one row group for each part, or several for a long part."""
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(
        out,
        wanted,
        compression="zstd",
        compression_level=LEVEL,
        use_dictionary=list(few_values),
        bloom_filter_options={"message_id": {"ndv": max(16, min(rows, GROUP_ROWS) // 2), "fpp": 0.05}},
    ) as file:
        for part in parts:
            file.write_table(part, row_group_size=GROUP_ROWS)
    return bytes(out.getvalue().to_pybytes())


def _gathered(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate parts until they make a row group."""
    found: list[pa.Table] = []
    rows = size = 0
    for part in parts:
        found.append(part)
        rows, size = rows + part.num_rows, size + part.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.concat_tables(found)
            found, rows, size = [], 0, 0
    if found:
        yield pa.concat_tables(found)


FINGERPRINTED: Final = ("ts", "seq", "channel", "kind", "sequence", "message_id")


def fingerprint(table: pa.Table, at: int) -> int:
    """A checksum of the columns of one row that never change. Never 0."""
    moment, *names = FINGERPRINTED
    values = (micros(table[moment])[at].as_py(), *(table[name][at].as_py() for name in names))
    return zlib.crc32("\0".join(map(str, values)).encode("utf-8", "replace")) or 1


def micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Timestamps as integers, in microseconds."""
    return column.cast(pa.int64())


# Reading


def check(folder: str, segment: Segment, files: Files | None = None) -> CaptureDamaged | None:
    """Verify a segment: its damage, with a `reason`, or None. Reads the whole file once."""
    try:
        _checked(folder, segment, schema.EVENTS, files or RealFiles())
    except CaptureDamaged as damage:
        return damage
    return None


def check_bodies(folder: str, segment: Segment, files: Files | None = None) -> CaptureDamaged | None:
    """The same for the bodies of a segment, if it has any."""
    try:
        if segment.bodies is not None:
            _checked(folder, segment.bodies, schema.BODIES, files or RealFiles())
    except CaptureDamaged as damage:
        return damage
    return None


def _checked(folder: str, written: Segment | BodiesFile, wanted: pa.Schema, files: Files) -> pq.ParquetFile:
    """The opened file, if it is what was written."""
    try:
        data = files.read(os.path.join(folder, written.file))
    except FileNotFoundError as error:
        raise _wrong(written, "missing", f"it cannot be read: {error.strerror}") from error
    except OSError as error:  # No permission, a network share that is offline: temporary, and no damage of the file.
        raise StoreUnavailable(
            f"{os.path.join(folder, written.file)} cannot be read now: {error.strerror}",
            "make the file readable and try again; nothing was changed",
        ) from error
    # The checksum is over the whole file and kept outside of it, in the manifest: a swapped file is found, too.
    if len(data) != written.bytes:
        raise _wrong(written, "size", f"it has {len(data)} bytes, but {written.bytes} were written")
    if zlib.crc32(data) != written.crc32:
        raise _wrong(written, "crc", "its checksum differs from the one in the manifest")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise _wrong(written, "unreadable", str(error)) from error
    if file.metadata.num_rows != written.rows:
        raise _wrong(
            written, "unreadable", f"it has {counted(file.metadata.num_rows, 'row')}, but {written.rows:,} were written"
        )
    for field in wanted:
        if not _fits(file.schema_arrow, field):
            raise _wrong(written, "schema", f"column {field.name!r} is missing or has another type than {field.type}")
    return file


def _fits(found: pa.Schema, wanted: pa.Field) -> bool:
    """Whether a file has this column. A file may be older than a nullable column, which is then read as null."""
    at = found.get_field_index(wanted.name)
    return bool(wanted.nullable if at < 0 else found.field(at).type.equals(wanted.type))


def _wrong(written: Segment | BodiesFile, reason: str, what: str) -> CaptureDamaged:
    return CaptureDamaged(f"{written.file} is damaged: {what}", "restore it from a backup", reason)


def batches(
    path: str, first: int, last: int, columns: Sequence[str] | None, wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows first..last of a file, with the given columns in the order of the schema."""
    names = [name for name in wanted.names if columns is None or name in columns]
    asked = pa.schema([wanted.field(name) for name in names])
    with pq.ParquetFile(path) as file:
        groups = row_groups(file, first, last)
        there = set(file.schema_arrow.names)
        read = [name for name in dict.fromkeys((*names, "seq")) if name in there]
        for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=read):
            seqs = batch["seq"]
            # Rows are in order, so the two ends decide. Most batches lie within the range and are passed on without a
            # copy.
            if seqs[0].as_py() < first or seqs[-1].as_py() > last:
                batch = batch.filter(pc.and_(pc.greater_equal(seqs, first), pc.less_equal(seqs, last)))
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays([_column(batch, each) for each in asked], schema=asked)


def _with_all(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    return pa.table([_column(table, field) for field in wanted], schema=wanted)


def _column(rows: pa.RecordBatch | pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """A column, or nulls if the file is older than the column."""
    there = field.name in rows.schema.names
    return rows[field.name] if there else pa.nulls(rows.num_rows, field.type)


def row_groups(file: pq.ParquetFile, first: int, last: int) -> list[int]:
    """The row groups that may have rows of the range, by the statistics of seq, which is the first column."""
    found = []
    for number in range(file.num_row_groups):
        known = file.metadata.row_group(number).column(0).statistics
        if known is None or not known.has_min_max or not (known.max < first or known.min > last):
            found.append(number)
    return found
