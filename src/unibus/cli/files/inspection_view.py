"""The findings of `unibus check` and `unibus repair`, for people and for programs."""

import enum
from typing import TYPE_CHECKING

import typer

from unibus.cli.terminal.output import flush, is_terminal, write_json
from unibus.counting import counted

if TYPE_CHECKING:
    from unibus.stores.inspection.findings import Inspection

SHOWN_MAX = 50
"""Findings on a terminal; a program gets all of them."""


class Kind(enum.Enum):
    CHECK = "check"
    REPAIR = "repair"


def show(inspection: "Inspection", kind: Kind, file: str) -> None:
    """`file` is the store that was checked, or the new one that was written."""
    if not is_terminal():
        write_json(
            {
                "url": inspection.url,
                "ok": inspection.ok,
                "changes": inspection.changes,
                "entities": inspection.entities,
                "messages": inspection.messages,
                "findings": [{"what": each.what, "effect": each.effect} for each in inspection.findings],
                # `ok` is about the original store; `written` names the new one.
                **({"written": file} if kind is Kind.REPAIR and not inspection.ok else {}),
            }
        )
        flush()
        return
    held = ((inspection.entities, "entity", "entities"), (inspection.messages, "message", "messages"))
    counts = [counted(*each) for each in (*held, (inspection.changes, "change", "changes"))]
    typer.echo(f"{inspection.url}: {', '.join(counts)}")
    for number, each in enumerate(inspection.findings[:SHOWN_MAX], 1):
        typer.echo(f"{number:3}. {each.what}")
        typer.echo(f"     {typer.style('effect:', fg='yellow')} {each.effect}")
    if len(inspection.findings) > SHOWN_MAX:
        typer.echo(f"     … and {len(inspection.findings) - SHOWN_MAX:,} more")
    typer.echo(_closing(inspection, kind, file))


def _closing(inspection: "Inspection", kind: Kind, file: str) -> str:
    found = counted(len(inspection.findings), "finding", "findings")
    if kind is Kind.CHECK:
        if inspection.ok:
            return typer.style("no damage found", fg="green")
        advice = f"`unibus repair {file} --to NEW` writes a new store with everything that can be recovered"
        return f"{typer.style(f'damaged: {found}', fg='red')}; {advice}"
    if inspection.ok:
        return "no damage found, so nothing was written"
    repaired = typer.style(f"repaired: {found}", fg="green")
    return f"{repaired}; the new store is {file}, the original is unchanged"
