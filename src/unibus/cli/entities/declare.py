"""`unibus declare`: queues, topics, subscriptions and rules as a file says, ours or that of Microsoft's emulator."""

from typing import TYPE_CHECKING, Annotated

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.report import ExitCode

if TYPE_CHECKING:
    from unibus.bus.management.settings.declaring import DeclaredEntity, DeclaredPlan


def declare(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON; or the emulator's Config.json.", show_default=False)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be done, and do nothing.")] = False,
    url: Url = DEFAULT_STORE,
) -> ExitCode | None:
    """Make and change entities as a file says; the store is made if it is missing.

    Nothing is deleted. The same file again changes nothing. If anything is in its way, all of that is named and
    nothing is done.
    """
    with managed(url, makes=True) as bus:
        plan = bus.declare(file, dry_run)
    _tell(plan, dry_run)
    return ExitCode.FAILED if plan.conflicts else None


def _tell(plan: "DeclaredPlan", dry_run: bool) -> None:
    if not is_terminal():
        for step in plan.steps:
            write_json(step)
        for conflict in plan.conflicts:
            write_json({"action": "conflict", "what": conflict})
        flush()
        return
    for step in plan.steps:
        typer.echo(_line(step))
    for conflict in plan.conflicts:
        typer.secho(f"conflict  {printable(conflict)}", fg="red")
    if dry_run:
        aside("nothing was done")


def _line(step: "DeclaredEntity") -> str:
    line = f"{step.action:<9} {step.kind} {printable(step.name)}"
    if step.action != "update":
        return line
    return f"{line}: {', '.join(sorted(step.settings))}"
