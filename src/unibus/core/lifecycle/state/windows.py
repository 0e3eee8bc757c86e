# mypyc: compiled
"""Limits dedup windows after the clock was set back between two runs: none lasts longer than its duration from then on.

The instant of a key is wall time. If it is in the future, the key was added under a later clock. At open the instants
of such keys are set to now, and the log records that as a position named CLOCK, so that a recovery does the same.
"""

from typing import Final

from mypy_extensions import i64

from unibus.core.lifecycle.state.dedup_window import DedupWindow
from unibus.core.lifecycle.state.state import MARK_PROCESSED, MARK_SENT, StoreState

CLOCK: Final = "$clock"
"""The name of that position. No caller can use it: positions are named after files and streams."""


def has_window_from_later(state: StoreState, now_ns: i64) -> bool:
    """Whether the instant of a key is in the future."""
    return any(
        [
            marks is not None and marks.last_ns() > now_ns
            for entity in state.entities.values()
            for marks in (entity.marks, entity.processed)
        ]
    )


def set_position(state: StoreState, name: str, position: int, at_ns: i64) -> None:
    """Apply a change of a named position. 0 is where every position begins: it deletes the name."""
    if position:
        state.positions[name] = position
    else:
        state.positions.pop(name, None)
    if name == CLOCK:
        cut_windows(state, at_ns)


def cut_windows(state: StoreState, now_ns: i64) -> None:
    for entity in state.entities.values():
        _cut(state, entity.number, MARK_SENT, entity.marks, now_ns)
        _cut(state, entity.number, MARK_PROCESSED, entity.processed, now_ns)


def _cut(state: StoreState, number: int, kind: int, marks: DedupWindow | None, now_ns: i64) -> None:
    keys = [] if marks is None else marks.cut(now_ns)
    if state.saves:
        for key in keys:
            # The row in the snapshot has the later instant: it must be written again.
            state.unsaved_marks.append((number, kind, key, now_ns))
