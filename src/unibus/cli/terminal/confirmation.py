"""Asks before a command changes many messages. Without a terminal there is no answer, so `--yes` is required."""

import sys

import typer

from unibus.cli.terminal.output import is_terminal
from unibus.errors import UsageError


def confirm(question: str, has_dry_run: bool = False) -> None:
    """Raises typer.Abort for the answer no, and UsageError without a terminal to ask at."""
    if not (is_terminal() and sys.stdin.isatty()):
        or_try = ", or --dry-run to see what it would do" if has_dry_run else ""
        raise UsageError(
            "a confirmation is required, and there is no terminal to ask for it",
            f"add --yes to run without asking{or_try}",
        )
    typer.confirm(question[0].upper() + question[1:], abort=True)
