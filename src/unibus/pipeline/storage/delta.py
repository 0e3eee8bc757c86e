"""Delta tables through delta-rs: which files a table has, and commits that remove some files and add others.

    write files (unique names, fsync)  ──▶  commit (names them, with the batch number)  ──▶  settle (fsync of the log)

Rows are written to new files in the folder of the table first. A file is part of the table only when a commit names it,
so files of an interrupted attempt do no harm, and vacuum deletes them. The commit of a batch carries the number of the
batch as an application transaction: a second attempt sees that the table has it.

Files are synced before a commit names them. delta-rs does not sync its log: `settle` does, before anything relies on
the commit.

delta-rs rejects a commit that conflicts with a concurrent one. Still, a lake has one writer at a time (lake.py).
"""

import contextlib
import datetime
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from unibus.errors import LakeIncomplete, StoreVersion
from unibus.pipeline.storage.files import (
    MICROSECOND,
    START,
    File,
    number,
    partition_value,
    path_of,
    read_file,
    sync,
    sync_folder,
    write_file,
)
from unibus.pipeline.storage.tables import LakeTable
from unibus.stores.files.disk import RealFiles
from unibus.stores.files.disk import replace as replace_file
from unibus.stores.files.private import keep_mode, make_folder

APP: Final = "unibus"
LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = "_last_checkpoint"
_SETTINGS: Final = {
    "delta.checkpointInterval": "20",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}
