"""Writes into a bus: `df.write.format("unibus")` and `df.writeStream.format("unibus")`. Each row is sent exactly once.

    executors   rows ─▶ commands ─▶ files in the staging folder           rows.py, staging.py
    driver      list of the files ─▶ transactions, with a position in each ─▶ files deleted      publishing.py

A batch is identified by (query, batch). The query of a stream is identified by its checkpoint, a batch write by the
options `query` and `batch`; without them each write is a new one. The id of the checkpoint is a file in it, and a
property of every task of the stream: it distinguishes two streams with the same option `query`.
"""

import os
import tempfile
import uuid
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from unibus.counting import counted
from unibus.errors import BusError, NameInvalid, UsageError
from unibus.pipeline.connector.options import WriteOptions, named
from unibus.pipeline.connector.publishing import Effect, PublishProgress, publish
from unibus.pipeline.connector.rows import Shape
from unibus.pipeline.connector.staging import Staged, Staging
from unibus.stores.files.local_folder import FILE, local_folder, scheme_of
from unibus.stores.schemes import kept_in

ONLY_BATCH: Final = "0"
_QUERY_ID: Final = "sql.streaming.queryId"
"""A local property that Spark sets for all jobs of a stream: the id in its checkpoint."""

Messages = list[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """One `save`. Created once, in the planner; executors and the commit get a copy."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        _check_append(overwrite)
        if options.batch and not options.query:
            raise UsageError("the option batch has no effect without the option query", "set the option query too")
        self._options = options
        self._shape = Shape(schema, options.channel)
        self._query = options.query or f"write-{uuid.uuid4().hex}"
        self._batch = options.batch or ONLY_BATCH
        self._staging = Staging(_staging_folder(options), self._query, self._batch)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._staging.write(iterator, self._shape, self._options.rows_per_transaction)

    def commit(self, messages: Messages) -> None:
        name = f"spark/{self._query}/{self._batch}"
        effect = Effect(self._query, name, 0, self._batch, is_remembered=bool(self._options.query))
        progress = PublishProgress()
        rows = self._options.rows_per_transaction
        try:
            publish(self._options.url, effect, self._staging, _staged(messages), rows, progress)
        except BusError as error:
            if effect.is_remembered:
                raise
            if not progress.rows:
                self._staging.remove()
                raise
            stored = counted(progress.rows, "row")
            hint = f"continue with the option query {self._query!r}: the {stored} in the bus are not written again"
            raise type(error)(error.what, f"{error.hint}; {hint}" if error.hint else hint) from error
        self._staging.remove()

    def abort(self, messages: Messages) -> None:
        _abort(self._staging, messages, self._batch)


class StreamWriter(DataSourceStreamArrowWriter):
    """A stream. Spark creates a new one for every commit, so its state is only in the options and the checkpoint."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        _check_append(overwrite)
        if options.batch:
            raise UsageError("the option batch is not for streams: Spark numbers their batches", "leave it out")
        self._options = options
        self._shape = Shape(schema, options.channel)
        self._query = options.query or _query_id(options.checkpoint)
        self._staging = Staging(_staging_folder(options), self._query)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        staged = self._staging.write(iterator, self._shape, self._options.rows_per_transaction)
        task = TaskContext.get()
        staged.checkpoint = (task and task.getLocalProperty(_QUERY_ID)) or ""
        return staged

    def commit(self, messages: Messages, batchId: int) -> None:
        staged = _staged(messages)
        # The tasks know it even if the checkpoint is on another file system.
        checkpoint = next((each.checkpoint for each in staged if each.checkpoint), "")
        checkpoint = checkpoint or _query_id(self._options.checkpoint)
        effect = Effect(self._query, f"spark/{self._query}", batchId, str(batchId), checkpoint=checkpoint)
        rows = self._options.rows_per_transaction
        if publish(self._options.url, effect, self._staging, staged, rows, PublishProgress()):
            self._staging.remove()
        else:
            self.abort(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:
        _abort(self._staging, messages, str(batchId))


def _check_append(overwrite: bool) -> None:
    if overwrite:
        raise UsageError("messages in a bus cannot be overwritten", 'use mode("append"), or outputMode("append")')


def _staged(messages: Messages) -> list[Staged]:
    return [each for each in messages if isinstance(each, Staged)]


def _abort(staging: Staging, messages: Messages, batch: str) -> None:
    """Delete the files, except those of a batch that is published in part: a retry has to publish the same rows."""
    listing = staging.listed(batch)
    if listing is None and not _other_lists(staging):
        staging.remove()
    else:
        staging.remove_files(_staged(messages), listing)


def _other_lists(staging: Staging) -> bool:
    try:
        return any(name.endswith(".json") for name in os.listdir(staging.folder))
    except OSError:
        return False


# The identity of a query, and its folder


def local_path(place: str) -> str | None:
    """The folder that a path or a file: URL names; None for other file systems."""
    return os.path.abspath(local_folder(place, "a folder")) if scheme_of(place) in ("", FILE) else None


def _query_id(checkpoint: str) -> str:
    """The id that Spark gave the query at its first start."""
    folder = local_path(checkpoint) if checkpoint else None
    if folder is None:
        raise UsageError(
            "the query has no name and no local checkpoint, so a retry would write its rows twice",
            "set the option checkpointLocation to a folder, or the option query to a name",
        )
    path = os.path.join(folder, "metadata")
    try:
        with open(path, "rb") as file:
            return named("query", msgspec.json.decode(file.read(), type=dict[str, str])["id"])
    except (OSError, msgspec.MsgspecError, KeyError, NameInvalid) as error:
        raise UsageError(f"{path} does not have the id of the query: {error}", "set the option query") from error


def _staging_folder(options: WriteOptions) -> str:
    """The same for every attempt: in the checkpoint, which all machines see; for a batch write beside the bus."""
    if options.staging:
        folder = local_path(options.staging)
        if folder is None:
            raise UsageError(
                f"rows cannot be staged in {options.staging}: it is not a folder", "name a folder that all machines see"
            )
        return folder
    checkpoint = local_path(options.checkpoint) if options.checkpoint else None
    if checkpoint is not None:
        return os.path.join(checkpoint, "unibus-staging")
    parts = urlsplit(options.url)
    if kept_in(parts.scheme):
        return f"{unquote(parts.path)[1:].rstrip('/')}.staging"
    return os.path.join(tempfile.gettempdir(), "unibus-staging")
