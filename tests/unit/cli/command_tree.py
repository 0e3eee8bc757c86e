"""All commands of the shell, and a parser of command lines that runs nothing."""

from collections.abc import Iterator, Sequence
from typing import Any

import typer.main

from unibus.cli.main import app


def all_commands() -> Iterator[tuple[str, Any]]:
    """The path of each command, such as "unibus dlq ls", with the command."""
    yield from _below("unibus", typer.main.get_command(app))


def _below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(typer.Context(command)):
            yield from _below(f"{path} {name}", command.get_command(typer.Context(command), name))


def parse(words: Sequence[str]) -> None:
    """Parses the words after `unibus`. Raises what typer raises for a wrong call."""
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="unibus", **command.context_settings)
    rest = list(words)
    while hasattr(command, "list_commands"):
        rest = _without_own_options(command, context, rest)
        if not rest:
            return
        name, command, rest = command.resolve_command(context, rest)
        context = typer.Context(command, info_name=name, parent=context)
    command.make_context(context.info_name, rest, parent=context.parent)


def _without_own_options(command: Any, context: Any, words: list[str]) -> list[str]:
    _, rest, _ = command.make_parser(context).parse_args(args=words)
    return list(rest)
