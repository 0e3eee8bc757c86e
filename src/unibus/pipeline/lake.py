"""A lake: a folder with Delta tables, made from the history of one or more buses.

    LAKE/lake.json        {"format": 1, "sources": [...]}: where its history was read from last
    LAKE/<table>/         Delta tables, see tables.py; Polars, DuckDB and Spark with Delta's jar read them too;
                          each partition has a folder: messages/open=true/
    LAKE/plan.json        the current batch, see plan.py
    LAKE/swap.json        the current exchange after a rebuild, see swap.py
    LAKE/upkeep.json      exists while files are merged or deleted, see upkeep.py
    LAKE/.staging/        results of tasks for the driver; deleted after each batch
    LAKE/lake.lock        locked by the one process that changes the lake

Readers need no lock: each table changes by single commits, and a reader has one version of a table. The tables of a
batch are committed one after the other, so for a moment one may be a batch ahead of another; `batches` is the last.

Spark gets the list of files from delta-rs and a given schema: it infers nothing, and needs no jar beyond those of
pyspark. Nothing here uses a SparkContext, so a session of Spark Connect works too.
"""

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from unibus.capture import schema
from unibus.capture.event_source import EventSource
from unibus.capture.sources import CaptureSource, open_sources
from unibus.errors import LakeBusy, StoreBusy, StoreUnavailable, StoreVersion, UsageError
from unibus.pipeline.storage.delta import DeltaFolder
from unibus.pipeline.storage.tables import BATCHES, QUARANTINE, TABLES
from unibus.stores.files.disk import RealFiles, replace
from unibus.stores.files.local_folder import local_folder
from unibus.stores.files.owner import Owner
from unibus.stores.files.private import make_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = 1
ABOUT: Final = "lake.json"
PLAN: Final = "plan.json"
SWAP: Final = "swap.json"
UPKEEP: Final = "upkeep.json"
_BESIDE: Final = ("lake.", "serve.", PLAN)
"""Prefixes of files that may exist before lake.json: of a server, and of an interrupted first batch."""
_LOST: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")
"""In a path: delta-rs decodes %20 in some places and not in others, and is as inconsistent with a backslash."""
_PATTERN: Final = re.compile(r"[\\{}\[\]*?]")


class LakeMetadata(msgspec.Struct):
    format: int = FORMAT
    sources: list[str] = []


