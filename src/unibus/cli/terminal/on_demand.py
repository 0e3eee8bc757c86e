"""A group of commands whose files are imported when a command is asked for: most starts need one of them."""

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar

import typer
import typer.main
from typer.core import TyperGroup


class OnDemand(TyperGroup):
    """`homes` names the module of each command; the command, or the group of commands, is what has its name there."""

    homes: ClassVar[Mapping[str, str]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys((*self.homes, *self.commands)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # All of them for a name that is not there, so that one that is near can be suggested.
        for name in [cmd_name] if cmd_name in self.homes else self.homes:
            if name not in self.commands:
                self.commands[name] = _load(name, self.homes[name])
        return self.commands.get(cmd_name)


def _load(name: str, home: str) -> Any:
    """A command is a typed function, a group of commands is a Typer."""
    found = getattr(importlib.import_module(home), home.rpartition(".")[2])
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        return typer.main.get_command(single)
    group = typer.main.get_group(found)
    group.name = name
    return group
