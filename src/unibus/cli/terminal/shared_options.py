"""Options that several commands have, declared once: the same spelling, the same meaning and the same help text.

`--limit N|all` means "at most N" in every command that lists or receives. `--follow`, `--yes`, `--json`, `--csv` and
`--dry-run` are here, too; durations are read by durations.py and instants by moments.py.
"""

from typing import Annotated, Final, TypeAlias

import typer

from unibus.errors import UsageError

ALL: Final = "all"
LIMIT_NAMES: Final = ("--limit", "-n")
LIMIT_METAVAR: Final = "N|all"

Limit: TypeAlias = Annotated[
    str, typer.Option(*LIMIT_NAMES, metavar=LIMIT_METAVAR, help="At most this number; all: no limit.")
]
Follow: TypeAlias = Annotated[bool, typer.Option("--follow", "-f", help="Continue until Ctrl-C.")]
Yes: TypeAlias = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask for confirmation. Required without a terminal.")
]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Only report what would be done.")]
Raw: TypeAlias = Annotated[bool, typer.Option("--raw", help="Print the bodies only.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="JSON Lines, even on a terminal.")]
Csv: TypeAlias = Annotated[bool, typer.Option("--csv", help="Comma-separated values, with a header line.")]


def limit_of(text: str, least: int = 1, most: int | None = None) -> int | None:
    """The number, or None for `all`. Raises UsageError for other texts, and for a number that is out of range."""
    given = text.strip().lower()
    if given == ALL:
        return None
    # Not `int` alone, which also reads 1_000 and digits of other scripts.
    number = int(given) if given.isascii() and given.isdecimal() and len(given) <= 18 else -1
    if number < least:
        raise UsageError(f"--limit {text!r} is not a number from {least}", "for example 10; all means no limit")
    if most is not None and number > most:
        raise UsageError(f"--limit {text} is more than {most:,}, the highest limit here", f"use at most {most}")
    return number
