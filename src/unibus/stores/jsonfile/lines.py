"""A change as a line of the log, and back: one JSON object with names that people understand.

    {"op":"sent","seq":2,"ts":"2026-01-31T12:00:00.123456789Z","channel":"orders","entity":1,…,"message":{…},"crc":"5d0c7a31"}

`seq` is the number of the change; `group` that of the last change of its group, if the group has more than one.
`synced` is how many bytes of the file were on disk when the line was written: by it recovery tells a torn end from
damage (log.py). `channel` is for people only. `crc` is the CRC-32 of everything before it in the line.

The forms are derived from the records of core/lifecycle/state/changes.py, field by field, so a new field or kind
appears here by itself.
"""

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple, get_args

import msgspec

from unibus.core.lifecycle.state.changes import Change
from unibus.errors import BusError, StoreVersion
from unibus.stores.jsonfile.forms import (
    NO_DOCUMENT,
    MessageRefForm,
    checksum,
    data_of,
    instant_of,
    instant_text,
    message_form,
    overlay_form,
    overlay_of,
    who_form,
    who_of,
)

_CRC_HEAD: Final = b',"crc":"'
_CRC_TAIL: Final = b'"}'
_CRC_CHARS: Final = len(_CRC_HEAD) + 8 + len(_CRC_TAIL)

# The fields of every line before and after those of the change.
_HEAD: Final[list[Any]] = [("seq", int), ("ts", str), ("channel", str, "")]
_TAIL: Final[list[Any]] = [("group", int, 0), ("synced", int, 0)]

# Fields that have another form in JSON than in memory.
_FORMS: Final[dict[str, list[Any]]] = {
    "at_ns": [],
    "who": [("who", MessageRefForm)],
    "data": [("message", msgspec.Raw, NO_DOCUMENT), ("data", bytes, b"")],
    "overlay": [("overlay", dict[str, object] | None, None), ("overlay_packed", bytes, b"")],
}


class JsonLine(NamedTuple):
    seq: int
    group: int  # The last seq of its group.
    synced: int
    change: Change


def op_of(change: type) -> str:
    """`DeadLettered` is "dead_lettered"."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", change.__name__).lower()


def _form_of(change: Any) -> Any:
    fields = list(_HEAD)
    for field in msgspec.structs.fields(change):
        if field.name in _FORMS:
            fields += _FORMS[field.name]
        elif field.default is msgspec.NODEFAULT:
            fields.append((field.name, field.type))
        else:
            fields.append((field.name, field.type, field.default))
    options = {"tag": op_of(change), "tag_field": "op", "omit_defaults": True, "kw_only": True}
    return msgspec.defstruct(f"{change.__name__}Line", fields + _TAIL, **options)  # type: ignore[arg-type]


CHANGES: Final[tuple[Any, ...]] = get_args(Change)
_FORM_OF: Final[dict[Any, Any]] = {change: _form_of(change) for change in CHANGES}
_PLAIN: Final[dict[Any, list[str]]] = {
    change: [name for name in change.__struct_fields__ if name not in _FORMS] for change in CHANGES
}


class _Plan:
    """How a change is built from its form: the names of its fields there, and the positions of those to convert."""

    def __init__(self, change: Any) -> None:
        names = ["ts", *change.__struct_fields__[1:]]  # The first field of every change is `at_ns`.
        self.change = change
        self.read: Callable[[Any], tuple[Any, ...]] = attrgetter(*names)
        self.who, self.data, self.overlay = [
            names.index(name) if name in names else 0 for name in ("who", "data", "overlay")
        ]


_PLANS: Final[dict[Any, _Plan]] = {form: _Plan(change) for change, form in _FORM_OF.items()}
_encode: Final = msgspec.json.Encoder().encode


def _union() -> Any:
    union = _FORM_OF[CHANGES[0]]
    for change in CHANGES[1:]:
        union = union | _FORM_OF[change]
    return union


_decode: Final[Callable[[bytes], Any]] = msgspec.json.Decoder(_union()).decode


def line_of(seq: int, change: Any, channel: str, group: int, synced: int) -> bytes:
    kind = type(change)
    values = {name: getattr(change, name) for name in _PLAIN[kind]}
    names = kind.__struct_fields__
    if "who" in names:
        values["who"] = who_form(change.who)
    if "overlay" in names:
        values["overlay"], values["overlay_packed"] = overlay_form(change.overlay)
    if "data" in names:
        values["message"], values["data"] = message_form(change.data)
    form = _FORM_OF[kind](seq=seq, ts=instant_text(change.at_ns), channel=channel, group=group, synced=synced, **values)
    return sealed(_encode(form))


def mentions(text: str) -> bytes:
    """The bytes that a line contains if this text is one of its values."""
    return _encode(text)


def sealed(text: bytes) -> bytes:
    """A JSON object as a line with its checksum."""
    # The object without its last brace, so that the checksum becomes its last field and the line stays valid JSON.
    body = text[:-1]
    return b"%b%b%b%b\n" % (body, _CRC_HEAD, checksum(body).encode(), _CRC_TAIL)


def is_whole(line: bytes) -> bool:
    """Whether the checksum of this line, given without its line break, is right."""
    # By position from the end: a line is not parsed before its checksum is right.
    if line[-_CRC_CHARS : -_CRC_CHARS + len(_CRC_HEAD)] != _CRC_HEAD or not line.endswith(_CRC_TAIL):
        return False
    return line[-10:-2] == checksum(line[:-_CRC_CHARS]).encode()


def read_line(line: bytes, path: str, number: int) -> JsonLine:
    """Decode a line with a right checksum. Raises StoreVersion for a kind that this version does not know."""
    try:
        form = _decode(line)
        return JsonLine(form.seq, form.group or form.seq, form.synced, _change_of(form))
    except (msgspec.DecodeError, ValueError, BusError) as error:
        raise StoreVersion(
            f"{path}, line {number}: a change of a kind that this version does not know: {error}",
            "install the newer unibus; nothing was changed",
        ) from error


def _change_of(form: Any) -> Change:
    plan = _PLANS[type(form)]
    values = list(plan.read(form))
    values[0] = instant_of(values[0])
    if plan.who:
        values[plan.who] = who_of(values[plan.who])
    if plan.data:
        values[plan.data] = data_of(form.message, values[plan.data])
    if plan.overlay:
        values[plan.overlay] = overlay_of(values[plan.overlay], form.overlay_packed)
    change: Change = plan.change(*values)
    return change
