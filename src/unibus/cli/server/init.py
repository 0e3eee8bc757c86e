"""`unibus init`: write a commented configuration file as a starting point."""

from pathlib import Path
from typing import Annotated, Final

import typer

from unibus.config.template import template
from unibus.errors import UsageError

_SUFFIXES: Final = (".yaml", ".yml", ".toml")


def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="unibus.yaml, or a name that ends with .toml.")] = (
        "unibus.yaml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write a configuration file with all settings as comments.

    `unibus serve` reads unibus.yaml or unibus.toml of its working directory.
    """
    path = Path(file)
    if path.suffix not in _SUFFIXES:
        raise UsageError(
            f"{file} has the name of neither a YAML nor a TOML file", f"end it with {', '.join(_SUFFIXES)}"
        )
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as opened:
            opened.write(template(path.suffix == ".toml"))
    except FileExistsError as error:
        raise UsageError(f"{file} exists already", "choose another name, or replace it with --force") from error
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}", "choose another folder") from error
    typer.echo(f"wrote {file}; `unibus serve` reads it in this folder")
