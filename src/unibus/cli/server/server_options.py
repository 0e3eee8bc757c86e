"""The flags of `unibus serve`, generated from the table of settings, so that none can be missing.

A flag that is not given is None, and the next source decides. Numbers arrive as text: the table of settings checks
them, with the same errors for a flag, a variable and a file.
"""

from collections.abc import Iterator
from dataclasses import Field, field, make_dataclass
from typing import Annotated, Any, Final

import typer

from unibus.config.settings import setting_fields
from unibus.config.sources import flag_of
from unibus.config.values import PORT, SECONDS, SWITCH, TEXTS, WHOLE, shown_value

CONFIG_FILE: Final = "config"
_METAVARS: Final = {PORT: "PORT", SECONDS: "SECONDS", WHOLE: "NUMBER"}
# Panels of the help text, each from its first setting on. Tables of their own: in one table the longest name, the
# longest `--no-` name and the longest value share a line of 80 columns, and names are cut off.
_PANELS: Final = {
    "tls": "TLS and access",
    "entities": "Entities",
    "header_bytes_max": "Limits",
    "log_level": "Log",
    "metrics": "Metrics",
}
_CONFIG_HELP: Final = (
    "The configuration file, YAML or TOML. Default: UNIBUS_CONFIG, else unibus.yaml or unibus.toml in this folder."
)


def _options() -> Iterator[tuple[str, Any, Any]]:
    panel = None
    for each in setting_fields():
        panel = _PANELS.get(each.name, panel)
        if each.metadata["flag"]:
            yield _option(each, panel)


def _option(each: "Field[Any]", panel: str | None) -> tuple[str, Any, Any]:
    name, kind = each.name, each.metadata["kind"]
    shown = shown_value(each, each.default)
    text = each.metadata["text"] + (f" (default: {_short(shown)})" if shown not in ("", []) else "")
    flag = flag_of(name)
    if name == "store":
        argument = typer.Argument(metavar="[FILE or URL]", help=text, show_default=False)
        return name, Annotated[str | None, argument], field(default=None)
    if kind == SWITCH:
        switch = typer.Option(f"{flag}/--no-{flag[2:]}", help=text, rich_help_panel=panel)
        return name, Annotated[bool | None, switch], field(default=None)
    option = typer.Option(flag, help=text, metavar=_METAVARS.get(kind, "TEXT"), rich_help_panel=panel)
    return name, Annotated[list[str] | None if kind == TEXTS else str | None, option], field(default=None)


def _short(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(value) if isinstance(value, list) else str(value)


ServeOptions: Final = make_dataclass(
    "ServeOptions",
    [
        *_options(),
        (CONFIG_FILE, Annotated[str, typer.Option("--config", metavar="FILE", help=_CONFIG_HELP)], field(default="")),
    ],
    frozen=True,
)


def flags_of(options: object) -> dict[str, object]:
    """The settings that were given as flags. A repeatable flag also takes a list with commas."""
    given: dict[str, object] = {}
    for each in setting_fields():
        value = getattr(options, each.name, None)
        if value:
            given[each.name] = ",".join(value) if isinstance(value, list) else value
        elif value is False or value == "":
            given[each.name] = value
    return given
