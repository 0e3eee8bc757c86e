"""The index of history in SQL tables (trace_index.py): the blocks in the tables, and the open block in memory.

A crash loses the open block; the next opening builds it again from the log. One thread at a time uses it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from unibus.core.lifecycle.state.changes import Change
from unibus.stores.sql import trace_index
from unibus.stores.sql.tables import Bound, SqlTables
from unibus.stores.sql.trace_index import BUCKETS, Block, bucket_of, crc_of, find

Rows = Callable[[int], Iterable[tuple[int, list[Change]]]]
"""The groups of the log that end after a seq."""


class SqlIndex:
    """`last` is the last change of the log. Changes from before the opening that no block has are read from the log."""

    def __init__(self, tables: SqlTables, last: int, rows_after: Rows) -> None:
        self._tables = tables
        self._rows_after = rows_after
        self._saved: int = tables.value(tables.sql.indexed_to) or 0
        # Not filled from the log at the opening: a start should not read 65,536 changes for a search that may never
        # come.
        self._block = Block(last + 1)

    def add(self, changes: Sequence[Change]) -> None:
        """Add the changes that were just written."""
        self._block.add(changes)

    def is_due(self) -> bool:
        return self._block.next - 1 - self._saved >= trace_index.BLOCK_CHANGES

    def save(self, oldest: int) -> Block:
        """Write the block inside a transaction. The caller calls `saved` with it after the commit."""
        block = self._completed(oldest)
        rows: list[Bound] = []
        for bucket in range(BUCKETS):
            if block.buckets[bucket]:
                rows += (bucket, block.first, block.data(bucket))
        self._tables.replace("trace_index", rows, 3)
        self._tables.replace("trace_blocks", (block.first, block.next - 1), 2)
        return block

    def saved(self, block: Block) -> int:
        """The block is in the file. Returns about how many pages it took."""
        self._saved = block.next - 1
        self._block = Block(block.next)
        return 2 * BUCKETS

    def _completed(self, oldest: int) -> Block:
        """The open block, complete from the end of the saved index, or from the beginning of history."""
        first = max(self._saved + 1, oldest)
        # Complete: it begins where the saved index ends, or history was pruned up to it meanwhile.
        if self._block.first <= first:
            return self._block
        block = Block(first)
        for seq, changes in self._rows_after(first - 1):
            block.add(changes[max(0, first - seq) :])
        return block

    def find(self, message_id: str, oldest: int) -> list[int]:
        """The seqs of changes that may be about the message, in order."""
        self._block = self._completed(oldest)  # Reads the log once after an opening.
        crc = crc_of(message_id)
        # A block is pruned as a whole, so the oldest one may have changes that the log has no more.
        return [seq for seq in (*self._find_saved(crc), *self._block.find(crc)) if seq >= oldest]

    def _find_saved(self, crc: int) -> Iterator[int]:
        for first, data in self._tables.execute(self._tables.sql.bucket, (bucket_of(crc),)):
            yield from find(first, data, crc)

    def prune(self, cut: int) -> None:
        """Delete the blocks that only have changes up to `cut`, inside a transaction."""
        tables = self._tables
        for (first,) in list(tables.execute(tables.sql.blocks_up_to, (cut,))):
            tables.delete_buckets([value for bucket in range(BUCKETS) for value in (bucket, first)])
            tables.execute(tables.sql.delete_block, (first,))
