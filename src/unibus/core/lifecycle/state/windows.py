# mypyc: compiled
"""Dedup windows after the clock was set back between two runs: none lasts longer than its length from then on.

A key is known from an instant of the wall clock. Where that lies in the future, it was set under a later clock. At open
such keys count from now on, and the log has that as a position of the clock: a recovery makes the same of them.
"""

from typing import Final

from mypy_extensions import i64

from unibus.core.lifecycle.state.dedup_window import DedupWindow
from unibus.core.lifecycle.state.state import MARK_PROCESSED, MARK_SENT, StoreState

CLOCK: Final = "$clock"
"""The name of that position. No caller can give it: names of positions are those of files and streams."""


def has_window_from_later(state: StoreState, now_ns: i64) -> bool:
    """Whether a key is known from an instant that has not come yet."""
    return any(
        [
            marks is not None and marks.last_ns() > now_ns
            for entity in state.entities.values()
            for marks in (entity.marks, entity.processed)
        ]
    )


def cut_windows(state: StoreState, now_ns: i64) -> None:
    for entity in state.entities.values():
        _cut(state, entity.number, MARK_SENT, entity.marks, now_ns)
        _cut(state, entity.number, MARK_PROCESSED, entity.processed, now_ns)


def _cut(state: StoreState, number: int, kind: int, marks: DedupWindow | None, now_ns: i64) -> None:
    keys = [] if marks is None else marks.cut(now_ns)
    if state.saves:
        for key in keys:
            state.unsaved_marks.append((number, kind, key, now_ns))
