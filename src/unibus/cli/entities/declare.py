"""`unibus declare`: create and update entities and rules from a file: ours, or the one of Microsoft's emulator."""

from typing import TYPE_CHECKING, Annotated

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.shared_options import DryRun

if TYPE_CHECKING:
    from unibus.bus.management.settings.declaring import DeclaredEntity, DeclaredPlan


def declare(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON, or the emulator's Config.json.", show_default=False)
    ],
    dry_run: DryRun = False,
    url: Url = DEFAULT_STORE,
) -> ExitCode | None:
    """Create and update entities from a file. A missing store is created.

    It deletes nothing, and the same file again changes nothing. If there are conflicts, all of them are listed and
    nothing is changed.
    """
    with managed(url, makes=True) as bus:
        plan = bus.declare(file, dry_run)
    _report(plan, dry_run)
    return ExitCode.FAILED if plan.conflicts else None


def _report(plan: "DeclaredPlan", dry_run: bool) -> None:
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
        aside("dry run: nothing was changed")


def _line(step: "DeclaredEntity") -> str:
    line = f"{step.action:<9} {step.kind} {printable(step.name)}"
    if step.action != "update":
        return line
    return f"{line}: {', '.join(sorted(step.settings))}"
