# mypyc: compiled
"""The sequences of an entity's messages in order, for those who begin in the middle: peek, and the oldest message.

The messages are in a dict, in order of their sequences: a sequence is given once, and always the next one. A dict
cannot begin at a key, and walks over what was removed from its front. So the first peek makes a list of the sequences,
which grows with the entity from then on:

    sequences   3 4 7 8 9 12        ascending; may hold some whose message is gone
    page        bisect to the first, skip what is gone and remove it from the list, take `count`

Nothing is done when a message goes: the page that meets it removes it, and `compact` drops all of them when they are
the larger part. An entity that is never looked into has no list.
"""

from bisect import bisect_left, insort
from collections.abc import Container
from typing import Final, final

from mypy_extensions import i64

_SLACK: Final = 1_024


@final
class PeekOrder:
    """`entries` in its methods tells which sequences still have a message."""

    def __init__(self, sequences: list[int]) -> None:
        self.sequences = sequences
        self.is_wasteful = False  # More than half of a long list is gone.

    def append(self, sequence: int, held: i64) -> None:
        """A new sequence, above all others; `held` is how many messages there are."""
        sequences = self.sequences
        if sequences and sequence < sequences[-1]:
            insort(sequences, sequence)  # Only in a reader that plays the log over a snapshot that is partly newer.
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
            if sequence in entries:
                found.append(sequence)
            at += 1
        if at - begin > len(found):
            sequences[begin:at] = found  # Once per message that is gone: the next page does not meet it again.
        return found

    def index_after(self, sequence: int) -> int:
        """Where in `sequences` those after that one begin."""
        return bisect_left(self.sequences, sequence + 1)
