"""Reads the settings of a server: a flag wins over a variable, that over the file, that over the default. Each value is
kept with its origin.

An unknown name in a file is an error, because a misspelt limit must not be ignored. An unknown variable is only
reported if it resembles a setting: other programs have variables that begin with UNIBUS_ too, and a container
orchestrator sets UNIBUS_PORT=tcp://… for a service of that name.
"""

import dataclasses
import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from unibus.config.files import found_file, read_config_file
from unibus.config.settings import ServerSettings, setting_fields
from unibus.config.values import checked_value, shown_value
from unibus.errors import ConfigInvalid
from unibus.near_names import hint_for_name

PREFIX: Final = "UNIBUS_"
FILE_VARIABLE: Final = "UNIBUS_CONFIG"
DEFAULT: Final = "default"
_STORE_ALIAS: Final = "UNIBUS_URL"
_OF_COMMANDS: Final = (_STORE_ALIAS, "UNIBUS_KEY", "UNIBUS_CONNECTION_STRING", "UNIBUS_CA", "UNIBUS_LAKE")
_OF_BUILDS: Final = ("UNIBUS_PURE", "UNIBUS_REQUIRE_COMPILED")
_OTHERS: Final = frozenset({FILE_VARIABLE, *_OF_COMMANDS, *_OF_BUILDS, "UNIBUS_SPARK", "UNIBUS_CACHE"})


@dataclass(frozen=True)
class Configuration:
    """The settings, the origin of each, and warnings for the operator about how they were read."""

    settings: ServerSettings
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = field(default=())

    def records(self) -> list[dict[str, object]]:
        """Name, value and origin of each setting, without secrets."""
        return [
            {
                "name": each.name,
                "value": shown_value(each, getattr(self.settings, each.name)),
                "origin": self.origins[each.name],
            }
            for each in setting_fields()
        ]


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def variable_of(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def read_configuration(
    flags: Mapping[str, object] | None = None,
    variables: Mapping[str, str] | None = None,
    file: str = "",
    folder: Path | None = None,
) -> Configuration:
    """The settings of a server. ConfigInvalid names the wrong value and where it is set.

    `flags` are settings by name, None for a flag that was not given. `file` wins over UNIBUS_CONFIG, and that over the
    configuration file of the folder.
    """
    variables = os.environ if variables is None else variables
    path = file or variables.get(FILE_VARIABLE, "") or found_file(folder or Path())
    known = {each.name: each for each in setting_fields()}
    values: dict[str, Any] = {}
    origins = dict.fromkeys(known, DEFAULT)
    warnings: list[str] = []
    if path:
        _take_file(path, known, values, origins)
    _take_variables(variables, known, values, origins, warnings)
    for name, given in (flags or {}).items():
        if given is not None:
            where = "argument" if name == "store" else flag_of(name)
            values[name], origins[name] = _checked(known[name], given, where), where
    return Configuration(_settings(values, origins), origins, tuple(warnings))


def _settings(values: dict[str, Any], origins: Mapping[str, str]) -> ServerSettings:
    try:
        return ServerSettings(**values, given=frozenset(values))
    except ConfigInvalid as error:
        # The error is about a combination of settings: name the origin of each.
        named = [name for name in values if name in error.what]
        places = ", ".join(dict.fromkeys([origins[name] for name in named]))
        raise ConfigInvalid(f"{places}: {error.what}" if places else error.what, error.hint) from None


def _take_file(
    path: str, known: "Mapping[str, dataclasses.Field[Any]]", values: dict[str, Any], origins: dict[str, str]
) -> None:
    for name, found in read_config_file(path).items():
        where = f"{path}, line {found.line}"
        if name not in known:
            raise ConfigInvalid(f"{where}: unknown setting {name!r:.60}", near_setting(name))
        values[name], origins[name] = _checked(known[name], found.value, where), where


def _take_variables(
    variables: Mapping[str, str],
    known: "Mapping[str, dataclasses.Field[Any]]",
    values: dict[str, Any],
    origins: dict[str, str],
    warnings: list[str],
) -> None:
    by_variable = {variable_of(name): name for name in known}
    if variables.get(_STORE_ALIAS) and variable_of("store") not in variables:
        by_variable[_STORE_ALIAS] = "store"
    for variable, given in variables.items():
        name = by_variable.get(variable)
        if name is None:
            _warn_of(variable, by_variable, warnings)
        elif name == "port" and given.startswith("tcp://"):
            warnings.append(f"{variable}={given} is ignored: a container orchestrator sets it, and it is not a port")
        else:
            values[name], origins[name] = _checked(known[name], given, variable), variable


def misspelt_variables(variables: Mapping[str, str]) -> list[str]:
    """A warning for each variable that resembles one of a command or of a server."""
    known = dict.fromkeys([variable_of(each.name) for each in setting_fields()], "")
    warnings: list[str] = []
    for variable in variables:
        if variable not in known:
            _warn_of(variable, known, warnings)
    return warnings


def _warn_of(variable: str, by_variable: Mapping[str, str], warnings: list[str]) -> None:
    if not variable.startswith(PREFIX) or variable in _OTHERS:
        return
    # Compared without the prefix, which alone would make short names similar.
    names = [each.removeprefix(PREFIX) for each in (*by_variable, *_OF_COMMANDS, FILE_VARIABLE)]
    near = difflib.get_close_matches(variable.removeprefix(PREFIX), names, 1, 0.66)
    if near:
        warnings.append(f"{variable} is unknown and ignored; did you mean {PREFIX}{near[0]}?")


def _checked(each: "dataclasses.Field[Any]", given: object, where: str) -> object:
    try:
        return checked_value(each, given)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{where}: {error.what}", error.hint) from None


def near_setting(name: str) -> str:
    """A hint with the setting of the most similar name."""
    names = [each.name for each in setting_fields()]
    return hint_for_name(name.lower().replace("-", "_"), names, "`unibus config show` lists the settings")
