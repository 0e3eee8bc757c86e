"""`unibus declare`: queues, topics, subscriptions and rules as a file says, ours or that of Microsoft's emulator."""

from typing import TYPE_CHECKING, Annotated

import typer

from unibus.cli.bus_option import DEFAULT_STORE, Url, store_url
from unibus.cli.looking import looking, owning
from unibus.cli.output import aside, flush, is_terminal, printable, write_json
from unibus.cli.report import ExitCode
from unibus.errors import StoreUnavailable

if TYPE_CHECKING:
    from unibus.bus.entity_file import Plan, Step
    from unibus.stores.store import EntityInfo


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
    from unibus.bus.entity_file import declare_entities, planned, read_entity_file

    wanted = read_entity_file(file)
    if dry_run:
        plan = planned(_here(url), wanted)
    else:
        with owning(store_url(url, makes=True)) as store:
            plan = planned(store.entities().wait(), wanted)
            declare_entities(store, plan)
    _tell(plan, dry_run)
    return ExitCode.FAILED if plan.conflicts else None


def _here(url: str) -> "list[EntityInfo]":
    """What there is, read beside its owner; a store that is missing has nothing, and is not made."""
    try:
        found = store_url(url)
    except StoreUnavailable:
        return []
    with looking(found) as reader:
        return reader.entities()


def _tell(plan: "Plan", dry_run: bool) -> None:
    if not is_terminal():
        for step in plan.steps:
            write_json(step.as_record())
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


def _line(step: "Step") -> str:
    record = step.as_record()
    line = f"{step.action:<9} {record['kind']} {printable(step.name)}"
    if step.action != "update":
        return line
    return f"{line}: {', '.join(sorted(step.settings))}"
