"""The commented file that `unibus init` writes: every setting with its explanation, all at their defaults.

Each setting is commented out, so that a later version can change a default that the user did not choose.
"""

import json
import textwrap
from typing import Final

from unibus.config.settings import setting_fields
from unibus.config.sources import flag_of, variable_of
from unibus.config.values import RULES, shown_value

_HEAD: Final = """\
# Settings of `unibus serve`. A setting that is missing or commented out has its default.
# A flag or an environment variable wins over this file: {flag} or {variable}.
# `unibus config show --origin` shows the effective value of each setting and where it is set.
"""
_RULE: Final = {"name": "app", "rights": ["Listen", "Send"], "primary_key": "44 characters of base64"}


def template(is_toml: bool) -> str:
    """The text of the file, as TOML or as YAML."""
    parts = [_HEAD.format(flag=flag_of("log_level"), variable=variable_of("log_level"))]
    for each in setting_fields():
        value = [_RULE] if each.metadata["kind"] == RULES else shown_value(each, each.default)
        explained = textwrap.fill(each.metadata["text"], 100, initial_indent="# ", subsequent_indent="# ")
        parts.append(f"\n{explained}\n#{each.name}{' = ' if is_toml else ': '}{_written(value, is_toml)}\n")
    return "".join(parts)


def _written(value: object, is_toml: bool) -> str:
    """JSON, which is also YAML; TOML only differs in its inline tables."""
    if is_toml and isinstance(value, list) and value and isinstance(value[0], dict):
        return f"[{', '.join([_table(item) for item in value])}]"
    return json.dumps(value)


def _table(item: dict[str, object]) -> str:
    return f"{{{', '.join([f'{name} = {json.dumps(value)}' for name, value in item.items()])}}}"
