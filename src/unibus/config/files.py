"""Configuration files, YAML or TOML: names and values, each with its line number.

An error is useful when it names the line, so the readers keep it: YAML's nodes have marks, and in TOML the line that
begins with the name is searched. A file is data: no YAML tag creates an object.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unibus.errors import ConfigInvalid, ExtraMissing
from unibus.extras import install_extra

FILE_NAMES: Final = ("unibus.yaml", "unibus.yml", "unibus.toml")
"""The files that are searched in the working folder when none is named."""

_FILE_BYTES_MAX: Final = 1_048_576


@dataclass(frozen=True)
class FileValue:
    """A value that a file gives."""

    value: object
    line: int


def found_file(folder: Path) -> str:
    """The configuration file of a folder; "" if it has none."""
    found = [name for name in FILE_NAMES if (folder / name).is_file()]
    if len(found) > 1:
        raise ConfigInvalid(
            f"the working folder has several configuration files: {' and '.join(found)}",
            "keep one of them, or name one: --config FILE",
        )
    return str(folder / found[0]) if found else ""


def read_config_file(path: str) -> dict[str, FileValue]:
    """The settings of a file. ConfigInvalid names the file and the line."""
    try:
        with open(path, "rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ConfigInvalid(f"cannot read {path}: {error.strerror or error}", "name a file that exists") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigInvalid(f"{path}, line {line} is not UTF-8", "save the file as UTF-8") from error
    if len(content) > _FILE_BYTES_MAX:
        raise ConfigInvalid(
            f"{path} has more than {_FILE_BYTES_MAX} bytes: too many for a configuration file",
            "name another file: --config FILE",
        )
    return _toml(path, text) if path.endswith(".toml") else _yaml(path, text)


def _toml(path: str, text: str) -> dict[str, FileValue]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        said = str(error)
        at = re.search(r"at line (\d+), column \d+", said)
        line = int(at[1]) if at else text.count("\n") + 1
        what = said.partition(" (at ")[0].rstrip(".").replace("\n", " ")
        raise ConfigInvalid(f"{path}, line {line}: {what}", "correct that line") from error
    lines = text.splitlines()
    return {name: FileValue(value, _line_of(lines, name)) for name, value in document.items()}


def _line_of(lines: list[str], name: str) -> int:
    begins = re.compile(rf"\s*(\[+\s*)?[\"']?{re.escape(name)}[\"']?\s*[=.\]]")
    return next((number for number, line in enumerate(lines, 1) if begins.match(line)), 1)


def _yaml(path: str, text: str) -> dict[str, FileValue]:
    try:
        import yaml
    except ImportError as error:
        raise ExtraMissing(f"reading {path} needs PyYAML", f"{install_extra('server')}; or use a .toml file") from error
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return {}
        if not isinstance(root, yaml.MappingNode):
            raise ConfigInvalid(
                f"{path}, line {root.start_mark.line + 1}: not a mapping", "write lines of `name: value`"
            )
        found: dict[str, FileValue] = {}
        for key_node, value_node in root.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in found:
                raise ConfigInvalid(f"{path}, line {line}: {key} is given twice", f"see line {found[key].line}")
            found[key] = FileValue(loader.construct_object(value_node, deep=True), line)
        return found
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, ConfigInvalid):
            raise
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = 1 if mark is None else mark.line + 1
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error) or "no YAML"
        raise ConfigInvalid(f"{path}, line {line}: {what}", "correct that line") from error
    finally:
        loader.dispose()
