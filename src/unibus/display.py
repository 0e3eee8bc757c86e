"""Texts and HTML of objects for people: one line for a prompt or a log, a table for a notebook.

A base module, because objects of every package have a `repr`. The rules: one line of about 120 characters, which names
the object and its state; no body, no key and no password; it never raises, waits, or opens anything. HTML is escaped,
bounded in rows, and needs nothing from a network.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, fields
from typing import Any, Final

LINE_CHARS_MAX: Final = 120
NAME_CHARS_MAX: Final = 60
CELL_CHARS_MAX: Final = 200
HTML_ROWS_MAX: Final = 50

_PASSWORD: Final = re.compile(r"(?<=://)[^/?#]*@")
_SECRET: Final = re.compile(r"(?i)((?:^|[?&;])[^=&;]*(?:key|password|secret|sig|signature|token|pwd)[^=&;]*=)[^&;]+")


def shortened(text: str, most: int = LINE_CHARS_MAX) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def quoted(text: str, most: int = NAME_CHARS_MAX) -> str:
    """The text in quotes, at most so long. Only as much as is shown is looked at."""
    return repr(shortened(text, most))


def without_secrets(url: str) -> str:
    """A URL that may be shown: without user, password, and options that are keys."""
    return shortened(_SECRET.sub(r"\1***", _PASSWORD.sub("***@", url)))


def described(owner: object, describe: Callable[[], str]) -> str:
    """`<Class text>`."""
    return guarded(owner, lambda: f"<{type(owner).__name__} {describe()}>")


def guarded(owner: object, describe: Callable[[], str]) -> str:
    """A repr never raises: an object that is not complete yet is shown by its class and the error."""
    try:
        return shortened(describe())
    except Exception as error:
        return f"<{type(owner).__name__}, not complete: {type(error).__name__}>"


def given_fields(owner: Any) -> str:
    """A dataclass as the call that makes it, with the fields that differ from their defaults."""
    values = [(each.name, getattr(owner, each.name, None), each.default) for each in fields(owner)]
    given = [
        f"{name}={short_value(value)}" for name, value, default in values if default is MISSING or value != default
    ]
    return shortened(f"{type(owner).__name__}({', '.join(given)})")


def short_value(value: object) -> str:
    """Text and bytes are cut before they are quoted: quoting all of a large one would take long."""
    if isinstance(value, str):
        return quoted(value, 40)
    if isinstance(value, (bytes, bytearray)) and len(value) > 20:
        return f"<{len(value):,} bytes>"
    try:
        return shortened(repr(value), 60)
    except Exception as error:
        return f"<{type(value).__name__}: {type(error).__name__} in its repr>"


def counts_text(counts: Iterable[tuple[int, str]], otherwise: str) -> str:
    """ "3 active, 1 locked": those that are not 0."""
    return ", ".join(f"{count:,} {name}" for count, name in counts if count) or otherwise


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]], more: int = 0) -> str:
    """A table with the first rows, and how many more there are."""
    shown: list[str] = []
    for row in rows:
        if len(shown) < HTML_ROWS_MAX:
            shown.append(f"<tr>{''.join(_cell(value) for value in row)}</tr>")
        else:
            more += 1
    head = "".join(f"<th>{_escaped(name)}</th>" for name in columns)
    rest = f'<tr><td colspan="{max(1, len(columns))}">… {more:,} more</td></tr>' if more else ""
    return (
        f"<table><caption>{_escaped(shortened(caption))}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(shown)}{rest}</tbody></table>"
    )


def _cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        text = value if isinstance(value, str) else short_value(value)
        return f'<td style="text-align: left">{_escaped(shortened(text, CELL_CHARS_MAX))}</td>'
    return f'<td style="text-align: right">{value}</td>'


def _escaped(text: str) -> str:
    import html  # Here: only notebooks show tables, and its list of all entities takes a millisecond.

    return html.escape(text)
