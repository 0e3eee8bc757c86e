"""Pieces of an import into a store that a server owns. Each message once, whatever happens to client and server.

A client reads and checks the file, and sends its lines in this order; `bus/history/import_` has the client's side.

    entities    all lines of entities: created where missing, and nothing is created if anything conflicts
    messages    lines of messages: one batch, together with the position `before` + their number
    state       one line of a session: its state, together with the position `before` + 1
    end         all lines of entities again: what was disabled is disabled; the position goes one step behind all others

A piece whose answer was lost can be sent again: PositionMoved says that it has had its effect. The position has the
name of the file's content, so that a client that was killed asks for it and goes on there.
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
"""More than a namespace has entities; lines of messages are PAGE_MAX at most."""

NAME_CHARS_MAX: Final = 256

RawLine = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]


class PositionRecord(msgspec.Struct, frozen=True):
    """How far work has come whose effect is in the store; 0 for a name that is new."""

    position: int


class ImportRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See the module. `lines` are lines of an export, each as it is in the file."""

    phase: Literal["entities", "messages", "state", "end"]
    lines: Annotated[list[RawLine], Meta(max_length=LINES_MAX)]
    before: Int64 = 0


class ImportAnswer(msgspec.Struct, frozen=True):
    """`position` is the `before` of the next piece. `is_kept`: the session has another state, and keeps it."""

    position: int
    is_kept: bool = False


def checked_position(name: str) -> str:
    """The name of an import's position: other positions are not for imports."""
    if not name.startswith(POSITION) or name == POSITION or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise UsageError(f"{name!r:.60} is no name of an import", f"{POSITION} and the sum of the file")
    return name


def import_piece(store: Store, name: str, request: ImportRequest) -> ImportAnswer:
    """One piece. DecodeError, and nothing changed, for a line that is none. It waits for the store."""
    target, before = StoreTarget(store), request.before
    lines = [line_of(bytes(raw), number) for number, raw in enumerate(request.lines, 1)]
    if request.phase == "entities":
        target.declare(_all(lines, EntityLine))
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
        raise DecodeError("a line of another kind", "one phase has lines of one kind")
    if len(found) > most or (most < LINES_MAX and not found):
        raise UsageError(f"{len(found)} lines", f"1 to {most} in this phase")
    return found
