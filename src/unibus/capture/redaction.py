"""What must not be kept, as data: rules by channel, applied in memory before anything touches a disk.

    orders/*=drop                    the body is not kept
    orders=hash                      the SHA-256 of the body instead: equal bodies can be told, nothing can be read
    orders=fields:card.number,email  those fields of a JSON body become "***", in every element of a list on the way
                                     (tuples, sets and text that is JSON are entered too)
    *=headers:authorization          the values of those headers become "***"; `headers` alone keeps none

The channel is a shell pattern: `*` is anything, `?` one character. Capitals make no difference, as they make none in
the names of channels. All rules that fit are applied, in their order.

A rule that cannot look at something takes it away, because nobody knows what is in it: a body that a `fields` rule
cannot read as JSON is dropped, and bytes on the way to a field become "***", and text unless it is JSON too. What such
a rule keeps is what it has read, written anew: a name that stands in an object twice is kept once.

Rules are about bodies and headers. Ids, sessions and keys are in the events themselves: whoever has secrets there
must not send them.
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
    """ConfigInvalid for what is no rule."""
    channels, _, action = text.rpartition("=")
    verb, colon, rest = action.partition(":")
    names = tuple(name.strip() for name in rest.split(",") if name.strip())
    known = verb in (DROP, HASH, FIELDS, HEADERS)
    if not channels or not known or (verb == FIELDS and not names) or (verb in (DROP, HASH) and colon):
        raise ConfigInvalid(f"{text!r} is no rule of redaction", _HINT)
    return RedactionRule(channels, verb, names)


class Redaction:
    """Rules, ready to be applied to many bodies."""

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
        before = after = msgspec.json.decode(content)
        for path in paths:
            after = _blotted(after, path.split("."))
        return (None, True) if after == STARS else (msgspec.json.encode(after), after != before)
    except _UNREADABLE:
        return None, True


def _blotted(value: Any, path: Sequence[str]) -> Any:
    """The same with stars over what a path leads to."""
    if not path:
        return STARS
    if isinstance(value, list):
        return [_blotted(each, path) for each in value]
    if isinstance(value, dict):
        return _blotted_dict(value, path)
    return _blotted_text(value, path) if isinstance(value, str) else value


def _blotted_dict(value: dict[str, Any], path: Sequence[str]) -> Any:
    """A tag of `core/codec/wire.py` stands for what is in it; that of bytes for something that cannot be looked at."""
    if len(value) == 1 and path[0] not in value:
        ((tag, inside),) = value.items()
        if tag == _BYTES:
            return STARS
        if tag in _LISTS:
            return {tag: _blotted(inside, path)}
        if tag == _MAP and isinstance(inside, list):
            return {tag: [_blotted_pair(each, path) for each in inside]}
    return {name: _blotted(each, path[1:]) if name == path[0] else each for name, each in value.items()}


def _blotted_pair(pair: Any, path: Sequence[str]) -> Any:
    """A name and a value, where names are not text."""
    if not isinstance(pair, list) or len(pair) != 2:
        return _blotted(pair, path)
    name = pair[0] if isinstance(pair[0], str) else msgspec.json.encode(pair[0]).decode()
    return [pair[0], _blotted(pair[1], path[1:])] if name == path[0] else pair


def _blotted_text(value: str, path: Sequence[str]) -> str:
    """As text again, if it is JSON that has fields. Other text may be the very thing, or hold it."""
    try:
        inside = msgspec.json.decode(value)
        blotted = _blotted(inside, path) if isinstance(inside, (dict, list, str)) else STARS
        return STARS if blotted == STARS else msgspec.json.encode(blotted).decode()
    except _UNREADABLE:
        return STARS


def _redact_headers(body: Body, names: Sequence[str]) -> None:
    if body.content_type == ENVELOPE:  # It could not be read, and its headers are somewhere in it.
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
