"""What must not be kept, as data: rules by channel, applied in memory before anything touches a disk.

    orders/*=drop                    the body is not kept
    orders=hash                      the SHA-256 of the body instead: equal bodies can be told, nothing can be read
    orders=fields:card.number,email  those fields of a JSON body become "***", in every element of a list on the way
    *=headers:authorization          the values of those headers become "***"; `headers` alone keeps none

The channel is a shell pattern: `*` is anything, `?` one character. All rules that fit are applied, in their order. A
body that a `fields` rule cannot read as JSON is dropped, because nobody knows what is in it.

Rules are about bodies and headers. Ids, sessions and keys are in the events themselves: whoever has secrets there
must not send them.
"""

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

import msgspec

from unibus.capture.bodies import Body
from unibus.errors import ConfigInvalid

STARS: Final = "***"
DROP: Final = "drop"
HASH: Final = "hash"
FIELDS: Final = "fields"
HEADERS: Final = "headers"
_HINT: Final = "PATTERN=drop, =hash, =fields:a.b,c or =headers:name, for instance 'orders/*=fields:card.number'"


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    channels: str
    action: str
    names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.channels}={self.action}" + (f":{','.join(self.names)}" if self.names else "")


def rule_of(text: str) -> Rule:
    """ConfigInvalid for what is no rule."""
    channels, _, action = text.rpartition("=")
    verb, colon, rest = action.partition(":")
    names = tuple(name.strip() for name in rest.split(",") if name.strip())
    known = verb in (DROP, HASH, FIELDS, HEADERS)
    if not channels or not known or (verb == FIELDS and not names) or (verb in (DROP, HASH) and colon):
        raise ConfigInvalid(f"{text!r} is no rule of redaction", _HINT)
    return Rule(channels, verb, names)


class Redaction:
    """Rules, ready to be applied to many bodies."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._of_channel = lru_cache(maxsize=4_096)(self._matching)

    def __call__(self, channel: str, body: Body) -> None:
        for rule in self._of_channel(channel):
            if rule.action == HEADERS:
                _redact_headers(body, rule.names)
            else:
                _redact_body(body, rule)

    def _matching(self, channel: str) -> tuple[Rule, ...]:
        return tuple(rule for rule in self._rules if fnmatchcase(channel, rule.channels))


def _redact_body(body: Body, rule: Rule) -> None:
    if body.body is None:
        return
    changed = True
    if rule.action == HASH:
        body.body = hashlib.sha256(body.body).hexdigest().encode()
    elif rule.action == FIELDS:
        body.body, changed = _without_fields(body.body, rule.names)
    else:
        body.body = None
    body.redacted = body.redacted or changed


def _without_fields(content: bytes, paths: Sequence[str]) -> tuple[bytes | None, bool]:
    try:
        document = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, True
    found = [_blot(document, path.split(".")) for path in paths]
    return (msgspec.json.encode(document), True) if any(found) else (content, False)


def _blot(value: Any, path: Sequence[str]) -> bool:
    """Put stars over what a path leads to. True if there was something."""
    if isinstance(value, list):
        return any([_blot(each, path) for each in value])
    if not isinstance(value, dict) or path[0] not in value:
        return False
    if len(path) > 1:
        return _blot(value[path[0]], path[1:])
    value[path[0]] = STARS
    return True


def _redact_headers(body: Body, names: Sequence[str]) -> None:
    if not body.headers:
        return
    if not names:
        body.headers, body.redacted = None, True
        return
    wanted = {name.casefold() for name in names}
    for name in body.headers:
        if name.casefold() in wanted:
            body.headers[name], body.redacted = STARS, True
