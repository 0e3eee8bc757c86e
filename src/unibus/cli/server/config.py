"""`unibus config`: the settings that a server in this folder would have, and the source of each."""

from typing import Annotated

import typer

from unibus.cli.terminal.output import flush, is_terminal, printable, write_json
from unibus.config.sources import DEFAULT, read_configuration

config = typer.Typer(name="config", help="Show the settings of `unibus serve`.", no_args_is_help=True)


@config.callback()
def start() -> None:
    """Show the settings of `unibus serve`."""


@config.command()
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Show the source of each value, too.")] = False,
    file: Annotated[str, typer.Option("--config", metavar="FILE", help="Another configuration file.")] = "",
) -> None:
    """Show the settings that `unibus serve` would have in this folder without flags. Keys are not shown."""
    found = read_configuration(file=file)
    records = found.records()
    for warning in found.warnings:
        typer.echo(f"note: {printable(warning)}", err=True)
    if not is_terminal():
        for record in records:
            write_json(record if origin else {name: record[name] for name in ("name", "value")})
        flush()
        return
    for record in records:
        line = f"{record['name']:<24}{printable(_shown(record['value']))}"
        where = f"  ({printable(str(record['origin']))})" if origin else ""
        typer.secho(f"{line}{where}", bold=record["origin"] != DEFAULT)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join([str(item) for item in value]) or "–" if isinstance(value, list) else str(value) or "–"
