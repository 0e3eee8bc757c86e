"""The server side of an import, piece by piece: every message exactly once, also after a crash of client or server.

A client reads and verifies the file, and sends its lines in this order (`bus/history/import_` is the client side):

    entities    all entity lines: missing ones are created; with a conflict nothing is created
    messages    message lines: one batch, which advances the position to `before` + their number
    state       one session line: its state, and the position `before` + 1
    end         all entity lines again: disabled entities are disabled; the position advances once more

A piece whose response was lost can be sent again: PositionMoved then means that it was applied. The name of the
position is the digest of the file, so a client that was killed reads the position and continues there.
"""

from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Raw

from unibus.bus.history.export_lines import EntityLine, Line, MessageLine, SessionLine, line_of
from unibus.bus.history.import_ import POSITION, StoreTarget
from unibus.bus.management.messages.documents import Int64
from unibus.bus.management.messages.peeking import PAGE_MAX
from unibus.errors import DecodeError, UsageError
from unibus.stores.seam.store import Store

L = TypeVar("L", EntityLine, MessageLine, SessionLine)

LINES_MAX: Final = 50_000
"""More than the entities of a namespace; message lines are PAGE_MAX at most."""

NAME_CHARS_MAX: Final = 256

RawLine = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]


class PositionRecord(msgspec.Struct, frozen=True):
    """The progress of an import or relay, as the store has it; 0 for an unknown name."""

    position: int


class PositionsRecord(msgspec.Struct, frozen=True):
    """Named positions, by name."""

    positions: dict[str, int]


class PositionDeletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PositionMoved, and nothing is deleted, if the position is not at `expected`."""

    name: Annotated[str, Meta(min_length=1)]
    expected: Annotated[int, Meta(ge=0, le=2**53 - 1)]  # Exact in every JSON tool; a position counts rows or changes.


class ImportRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One piece; see the module. `lines` are lines of an export, unchanged."""

    phase: Literal["entities", "messages", "state", "end"]
    lines: Annotated[list[RawLine], Meta(max_length=LINES_MAX)]
    before: Int64 = 0


class ImportAnswer(msgspec.Struct, frozen=True):
    """`position` is the `before` of the next piece. `is_kept`: the session had another state, and keeps it."""

    position: int
    is_kept: bool = False


def checked_position(name: str) -> str:
    """The name of the position of an import: a client must not change other positions."""
    if not name.startswith(POSITION) or name == POSITION or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise UsageError(f"{name!r:.60} is not the name of an import", f"use {POSITION} and the digest of the file")
    return name


def import_piece(store: Store, name: str, request: ImportRequest) -> ImportAnswer:
    """Apply one piece; it blocks on the store. DecodeError, and nothing is changed, for an invalid line."""
    target, before = StoreTarget(store), request.before
    # All lines before the first change: an invalid one changes nothing.
    lines = [line_of(bytes(raw), number) for number, raw in enumerate(request.lines, 1)]
    if request.phase == "entities":
        target.declare(_all(lines, EntityLine))
        # The position does not move: declaring again is idempotent, so this phase may be repeated as a whole.
        return ImportAnswer(before)
    if request.phase == "end":
        target.finish(name, before, _all(lines, EntityLine))
        return ImportAnswer(before + 1)
    if request.phase == "state":
        (line,) = _all(lines, SessionLine, 1)
        return ImportAnswer(before + 1, not target.set_state(name, before, line))
    messages = _all(lines, MessageLine, PAGE_MAX)
    target.store(name, before, messages)
    return ImportAnswer(before + len(messages))


def _all(lines: list[Line], kind: type[L], most: int = LINES_MAX) -> list[L]:
    found = [line for line in lines if isinstance(line, kind)]
    if len(found) != len(lines):
        raise DecodeError("the request has lines of another kind than its phase", "send lines of one kind per phase")
    if len(found) > most or (most < LINES_MAX and not found):
        raise UsageError(f"the request has {len(found)} lines, this phase takes 1 to {most}")
    return found
