"""Delta tables through delta-rs: which files a table has, and one commit that takes some away and adds others.

Whoever has rows writes files first, into the folder of the table and under names that nobody had before. Nothing counts
until a commit names it, so what an ended attempt leaves behind is only in the way of nobody, until vacuum. A commit of
a batch carries the number of the batch as an application transaction: whoever comes again sees that it is done.

Files are on the disk before a commit names them. The log, which delta-rs writes without waiting for the disk, is after
`settle`: the driver asks for it where something else is about to rely on a commit.

delta-rs refuses a commit over a table that another one has changed in the same way meanwhile. Within a lake there is
one writer at a time all the same (lake.py).
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
"""More versions than an ended process can have left unsettled: a batch makes one, perhaps after adding columns."""
_HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""Old parts of the log go by `settle`: delta-rs would remove them before what stands for them is on the disk."""
_COMMIT: Final = re.compile(r"\d{20}\.json")
_CHECKPOINT: Final = re.compile(r"\d{20}\.checkpoint\.parquet")


class DeltaFolder:
    """One table. Keeps what it has read of the log, and looks for more at `refresh`."""

    def __init__(self, path: str, table: LakeTable) -> None:
        self.path = path
        self.table = table
        self._delta: DeltaTable | None = None
        self._settled = -1
        """The last version whose log is known to be on the disk."""

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
                f"{self.path} cannot be read: {error}", "after a loss of power `unibus pipeline run --once` mends it"
            ) from error
        return self._delta

    def made(self) -> DeltaTable:
        """The table, made if there is none, with every column of ours."""
        delta = self.refresh()
        if delta is None:
            self._create()
            delta = self._delta = DeltaTable(self.path)
        known = {each.name for each in delta.schema().fields}
        unknown = sorted(known.difference(self.table.schema.names))
        if unknown:  # Rows that are written again would lose them.
            raise StoreVersion(f"{self.path} has a column {unknown[0]!r} of a newer version", "upgrade unibus")
        missing = [each for each in Schema.from_arrow(self.table.schema).fields if each.name not in known]
        if missing:
            delta.alter.add_columns(missing, post_commithook_properties=_HOOKS)
        return delta

    def _create(self) -> None:
        """Beside, and then moved here: a log whose first file was lost could not be opened by anybody."""
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
        """Changes with every commit; -1 where there is no table."""
        delta = self.refresh()
        return -1 if delta is None else delta.version()

    def done(self) -> int:
        """The last batch that this table has; 0 for none."""
        delta = self.refresh()
        return 0 if delta is None else (delta.transaction_version(APP) or 0)

    def schema(self) -> pa.Schema:
        """Our columns, then those that a newer version has added."""
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
        """Rows with the columns of the table, null where a file is older than a column."""
        wanted = [each for each in self.table.stored() if columns is None or each.name in columns]
        found = [read_file(self.full_path(file), wanted) for file in files]
        return pa.concat_tables(found) if found else pa.schema(wanted).empty_table()

    def write(self, rows: pa.Table, batch: int, open_: bool | None = None) -> File:
        """One file with these rows. It counts once `commit` adds it."""
        return write_file(self.path, self.new_name(batch), rows, self.table, open_)

    def misplaced(self) -> list[File]:
        """Files of an earlier version, which lie beside the folders of their partitions."""
        return [each for each in self.files() if each.path != path_of(each.name, self.table, each.open)]

    def moved(self, file: File) -> File:
        """The same file where it belongs. It counts once `commit` adds it; the old name stays for readers."""
        place = replace(file, path=path_of(file.name, self.table, file.open))
        made = self.full_path(place)
        make_folder(os.path.dirname(made))
        with contextlib.suppress(FileNotFoundError):  # Of a compaction that was ended.
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
        """All or nothing. Not `changed`: the same rows lie elsewhere, and whoever follows changes can skip it."""
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
        """All commits so far are on the disk, also those of a process that was ended. Then an old part of the log, that
        a new checkpoint stands for, can go."""
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

    def mend(self) -> None:
        """After a loss of power. A commit, or a checkpoint, that is half there was never settled, and nothing relies on
        it: a commit becomes an empty one, a checkpoint is taken away. Only for whoever knows that this can be."""
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
        """Remove files that no commit names any more, or never did, for that long. The commit that does without a file
        is on the disk before the file goes."""
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
    """Lines of JSON, down to the last; none at all is a commit too."""
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
    bounds = {"minValues": _told(file.low, table), "maxValues": _told(file.high, table)}
    return json.dumps({"numRecords": file.rows, **bounds, "nullCount": {}})


def _told(values: dict[str, int], table: LakeTable) -> dict[str, object]:
    moments = {each.name for each in table.schema if pa.types.is_timestamp(each.type)}
    return {
        name: f"{START + value * MICROSECOND:%Y-%m-%dT%H:%M:%S.%fZ}" if name in moments else value
        for name, value in values.items()
    }


def _file(row: dict[str, Any], partition: str) -> File:
    told = {name: value for name, value in row.items() if isinstance(value, int | datetime.datetime)}
    low = {name.removeprefix("min."): number(value) for name, value in told.items() if name.startswith("min.")}
    high = {name.removeprefix("max."): number(value) for name, value in told.items() if name.startswith("max.")}
    flag = row.get(f"partition.{partition}") if partition else None
    return File(row["path"], row["size_bytes"], row["num_records"] or 0, flag, low, high)