_LOG_ENDS: Final = (".json", ".checkpoint.parquet")
_UNSURE: Final = 8
"""More versions than an interrupted process can leave unsettled: a batch adds one, or two if it adds columns."""
_HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""`settle` removes old parts of the log: delta-rs would do so before the checkpoint that replaces them is synced."""
_COMMIT: Final = re.compile(r"\d{20}\.json")
_CHECKPOINT: Final = re.compile(r"\d{20}\.checkpoint\.parquet")


class DeltaFolder:
    """One table. Caches the log that it has read; `refresh` reads newer commits."""

    def __init__(self, path: str, table: LakeTable) -> None:
        self.path = path
        self.table = table
        self._delta: DeltaTable | None = None
        self._settled = -1
        """The last version whose log is known to be synced."""

    def exists(self) -> bool:
        return self.refresh() is not None

    def refresh(self) -> DeltaTable | None:
        try:
            if self._delta is None:
                self._delta = DeltaTable(self.path)
            else:
                self._delta.update_incremental()
        except TableNotFoundError:
            self._delta = None
        except DeltaError as error:
            raise LakeIncomplete(
                f"{self.path} cannot be read: {error}", "after a power cut, `unibus pipeline run --once` repairs it"
            ) from error
        return self._delta

    def made(self) -> DeltaTable:
        """The table; created if it does not exist, with missing columns added."""
        delta = self.refresh()
        if delta is None:
            self._create()
            delta = self._delta = DeltaTable(self.path)
        known = {each.name for each in delta.schema().fields}
        unknown = sorted(known.difference(self.table.schema.names))
        if unknown:  # Rows that we rewrite would lose its values.
            raise StoreVersion(f"{self.path} has a column {unknown[0]!r} of a newer version", "upgrade unibus")
        missing = [each for each in Schema.from_arrow(self.table.schema).fields if each.name not in known]
        if missing:
            delta.alter.add_columns(missing, post_commithook_properties=_HOOKS)
        return delta

    def _create(self) -> None:
        """In a temporary folder that is then renamed: a log without its first file cannot be opened at all."""
        beside = DeltaFolder(f"{self.path}.new", self.table)
        shutil.rmtree(beside.path, ignore_errors=True)
        DeltaTable.create(
            beside.path,
            schema=Schema.from_arrow(self.table.schema),
            partition_by=[self.table.partition] if self.table.partition else None,
            configuration=dict(_SETTINGS),
        )
        beside.settle()
        make_folder(self.path)
        os.rename(os.path.join(beside.path, LOG), os.path.join(self.path, LOG))
        os.rmdir(beside.path)

    def version(self) -> int:
        """Changes with every commit; -1 if the table does not exist."""
        delta = self.refresh()
        return -1 if delta is None else delta.version()

    def done(self) -> int:
        """The last batch that this table has; 0 for none."""
        delta = self.refresh()
        return 0 if delta is None else (delta.transaction_version(APP) or 0)

    def schema(self) -> pa.Schema:
        """The columns of this version, then columns that a newer version has added."""
        delta = self.refresh()
        if delta is None:
            return self.table.schema
        stored = pa.schema(delta.schema().to_arrow())
        return pa.schema([*self.table.schema, *(each for each in stored if each.name not in self.table.schema.names)])

    def files(self) -> list[File]:
        delta = self.refresh()
        if delta is None:
            return []
        return [_file(row, self.table.partition) for row in pa.table(delta.get_add_actions(flatten=True)).to_pylist()]

    def full_path(self, file: File | str) -> str:
        return os.path.join(self.path, file if isinstance(file, str) else file.path)

    def new_name(self, batch: int) -> str:
        return f"b{batch:08}-{uuid.uuid4().hex}.parquet"

    def read(self, files: Iterable[File], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows with the columns of the table; null if a file is older than a column."""
        wanted = [each for each in self.table.stored() if columns is None or each.name in columns]
        found = [read_file(self.full_path(file), wanted) for file in files]
        return pa.concat_tables(found) if found else pa.schema(wanted).empty_table()

    def write(self, rows: pa.Table, batch: int, open_: bool | None = None) -> File:
        """Write one file with these rows. `commit` makes it part of the table."""
        return write_file(self.path, self.new_name(batch), rows, self.table, open_)

    def misplaced(self) -> list[File]:
        """Files of an earlier version, which are outside of the folders of their partitions."""
        return [each for each in self.files() if each.path != path_of(each.name, self.table, each.open)]

    def moved(self, file: File) -> File:
        """Link the file into the folder of its partition. `commit` makes it part of the table; readers use the old."""
        place = replace(file, path=path_of(file.name, self.table, file.open))
        made = self.full_path(place)
        make_folder(os.path.dirname(made))
        with contextlib.suppress(FileNotFoundError):  # Of an interrupted compaction.
            os.remove(made)
        try:
            os.link(self.full_path(file), made)
        except OSError:  # Not every file system has links.
            shutil.copyfile(self.full_path(file), made)
            keep_mode(made, self.full_path(file))
            sync(made)
        return place

    def commit(
        self, adds: Sequence[File], removes: Sequence[File] = (), *, batch: int = 0, changed: bool = True
    ) -> None:
        """All or nothing. changed=False: the rows only moved to other files, so a change feed can skip the commit."""
        delta = self.made()
        for folder in sorted({os.path.dirname(self.full_path(each)) for each in adds}):
            sync_folder(folder)
        if adds and self.table.partition:  # The folder of a partition may be new.
            sync_folder(self.path)
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(each.path, changed, now_ms, each.size, self._values(each)) for each in removes
        ]
        actions += [
            AddAction(each.path, each.size, self._values(each), now_ms, changed, _stats(each, self.table))
            for each in adds
        ]
        delta.create_write_transaction(
            actions,
            "append",
            delta.schema(),
            partition_by=[self.table.partition] if self.table.partition else None,
            commit_properties=CommitProperties(app_transactions=[Transaction(APP, batch)] if batch else None),
            post_commithook_properties=_HOOKS,
        )

    def settle(self) -> None:
        """Sync all commits so far, including those of an interrupted process. Then remove the old part of the log that
        a new checkpoint replaces."""
        delta = self.refresh()
        if delta is None or delta.version() == self._settled:
            return
        log = os.path.join(self.path, LOG)
        first = self._settled + 1 if self._settled >= 0 else delta.version() - _UNSURE
        names = [f"{each:020}{end}" for each in range(max(first, 0), delta.version() + 1) for end in _LOG_ENDS]
        for name in (*names, LAST_CHECKPOINT):
            with contextlib.suppress(FileNotFoundError):  # Most versions have no checkpoint.
                sync(os.path.join(log, name))
        sync_folder(log)
        if self._settled < 0:  # The table may be new.
            sync_folder(self.path)
            sync_folder(os.path.dirname(self.path))
        self._settled = delta.version()
        if any(os.path.exists(os.path.join(log, name)) for name in names if _CHECKPOINT.fullmatch(name)):
            delta.cleanup_metadata()

    def repair_log(self) -> None:
        """After a power cut: replace a torn commit by an empty one, and delete a torn checkpoint.

        A torn file was never settled, so nothing relies on it. Call it only after an interruption (`is_interrupted`):
        in any other case a file that cannot be read is damage.
        """
        log = os.path.join(self.path, LOG)
        names = sorted(os.listdir(log)) if os.path.isdir(log) else []
        commits = [os.path.join(log, name) for name in names if _COMMIT.fullmatch(name)]
        for path in commits[-_UNSURE:]:
            if not _is_commit(path):
                replace_file(RealFiles(), path, b"")
        checkpoints = [os.path.join(log, name) for name in names if _CHECKPOINT.fullmatch(name)]
        if checkpoints and not _is_parquet(checkpoints[-1]):
            for path in (os.path.join(log, LAST_CHECKPOINT), checkpoints[-1]):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
        self._delta = None

    def vacuum(self, hours: int) -> list[str]:
        """Delete files that no version has named for that long. The commits are synced first: after a power cut, no
        table may name a deleted file."""
        delta = self.refresh()
        if delta is None:
            return []
        self.settle()
        gone = delta.vacuum(
            hours,
            dry_run=False,
            enforce_retention_duration=False,
            post_commithook_properties=_HOOKS,
            full=True,
        )
        return [os.path.join(self.path, each) for each in gone]

    def _values(self, file: File) -> dict[str, str | None]:
        return {self.table.partition: partition_value(file.open)} if self.table.partition else {}


def _is_commit(path: str) -> bool:
    """Whether every line is JSON; an empty file is a commit too."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return all(isinstance(json.loads(line), dict) for line in data.splitlines())
    except ValueError:
        return False


def _is_parquet(path: str) -> bool:
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return False
    return True


def _stats(file: File, table: LakeTable) -> str:
    bounds = {"minValues": _as_json(file.low, table), "maxValues": _as_json(file.high, table)}
    return json.dumps({"numRecords": file.rows, **bounds, "nullCount": {}})


def _as_json(values: dict[str, int], table: LakeTable) -> dict[str, object]:
    moments = {each.name for each in table.schema if pa.types.is_timestamp(each.type)}
    return {
        name: f"{START + value * MICROSECOND:%Y-%m-%dT%H:%M:%S.%fZ}" if name in moments else value
        for name, value in values.items()
    }


def _file(row: dict[str, Any], partition: str) -> File:
    known = {name: value for name, value in row.items() if isinstance(value, int | datetime.datetime)}
    low = {name.removeprefix("min."): number(value) for name, value in known.items() if name.startswith("min.")}
    high = {name.removeprefix("max."): number(value) for name, value in known.items() if name.startswith("max.")}
    flag = row.get(f"partition.{partition}") if partition else None
    return File(row["path"], row["size_bytes"], row["num_records"] or 0, flag, low, high)
