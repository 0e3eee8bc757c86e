"""A group whose commands are imported only when they are called: a start of the command line runs one of them.

`--help` of the group lists all commands. It uses the summaries of the table, so it imports no command either; a test
compares them with the docstrings of the commands.
"""

import copy
import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import typer
import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup


class CommandEntry(NamedTuple):
    """The module of a command, and the summary in the help of its group: the first line of the command's own help.

    The command, or the group of commands, has the name of its module there.
    """

    module: str
    summary: str


class OnDemand(TyperGroup):
    """`table` has the commands in the order of `--help`."""

    table: ClassVar[Mapping[str, CommandEntry]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys((*self.table, *self.commands)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # An unknown name imports all commands: typer then suggests the nearest one.
        for name in [cmd_name] if cmd_name in self.table else self.table:
            if name not in self.commands:
                self.commands[name] = _load(name, self.table[name].module)
                _prepare_help(self.commands[name])
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        listing = copy.copy(self)
        summaries = {name: TyperCommand(name, help=entry.summary) for name, entry in self.table.items()}
        listing.commands = {**summaries, **self.commands}
        super(OnDemand, listing).format_help(ctx, formatter)


def _prepare_help(command: Any) -> None:
    """Makes each paragraph one line: typer keeps the line ends of a docstring, which is wider than most terminals.

    Hides the type of an argument, such as `<str>`: the metavar and the text say more.
    """
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join([" ".join(each.split()) for each in paragraphs])
    for param in command.params:
        if isinstance(param, TyperArgument):
            param.type = copy.copy(param.type)  # Types are shared with options, which keep theirs.
            param.type.get_metavar = _no_metavar  # type: ignore[method-assign]
    for each in getattr(command, "commands", {}).values():
        _prepare_help(each)


def _no_metavar(param: Any, ctx: Any) -> str | None:
    return ""


def _load(name: str, module: str) -> Any:
    """A command is a typed function, a group of commands is a Typer."""
    found = getattr(importlib.import_module(module), module.rpartition(".")[2])
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        return typer.main.get_command(single)
    group = typer.main.get_group(found)
    group.name = name
    return group
