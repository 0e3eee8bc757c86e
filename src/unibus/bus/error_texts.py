"""Texts of exceptions that handlers raise. They are the user's objects: none of them may fail or delay a delivery.

Rule: nothing here raises, whatever the methods of the exception do, and the work is bounded, however long its text, its
traceback and the chain of its causes are. So the attributes are read past the class of the exception, which may define
properties of the same names.
"""

import traceback
from itertools import islice
from types import TracebackType
from typing import Final, cast

from unibus.safe_log import printable, type_name

TEXT_CHARS_MAX: Final = 16_384
"""The text of an exception; four times what a dead-lettered message has of it."""

CHAINED_MAX: Final = 20
"""Exceptions of one chain or group that are looked at."""

FRAMES_MAX: Final = 2_000
"""Frames of one traceback that are looked at: more than the recursion limit allows for one raise."""

TRACE_CHARS_MAX: Final = 500_000
"""A traceback that is shown whole: more than FRAMES_MAX frames have."""

NOTES_MAX: Final = 100
"""Notes of one exception that are shown."""

_OURS: Final = "unibus.bus."

_SHOWN_FRAMES_MAX: Final = 50
"""Frames of a traceback that is too long to be shown whole."""


def error_text(error: BaseException | None) -> str:
    if error is None:
        return ""
    try:
        # By str itself: `__str__` may return an object of a subclass, which has its own slices and formats.
        return str.__getitem__(str(error), slice(TEXT_CHARS_MAX))
    except BaseException as broken:
        # An exception whose __str__ raises must not cost us the message. SystemExit, too: it comes from __str__.
        return f"(no text: {type_name(broken)})"


def described(error: BaseException | None) -> str:
    return "nothing was raised" if error is None else f"{type_name(error)}: {error_text(error)}"


def traceback_of(error: BaseException) -> TracebackType | None:
    # Past the class of the exception: a property `__traceback__` of the user could raise, or take for ever.
    return cast("TracebackType | None", BaseException.__dict__["__traceback__"].__get__(error))


def user_trace(trace: TracebackType | None) -> TracebackType | None:
    """The frames of the user's code in the last raise of an exception; None if the bus raised it.

        frames of the bus ── handler ── what it calls ─┬─ frames of the bus, if one of its methods raised
                                                       └─ the same again, older: an object that was raised before

    A program that raises one exception object again and again collects the frames of all its raises in it. Those of the
    older ones begin with the function of the bus that calls handlers, and are left out.
    """
    # The function of the bus that called the handler: where it appears again further down, an older raise begins.
    caller = ("", "")
    while trace is not None and _module(trace).startswith(_OURS):
        caller = (_module(trace), trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    found: list[TracebackType] = []
    while trace is not None and len(found) < FRAMES_MAX:
        module = _module(trace)
        if not module.startswith(_OURS):
            found.append(trace)
        elif (module, trace.tb_frame.f_code.co_name) == caller:
            break
        trace = trace.tb_next
    kept: TracebackType | None = None
    for each in reversed(found):
        # New objects, from the innermost outwards: the user's traceback must not be changed.
        line: int | None = each.tb_lineno  # None for code without line numbers.
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, line or 0)
    return kept


def _module(trace: TracebackType) -> str:
    # Not the path of its file: compiled modules have the paths of the machine that built them.
    # By dict itself, and only if it is text: code that is run by exec() has the globals that it was given.
    name: object = dict.get(trace.tb_frame.f_globals, "__name__")
    return name if type(name) is str else ""


def failure_text(error: BaseException) -> str:
    """The traceback that a dead-lettered message has: without frames of the bus, if any other frame is left."""
    trace = traceback_of(error)
    return trace_text(error, user_trace(trace) or trace)


def related(error: BaseException) -> list[BaseException]:
    """The exception, those that caused it, and those in its group: the first CHAINED_MAX of them, each once."""
    found = [error]
    # The list grows while it is iterated: a search in breadth, which ends because each exception is added once, and
    # after CHAINED_MAX.
    for each in found:
        linked = [BaseException.__dict__[name].__get__(each) for name in ("__cause__", "__context__")]
        if issubclass(type(each), BaseExceptionGroup):
            linked += BaseExceptionGroup.__dict__["exceptions"].__get__(each)[:CHAINED_MAX]
        found += [other for other in linked if other is not None and not any(other is known for known in found)]
        if len(found) >= CHAINED_MAX:
            return found[:CHAINED_MAX]
    return found


def trace_lines(trace: TracebackType | None) -> frozenset[tuple[str, int]]:
    """The lines of a traceback, each once: an exception object that is raised again has those of all its raises."""
    lines: set[tuple[str, int]] = set()
    for frame, line in islice(traceback.walk_tb(trace), FRAMES_MAX):
        lines.add((frame.f_code.co_filename, line))
    return frozenset(lines)


def trace_text(error: BaseException, trace: TracebackType | None) -> str:
    """The exception with its traceback, as Python shows it; a shorter text if that would be too long or fails."""
    why = "too long"
    try:
        # Measured before it is formatted: to format a long chain takes time in proportion to all its frames.
        if _is_short(error, trace):
            text = "".join(traceback.format_exception(type(error), error, trace))
            if len(text) < TRACE_CHARS_MAX:  # More only with very long lines of source.
                return printable(text).rstrip("\n")
    except BaseException as broken:  # Raised by a method of the exception.
        why = type_name(broken)
    return printable(_short_trace(error, trace, why))


def _is_short(error: BaseException, trace: TracebackType | None) -> bool:
    chain = related(error)
    traces = [trace, *[traceback_of(each) for each in chain[1:]]]
    return len(chain) < CHAINED_MAX and all(
        len(error_text(each)) < TEXT_CHARS_MAX and _has_short_notes(each) and _is_short_trace(shown)
        for each, shown in zip(chain, traces, strict=True)
    )


def _has_short_notes(error: BaseException) -> bool:
    """Whether its notes are what `add_note` makes, and not too long. Notes of its class may be anything."""
    classes = type.__dict__["__mro__"].__get__(type(error))
    if any("__notes__" in type.__dict__["__dict__"].__get__(each) for each in classes):
        return False
    notes = BaseException.__dict__["__dict__"].__get__(error).get("__notes__", [])
    if type(notes) is not list or len(notes) > NOTES_MAX:
        return False
    return all(type(each) is str for each in notes) and sum(map(len, notes)) < TEXT_CHARS_MAX


def _is_short_trace(trace: TracebackType | None) -> bool:
    # Looks at no more frames than it counts.
    return next(islice(traceback.walk_tb(trace), FRAMES_MAX // 2, None), None) is None


def _short_trace(error: BaseException, trace: TracebackType | None, why: str) -> str:
    # Outermost frames first: if the same object was raised before, these are the frames of its last raise.
    found = islice(traceback.walk_tb(trace), _SHOWN_FRAMES_MAX)
    frames = [f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}\n' for frame, line in found]
    return f"Traceback, shortened ({why}):\n{''.join(frames)}{described(error)}"