class Lake:
    """Opening a lake creates nothing: the first batch creates the folder."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(local_folder(path, "a lake"))
        if found := _LOST.search(self.path.replace(os.sep, "/")):
            raise UsageError(
                f"a lake cannot be at {self.path!r}: Delta tables cannot be read from a path with {found[0]!r}",
                "choose a path without it",
            )
        self._folders = {name: DeltaFolder(os.path.join(self.path, name), table) for name, table in TABLES.items()}
        self._owner: Owner | None = None
        self._held = 0
        self._mutex = threading.RLock()
        self._about()  # Raises StoreVersion for a lake of a newer version.

    # The folder and its lock

    def exists(self) -> bool:
        return os.path.isfile(os.path.join(self.path, ABOUT))

    def _about(self) -> LakeMetadata:
        path = os.path.join(self.path, ABOUT)
        if not os.path.exists(path):
            return LakeMetadata()
        try:
            with open(path, "rb") as file:
                about = msgspec.json.decode(file.read(), type=LakeMetadata)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreUnavailable(f"{path} is damaged: {error}", "create a new lake from its sources") from error
        if about.format > FORMAT:
            raise StoreVersion(f"{path} has format {about.format}, and this version reads {FORMAT}", "upgrade unibus")
        return about

    def sources(self) -> list[str]:
        """The names of the sources of the last run."""
        return self._about().sources

    def remember(self, sources: Sequence[EventSource]) -> None:
        """Save the sources by the names that the user gave. Written to a new file and renamed: never half written."""
        names = list(dict.fromkeys(source.named for source in sources))
        if not self.exists() or self.sources() != names:
            make_folder(self.path)
            data = msgspec.json.format(msgspec.json.encode(LakeMetadata(FORMAT, names)), indent=1) + b"\n"
            replace(RealFiles(), os.path.join(self.path, ABOUT), data)

    def check_folder(self) -> None:
        """UsageError for a folder with other files: vacuum would delete them, since no table names them."""
        if not self.exists():
            foreign = sorted(name for name in os.listdir(self.path) if not name.startswith(_BESIDE))
            if foreign:
                raise UsageError(
                    f"{self.path} is not a lake, and contains {foreign[0]!r}", "name a new or an empty folder"
                )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Required to change the lake. LakeBusy names the process that holds it. Reentrant in one process."""
        with self._mutex:
            fresh = not self._held
            if fresh:
                make_folder(self.path)
                try:
                    self._owner = Owner(os.path.join(self.path, "lake"))
                except StoreBusy as error:
                    raise LakeBusy(
                        f"{self.path} is locked by {error.holder}", "one process at a time: wait for it"
                    ) from None
            self._held += 1
        try:
            if fresh and self.is_interrupted():
                self._repair()
            yield
        finally:
            with self._mutex:
                self._held -= 1
                if not self._held and self._owner is not None:
                    self._owner.release()
                    self._owner = None

    def is_interrupted(self) -> bool:
        """Whether a process changes the lake now, or was interrupted while it did.

        Only then may a log that cannot be read be repaired: otherwise it is damaged for another, unknown reason.
        """
        return any(os.path.exists(os.path.join(self.path, name)) for name in (PLAN, SWAP, UPKEEP))

    def _repair(self) -> None:
        """The caller of `lock` continues an interrupted plan or swap; interrupted upkeep needs no continuation."""
        for folder in self._folders.values():
            folder.repair_log()
        if os.path.exists(os.path.join(self.path, UPKEEP)):
            self._end_upkeep()

    @contextmanager
    def upkeep(self) -> Iterator[None]:
        """For changes of tables that are not part of a batch."""
        replace(RealFiles(), os.path.join(self.path, UPKEEP), b"{}\n")
        yield
        self._end_upkeep()

    def _end_upkeep(self) -> None:
        for folder in self._folders.values():
            folder.settle()
        os.remove(os.path.join(self.path, UPKEEP))

    # Tables and batches

    def folder(self, table: str) -> DeltaFolder:
        return self._folders[table]

    def tables(self) -> list[str]:
        """The tables that exist."""
        return [name for name, folder in self._folders.items() if folder.exists()]

    def files(self, table: str) -> list[str]:
        """Paths of the Parquet files of the current version."""
        folder = self._folders[table]
        return [folder.full_path(file) for file in folder.files()]

    def version(self, table: str) -> int:
        """Changes with each commit: a cache of answers compares it."""
        return self._folders[table].version()

    def done(self) -> int:
        """The number of the last complete batch."""
        return self._folders[BATCHES.name].done()

    def last_batch(self) -> dict[str, Any] | None:
        found = self.last_batches(1)
        return found[0] if found else None

    def last_batches(self, count: int) -> list[dict[str, Any]]:
        """The newest first."""
        folder = self._folders[BATCHES.name]
        files = sorted(folder.files(), key=lambda file: -file.high.get("number", 0))
        rows: list[dict[str, Any]] = []
        for file in files:
            if len(rows) >= count and file.high.get("number", 0) < rows[-1]["number"]:
                break
            rows = sorted([*rows, *folder.read([file]).to_pylist()], key=lambda row: -row["number"])[:count]
        return rows

    def positions(self) -> dict[str, int]:
        """The last seq that was read of each domain."""
        last = self.last_batch()
        return {} if last is None else {each["domain"]: each["up_to"] for each in last["ranges"]}

    # For Spark

    def view(self, spark: "SparkSession", table: str) -> "DataFrame":
        """All rows of the current version of a table. An additive table may have several rows for one key."""
        from pyspark.sql import functions

        folder = self._folders[table]
        wanted = folder.schema()
        partition = folder.table.partition
        files = folder.files()
        if not partition:
            return read_parquet(spark, wanted, [folder.full_path(file) for file in files])
        stored = pa.schema([each for each in wanted if each.name != partition])
        halves = [
            read_parquet(spark, stored, [folder.full_path(file) for file in files if file.open is flag])
            .withColumn(partition, functions.lit(flag))
            .select(*wanted.names)
            for flag in (False, True)
        ]
        return halves[0].unionByName(halves[1])

    def register(self, spark: "SparkSession", sources: Sequence[EventSource] | None = None) -> None:
        """Temporary views of all tables, and of `events` and `bodies` in its sources."""
        for name in TABLES:
            self.view(spark, name).createOrReplaceTempView(name)
        opened = open_sources(self.sources()) if sources is None and self.sources() else sources or []
        try:
            for name in HISTORY:
                self.history(spark, name, opened).createOrReplaceTempView(name)
        finally:
            if sources is None:
                for source in opened:
                    source.close()

    def history(self, spark: "SparkSession", name: str, sources: Sequence[EventSource]) -> "DataFrame":
        """`events` or `bodies`: from segments, which Spark reads directly and so faster, and from stores."""
        columns, paths_of = HISTORY[name]
        bad = self._unreadable(sources)
        rows = read_parquet(spark, columns, [path for path in paths_of(sources) if path not in bad])
        for source in sources:
            if not isinstance(source, CaptureSource):
                rows = rows.unionByName(read_store(spark, name, source.where).select(*columns.names))
        return rows

    def _unreadable(self, opened: Sequence[EventSource]) -> set[str]:
        """Segments in the quarantine: reading one of them would fail the whole query."""
        folder = self._folders[QUARANTINE.name]
        rows = folder.read(folder.files(), ("domain", "file")).to_pylist()
        places = {source.domain: source.where for source in opened}
        return {os.path.join(places.get(row["domain"], ""), row["file"]) for row in rows if row["file"]}


