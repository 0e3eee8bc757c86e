"""What `unibus check` and `unibus repair` found, for people and for programs."""

import enum
from typing import TYPE_CHECKING

import typer

from unibus.cli.output import flush, is_terminal, write_json

if TYPE_CHECKING:
    from unibus.stores.inspection.findings import Inspection

SHOWN_MAX = 50
"""Findings on a terminal; a program gets all of them."""


class Kind(enum.Enum):
    CHECK = "check"
    REPAIR = "repair"


def show(inspection: "Inspection", kind: Kind, file: str) -> None:
    """`file` is what was checked, or the new store."""
    if not is_terminal():
        write_json(
            {
                "url": inspection.url,
                "ok": inspection.ok,
                "changes": inspection.changes,
                "entities": inspection.entities,
                "messages": inspection.messages,
                "findings": [{"what": each.what, "effect": each.effect} for each in inspection.findings],
                **({"written": file} if kind is Kind.REPAIR and not inspection.ok else {}),
            }
        )
        flush()
        return
    typer.echo(
        f"{inspection.url}: {inspection.entities:,} entities, {inspection.messages:,} messages, "
        f"{inspection.changes:,} changes"
    )
    for number, each in enumerate(inspection.findings[:SHOWN_MAX], 1):
        typer.echo(f"{number:3}. {each.what}")
        typer.echo(f"     {typer.style('effect:', fg='yellow')} {each.effect}")
    if len(inspection.findings) > SHOWN_MAX:
        typer.echo(f"     … and {len(inspection.findings) - SHOWN_MAX:,} more")
    typer.echo(_closing(inspection, kind, file))


def _closing(inspection: "Inspection", kind: Kind, file: str) -> str:
    count = len(inspection.findings)
    if kind is Kind.CHECK:
        if inspection.ok:
            return typer.style("nothing is wrong", fg="green")
        advice = f"`unibus repair {file} --to NEW` writes a new store with everything that can be proven"
        return f"{typer.style(f'damaged: {count:,} findings', fg='red')}; {advice}"
    if inspection.ok:
        return "nothing is wrong, so nothing was written"
    repaired = typer.style(f"repaired: {count:,} findings", fg="green")
    return f"{repaired}; the new store is {file}, the original is unchanged"
