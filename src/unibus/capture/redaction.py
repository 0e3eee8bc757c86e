"""Redaction rules by channel: what must not be stored, applied in memory before anything reaches a disk.

    orders/*=drop                    the body is not stored
    orders=hash                      the SHA-256 of the body instead: equal bodies can be recognised, none can be read
    orders=fields:card.number,email  those fields of a JSON body become "***", in every element of a list on the path
                                     (tuples, sets and text that is JSON are entered too)
    *=headers:authorization          the values of those headers become "***"; `headers` alone removes all headers

The channel is a shell pattern: `*` matches any text, `?` one character, case-insensitively, as channel names are. All
rules that match are applied, in their order.

A rule fails closed: what it cannot inspect it removes. A body that a `fields` rule cannot parse as JSON is dropped, and
bytes on the path to a field become "***", and so does text that is no JSON. What a `fields` rule keeps is encoded again
from what it has parsed: of a name that an object has twice one value is kept.

Rules cover bodies and headers only. Ids, sessions and keys are part of the events: do not put secrets into them.
"""

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

import msgspec

from unibus.capture.bodies import ENVELOPE, Body
from unibus.errors import ConfigInvalid

STARS: Final = "***"
DROP: Final = "drop"
HASH: Final = "hash"
FIELDS: Final = "fields"
HEADERS: Final = "headers"
_BYTES: Final = "$bytes"
_MAP: Final = "$map"
_LISTS: Final = frozenset({"$tuple", "$set", "$frozenset"})
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError)
_HINT: Final = "PATTERN=drop, =hash, =fields:a.b,c or =headers:name, for instance 'orders/*=fields:card.number'"


class RedactionRule(msgspec.Struct, frozen=True, omit_defaults=True):
    channels: str
    action: str
    names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.channels}={self.action}" + (f":{','.join(self.names)}" if self.names else "")


def rule_of(text: str) -> RedactionRule:
    """Parse a rule. ConfigInvalid for a text that is none."""
    channels, _, action = text.rpartition("=")
    verb, colon, rest = action.partition(":")
    names = tuple(name.strip() for name in rest.split(",") if name.strip())
    known = verb in (DROP, HASH, FIELDS, HEADERS)
    if not channels or not known or (verb == FIELDS and not names) or (verb in (DROP, HASH) and colon):
        raise ConfigInvalid(f"{text!r} is not a redaction rule", _HINT)
    return RedactionRule(channels, verb, names)


class Redaction:
    """Applies rules to many bodies; remembers which rules match a channel."""

    def __init__(self, rules: Sequence[RedactionRule]) -> None:
        self._rules = tuple(rules)
        self._of_channel = lru_cache(maxsize=4_096)(self._matching)

    def __call__(self, channel: str, body: Body) -> None:
        for rule in self._of_channel(channel):
            if rule.action == HEADERS:
                _redact_headers(body, rule.names)
            else:
                _redact_body(body, rule)

    def _matching(self, channel: str) -> tuple[RedactionRule, ...]:
        name = channel.casefold()
        return tuple(rule for rule in self._rules if fnmatchcase(name, rule.channels.casefold()))


def _redact_body(body: Body, rule: RedactionRule) -> None:
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
        # `_redacted` makes new containers and never changes its argument, so `before` stays for the comparison.
        before = after = msgspec.json.decode(content)
        for path in paths:
            after = _redacted(after, path.split("."))
        # Stars alone mean that nothing could be inspected: the body is dropped.
        return (None, True) if after == STARS else (msgspec.json.encode(after), after != before)
    except _UNREADABLE:
        return None, True


def _redacted(value: Any, path: Sequence[str]) -> Any:
    """The value with stars in place of what the path names."""
    if not path:
        return STARS
    if isinstance(value, list):
        return [_redacted(each, path) for each in value]
    if isinstance(value, dict):
        return _redacted_dict(value, path)
    return _redacted_text(value, path) if isinstance(value, str) else value


def _redacted_dict(value: dict[str, Any], path: Sequence[str]) -> Any:
    """A tag of `core/codec/wire.py` is transparent: the path continues inside it. Tagged bytes cannot be inspected."""
    if len(value) == 1 and path[0] not in value:
        ((tag, inside),) = value.items()
        if tag == _BYTES:
            return STARS
        if tag in _LISTS:
            return {tag: _redacted(inside, path)}
        if tag == _MAP and isinstance(inside, list):
            return {tag: [_redacted_pair(each, path) for each in inside]}
    return {name: _redacted(each, path[1:]) if name == path[0] else each for name, each in value.items()}


def _redacted_pair(pair: Any, path: Sequence[str]) -> Any:
    """One key and value of a dict whose keys are not all text."""
    if not isinstance(pair, list) or len(pair) != 2:
        return _redacted(pair, path)
    name = pair[0] if isinstance(pair[0], str) else msgspec.json.encode(pair[0]).decode()
    return [pair[0], _redacted(pair[1], path[1:])] if name == path[0] else pair


def _redacted_text(value: str, path: Sequence[str]) -> str:
    """Text that is JSON with fields is entered, and encoded as text again. Other text may contain the secret: stars."""
    try:
        inside = msgspec.json.decode(value)
        redacted = _redacted(inside, path) if isinstance(inside, (dict, list, str)) else STARS
        return STARS if redacted == STARS else msgspec.json.encode(redacted).decode()
    except _UNREADABLE:
        return STARS


def _redact_headers(body: Body, names: Sequence[str]) -> None:
    if body.content_type == ENVELOPE:  # It could not be decoded, and its headers are somewhere in it.
        body.body, body.redacted = None, True
    if not body.headers:
        return
    if not names:
        body.headers, body.redacted = None, True
        return
    wanted = {name.casefold() for name in names}
    for name in body.headers:
        if name.casefold() in wanted:
            body.headers[name], body.redacted = STARS, True