def read_parquet(spark: "SparkSession", columns: pa.Schema, paths: Sequence[str]) -> "DataFrame":
    """Files with these columns; null if a file is older than a column.

    Spark reads a path as a glob pattern: its special characters are escaped with a backslash.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    wanted = from_arrow_schema(columns)
    if not paths:
        return spark.createDataFrame([], wanted)
    return spark.read.schema(wanted).parquet(*[_PATTERN.sub(r"\\\g<0>", path) for path in paths])


def read_store(spark: "SparkSession", name: str, url: str) -> "DataFrame":
    """`events` or `bodies` of a store, while another process may own it."""
    from pyspark.sql import functions

    reader = spark.read.format("unibus")
    if name != "bodies":
        return reader.load(url)
    found = reader.option("bodies", "true").load(url)
    # Every event with data has a content type, even if the body is empty.
    return found.where(found["content_type"].isNotNull()).withColumn("redacted", functions.lit(False))


def segment_paths(sources: Sequence[EventSource]) -> list[str]:
    """The segments of all capture directories among the sources."""
    found = [each for each in sources if isinstance(each, CaptureSource)]
    return [piece.path for each in found for piece in each.pieces(0, each.last()) if piece.path is not None]


def body_paths(sources: Sequence[EventSource]) -> list[str]:
    found = [each for each in sources if isinstance(each, CaptureSource)]
    return [
        os.path.join(each.where, segment.bodies.file)
        for each in found
        for segment in each.segments(0, each.last())
        if segment.bodies is not None
    ]


HISTORY: Final = {"events": (schema.EVENTS, segment_paths), "bodies": (schema.BODIES, body_paths)}
"""Views beside the tables: their columns, and the function that lists their files."""
