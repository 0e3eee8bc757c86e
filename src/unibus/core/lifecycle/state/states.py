# mypyc: compiled
"""The lifecycle of a message as a table: its states, and which change leads from which state to which.

    sent ──▶ SCHEDULED ──activated──▶ ACTIVE ──delivered──▶ LOCKED ──▶ completed, dead_lettered, expired …: GONE
                 ▲                       ▲                   │  │
                 └──────(delayed)────────┴────returned───────┘  └──deferred──▶ DEFERRED ──delivered──▶ LOCKED

A message that was deferred is DEFERRED again when its lock ends. No command records a change that the table does not
allow; in a journal such a change means that the journal is damaged.
"""

from typing import Final

from mypy_extensions import i64

SCHEDULED: Final = 1
ACTIVE: Final = 2
LOCKED: Final = 3
DEFERRED: Final = 4
GONE: Final = 5

STATE_NAMES: Final[dict[int, str]] = {
    SCHEDULED: "scheduled",
    ACTIVE: "active",
    LOCKED: "locked",
    DEFERRED: "deferred",
    GONE: "gone",
}

_HELD: Final = frozenset({SCHEDULED, ACTIVE, LOCKED, DEFERRED})

TRANSITIONS: Final[dict[str, tuple[frozenset[int], frozenset[int]]]] = {
    "delivered": (frozenset({ACTIVE, DEFERRED}), frozenset({LOCKED})),
    "renewed": (frozenset({LOCKED}), frozenset({LOCKED})),
    "returned": (frozenset({LOCKED}), frozenset({ACTIVE, DEFERRED, SCHEDULED})),
    "deferred": (frozenset({LOCKED}), frozenset({DEFERRED})),
    "activated": (frozenset({SCHEDULED}), frozenset({ACTIVE})),
    "completed": (frozenset({ACTIVE, LOCKED, DEFERRED}), frozenset({GONE})),
    "cancelled": (frozenset({SCHEDULED}), frozenset({GONE})),
    "expired": (frozenset({ACTIVE}), frozenset({GONE})),
    "dead_lettered": (frozenset({SCHEDULED, ACTIVE, LOCKED, DEFERRED}), frozenset({GONE})),
    "routed": (frozenset({SCHEDULED, ACTIVE}), frozenset({GONE})),
    "purged": (_HELD, frozenset({GONE})),
    "moved": (_HELD, frozenset({GONE})),
}
"""By the name of a change: the states before it, and the states after it."""


_FROM: Final[dict[str, int]] = {
    name: sum([1 << state for state in found]) for name, (found, _left) in TRANSITIONS.items()
}


def may(change: str, state: i64) -> bool:
    return _FROM[change] >> state & 1 == 1
