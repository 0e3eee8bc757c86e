"""How the test of a filter is shown: the expressions as a tree for people, one record each for programs.

The text of a filter or a message is escaped, so that it cannot control the terminal.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from unibus.cli.terminal.output import flush, is_terminal, printable, write_json

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from unibus.core.envelope.message import Message
    from unibus.core.filters.explaining import Explained
    from unibus.errors import EvaluationError

Change = tuple[str, object, object]
"""A property with its old and its new value; None: not set."""

_STYLES: Final = {"TRUE": "green", "FALSE": "red", "UNKNOWN": "yellow", "NULL": "yellow"}
_WINDOW: Final = 70
_BEFORE: Final = 50


def show_parts(parts: "Sequence[Explained]") -> None:
    if is_terminal():
        _print(drawn(parts))
        return
    for part in parts:
        write_json(record_of(part))


def record_of(part: "Explained") -> dict[str, object]:
    from unibus.core.codec.wire import tagged
    from unibus.errors import EvaluationError

    record: dict[str, object] = {"depth": int(part.depth), "text": part.text, "shown": part.shown}
    if isinstance(part.value, EvaluationError):
        return {**record, "error": part.value.what}
    return {**record, "value": tagged(part.value, False)}


def show_verdict(matches: bool, value: object, error: "EvaluationError | None") -> None:
    """`value` is the value of the whole condition: None is UNKNOWN, which does not match but is not FALSE either."""
    if not is_terminal():
        write_json({"matches": None if error else matches, "error": error.what if error else None})
        flush()
    elif error is not None:
        _print(_text("cannot be evaluated", "bold magenta"))
    elif matches:
        _print(_text("matches", "bold green"))
    else:
        _print(_text("does not match" + (": UNKNOWN is not TRUE" if value is None else ""), "bold red"))


def show_action(text: str, changes: Sequence[Change]) -> None:
    from unibus.core.codec.wire import tagged

    if not is_terminal():
        records = [
            {"property": name, "before": tagged(old, False), "after": tagged(new, False)} for name, old, new in changes
        ]
        write_json({"action": text, "changes": records})
        flush()
        return
    _print(_text(text, "bold"))
    for name, old, new in changes:
        _print(_text(f"  {name}  {_shown(old)} → {_shown(new)}"))
    if not changes:
        _print(_text("  changes nothing", "dim"))


def changes_of(before: "Message", after: "Message") -> list[Change]:
    """Every property that an action could have set, where the two differ."""
    from unibus.core.filters.property_lookup import SYSTEM_NAMES, is_writable, system_value

    found: list[Change] = []
    for name in dict.fromkeys([*before.headers, *after.headers]):
        found.append((name, before.headers.get(name), after.headers.get(name)))
    numbers: set[int] = set()
    for name, number in SYSTEM_NAMES.items():
        if is_writable(name) and int(number) not in numbers:
            numbers.add(int(number))
            found.append((f"sys.{name}", system_value(before, number), system_value(after, number)))
    # Compared with their types: 1 == True in Python.
    return [(name, old, new) for name, old, new in found if (type(old), repr(old)) != (type(new), repr(new))]


def drawn(parts: "Sequence[Explained]") -> "Tree":
    from rich.tree import Tree

    roots = [Tree(_label(parts[0]))]
    for part in parts[1:]:
        del roots[part.depth :]
        roots.append(roots[-1].add(_label(part)))
    return roots[0]


def _label(part: "Explained") -> "Text":
    from rich.text import Text

    label = Text(printable(part.text))
    style = "magenta" if part.shown.startswith("error: ") else _STYLES.get(part.shown, "cyan")
    return label.append(f"  {printable(part.shown)}", style=style)


def _shown(value: object) -> str:
    from unibus.core.filters.explaining import Explained

    return "(none)" if value is None else Explained(0, "", value, False).shown


def pointed_at(text: str, position: int) -> str:
    """The line of the text that has the position, and a caret below it. A long line is shown around the position."""
    from rich.cells import cell_len

    start = text.rfind("\n", 0, position) + 1
    line = text[start:].partition("\n")[0].replace("\t", " ")
    column = min(position - start, len(line))
    first = max(0, column - _BEFORE) if len(line) > _WINDOW else 0
    before, after = line[first:column], line[column : first + _WINDOW]
    left = "…" if first else ""
    right = "…" if first + _WINDOW < len(line) else ""
    shown = left + printable(before)
    return f"  {shown}{printable(after)}{right}\n  {' ' * cell_len(shown)}^"


def _text(text: str, style: str = "") -> "Text":
    from rich.text import Text

    return Text(printable(text), style=style)


def _print(shown: "Text | Tree") -> None:
    from rich.console import Console

    Console(highlight=False).print(shown)
