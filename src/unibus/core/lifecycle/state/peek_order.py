# mypyc: compiled
"""The sequences of an entity's messages in order, for readers that start in the middle: peek, and the oldest message.

The messages are in a dict, in order of their sequences: each sequence is assigned once, in ascending order. A dict
cannot be iterated from a key, and iterates over the slots of removed keys at its front. So the first peek creates a
list of the sequences, which is maintained from then on:

    sequences   3 4 7 8 9 12        ascending; some may have no message any more
    page        bisect to the first, skip and remove those without a message, take `count`

Removing a message does not change the list: the next page over it does, and `compact` does when most are stale. An
entity that is never peeked at has no list.
"""

from bisect import bisect_left, insort
from collections.abc import Container
from typing import Final, final

from mypy_extensions import i64

_SLACK: Final = 1_024


@final
class PeekOrder:
    """The argument `entries` of its methods has the sequences that have a message."""

    def __init__(self, sequences: list[int]) -> None:
        self.sequences = sequences
        self.is_wasteful = False  # More than half of a long list is stale.

    def append(self, sequence: int, held: i64) -> None:
        """Append a new sequence, above all others; `held` is the number of messages."""
        sequences = self.sequences
        if sequences and sequence < sequences[-1]:
            insort(sequences, sequence)  # Only in a reader that replays the log over a snapshot that is partly newer.
        else:
            sequences.append(sequence)
        self.is_wasteful = len(self.sequences) > 2 * held + _SLACK

    def compact(self, entries: Container[int]) -> None:
        self.sequences = [each for each in self.sequences if each in entries]
        self.is_wasteful = False

    def page(self, entries: Container[int], from_sequence: i64, count: int) -> list[int]:
        """Up to `count` sequences that have a message, from that one on."""
        sequences = self.sequences
        begin = bisect_left(sequences, from_sequence)
        found: list[int] = []
        at = begin
        while at < len(sequences) and len(found) < count:
            sequence = sequences[at]
            # Removed messages are detected here, so that `remove` need not search the list.
            if sequence in entries:
                found.append(sequence)
            at += 1
        if at - begin > len(found):
            sequences[begin:at] = found  # The next page does not visit the stale ones again.
        return found

    def index_after(self, sequence: int) -> int:
        """The index in `sequences` of the first one after the given one."""
        return bisect_left(self.sequences, sequence + 1)
