"""Tags that preserve the type of a value in formats that have fewer types than Python.

    plain    None bool int float str list, dict with text keys (and bytes, if the format has them): unchanged
    tagged   {"$uuid": "…"}, a dict of one key that begins with "$": everything else

A body is either plain as a whole, and then "$" has no meaning in it, or tagged as a whole, and then a dict of the user
that looks like a tag is written as "$map". pydantic models, attrs classes, dataclasses and msgspec structs are written
as their fields (core/envelope/record_types.py), enums as their values: the handler's annotation restores their type. A
value that would be decoded as another value is rejected.

    $int $float $bytes   what the format cannot hold: beyond 64 bits; nan and inf in JSON; bytes in JSON
    $decimal $uuid $datetime $date $time $timedelta $int32     as text
    $tuple $set $frozenset   a list          $map   a list of pairs, for keys that are not text

Decoding creates only these types, however hostile the input, and nothing nests deeper than DECODE_DEPTH_MAX.
"""

import binascii
import enum
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Final
from uuid import UUID

import msgspec
from mypy_extensions import i64

from unibus.core.envelope.exact_text import exact_text
from unibus.core.envelope.message_properties import Int32
from unibus.core.envelope.record_types import fields_of, has_fields, struct_fields
from unibus.errors import DecodeError, SerializationFailed
from unibus.limits import DECODE_DEPTH_MAX

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**64 - 1

# msgspec leaves these unchanged when it reduces a value of its own types; they get their tag afterwards.
_LEAVES: Final = (bytes, bytearray, memoryview, datetime, date, time, timedelta, UUID, Decimal)
_to_builtins: Final = msgspec.to_builtins


def is_plain(value: object, binary: bool, levels: i64 = DECODE_DEPTH_MAX) -> bool:
    """Whether the value can be written unchanged and decoded as the same value. `binary`: the format has bytes and
    every float. `levels` is how many levels of nesting may still follow.

    Integers beyond 64 bits and subclasses of str and numbers count as plain: the encoder itself rejects those. False
    for a value that nests too deeply.
    """
    if isinstance(value, str) or isinstance(value, int) or value is None:  # noqa: SIM101 - two tests cost less than one
        return True
    if isinstance(value, float):
        return binary or math.isfinite(value)
    if isinstance(value, bytes):
        return binary
    if levels <= 0:
        return False
    if isinstance(value, dict):
        return _is_plain_dict(value, binary, levels - 1)
    if isinstance(value, list):
        return _is_plain_list(value, binary, levels - 1)
    return False


def _is_plain_dict(value: dict[object, object], binary: bool, levels: i64) -> bool:
    for key, item in value.items():
        # Most values are text or int: testing them here saves a call for each.
        if not isinstance(key, str):
            return False
        if not (isinstance(item, str) or isinstance(item, int) or is_plain(item, binary, levels)):  # noqa: SIM101
            return False
    return True


def _is_plain_list(value: list[object], binary: bool, levels: i64) -> bool:
    for item in value:  # noqa: SIM110 - all() would create a generator
        if not (isinstance(item, str) or isinstance(item, int) or is_plain(item, binary, levels)):  # noqa: SIM101
            return False
    return True


def tagged(value: object, binary: bool, levels: i64 = DECODE_DEPTH_MAX) -> object:
    """The value with tags where the format needs them. Raises SerializationFailed for what no tag can express."""
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if kind is int or kind is float or kind is bytes:
        return _tagged_scalar(value, binary)
    write = _WRITERS.get(kind)
    if write is not None:
        name, text = write
        return {name: text(value)}
    if levels <= 0:
        raise SerializationFailed(
            f"the payload nests deeper than {DECODE_DEPTH_MAX}", "does it contain itself? send it as bytes otherwise"
        )
    if kind is dict:
        assert isinstance(value, dict)
        return _tagged_dict(value, binary, levels - 1)
    if kind is list:
        assert isinstance(value, list)
        return [tagged(item, binary, levels - 1) for item in value]
    if kind is tuple or kind is set or kind is frozenset:
        assert isinstance(value, (tuple, set, frozenset))
        return {f"${kind.__name__}": [tagged(item, binary, levels - 1) for item in value]}
    return tagged(_reduced(value), binary, levels - 1)


def _tagged_scalar(value: object, binary: bool) -> object:
    if isinstance(value, int):
        return value if _INT_MIN <= value <= _INT_MAX else {"$int": hex(value)}
    if isinstance(value, float):
        return value if binary or math.isfinite(value) else {"$float": repr(value)}
    assert isinstance(value, bytes)
    return value if binary else {"$bytes": base64_text(value)}


def _tagged_dict(value: dict[object, object], binary: bool, levels: i64) -> dict[str, object]:
    if all(type(key) is str for key in value) and not _looks_tagged(value):
        return {str(key): tagged(item, binary, levels) for key, item in value.items()}
    return {"$map": [[tagged(key, binary, levels), tagged(item, binary, levels)] for key, item in value.items()]}


def _looks_tagged(value: dict[object, object]) -> bool:
    return len(value) == 1 and str(next(iter(value))).startswith("$")


def _reduced(value: object) -> object:
    """One step from a type of the user towards the types above."""
    if isinstance(value, enum.Enum):
        return value.value
    reduced = _as_base(value)
    if reduced is not None:
        return reduced
    if has_fields(value):
        return record_fields(value)
    if isinstance(value, msgspec.Struct):
        return struct_fields(value)
    try:
        reduced = _to_builtins(value, builtin_types=_LEAVES, enc_hook=_as_base_or_refuse)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _unwritable(value, str(error)) from error
    if type(reduced) is type(value):
        raise _unwritable(value, "its type is unknown")
    return reduced


def record_fields(value: object) -> object:
    """The fields of a pydantic model, an attrs class or a dataclass. Raises SerializationFailed."""
    try:
        return fields_of(value)
    except (TypeError, ValueError, RuntimeError) as error:  # A RuntimeError: recursion, or a model that is incomplete.
        raise _unwritable(value, f"{error!s:.200}") from error


def _as_base(value: object) -> object:
    for base, as_base in _BASES:
        if isinstance(value, base):
            return as_base(value)
    return None


def _as_base_or_refuse(value: object) -> object:
    """For what is inside of a value that msgspec reduces."""
    reduced = _as_base(value)
    if reduced is None and has_fields(value):
        return fields_of(value)
    if reduced is None:
        raise TypeError(f"{type(value).__name__} is unsupported")
    return reduced


def _unwritable(value: object, why: str) -> SerializationFailed:
    return SerializationFailed(
        f"the payload holds a {type(value).__name__}, which cannot be written: {why}",
        "use builtins, dataclasses, attrs, pydantic, msgspec structs or enums, or send your own serialization as bytes",
    )


def untagged(value: object, levels: i64 = DECODE_DEPTH_MAX) -> object:
    """The inverse of `tagged`. Raises DecodeError, ValueError, TypeError or ArithmeticError for invalid input."""
    kind = type(value)
    if value is None or kind is str or kind is int or kind is bool or kind is float or kind is bytes:
        return value
    if isinstance(value, dict):
        if _looks_tagged(value):
            tag, content = next(iter(value.items()))
            read = _READERS.get(text_of(tag))
            return _untagged_items(tag, list_of(content), levels - 1) if read is None else read(content)
        if levels > 0:
            return {text_of(key): untagged(item, levels - 1) for key, item in value.items()}
    elif not isinstance(value, list):
        raise DecodeError(f"the body has a value of type {kind.__name__}, which no body can have")
    elif levels > 0:
        return [untagged(item, levels - 1) for item in value]
    raise DecodeError(f"the body nests deeper than {DECODE_DEPTH_MAX}")


def _untagged_items(tag: object, content: list[object], levels: i64) -> object:
    if levels < 0:
        raise DecodeError(f"the body nests deeper than {DECODE_DEPTH_MAX}")
    if tag == "$map":
        return _read_map(content, levels)
    items = [untagged(item, levels) for item in content]
    if tag == "$tuple":
        return tuple(items)
    if tag == "$set":
        return set(items)
    if tag == "$frozenset":
        return frozenset(items)
    raise DecodeError(f"the body has an unknown tag {tag!r:.40}", "it may come from a newer version of unibus")


def _read_map(pairs: list[object], levels: i64) -> dict[object, object]:
    result: dict[object, object] = {}
    for pair in pairs:
        key, item = list_of(pair)
        result[untagged(key, levels)] = untagged(item, levels)
    return result


# Hostile input may have any type anywhere: these check it.


def text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    raise DecodeError(f"the message has a value that must be text, not {type(content).__name__}")


def list_of(content: object) -> list[object]:
    if isinstance(content, list):
        return content
    raise DecodeError(f"the message has a value that must be a list, not {type(content).__name__}")


def dict_of(content: object) -> dict[object, object]:
    if isinstance(content, dict):
        return content
    raise DecodeError(f"the message has a value that must be a mapping, not {type(content).__name__}")


# Encoders reject subclasses of str and numbers.


def exact_scalar(value: object) -> object:
    """The same value as its exact base type; a type with its own tag (Int32) is kept."""
    base = None if type(value) in _EXACT else _as_base(value)
    return value if base is None else base


def _exact_datetime(value: object) -> datetime:
    assert isinstance(value, datetime)
    return datetime.combine(value.date(), value.timetz())


# One pair of functions for each type that is encoded as text.


def base64_text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def base64_bytes(content: object) -> bytes:
    """Raises ValueError for anything but strict base64."""
    return binascii.a2b_base64(text_of(content), strict_mode=True)


def _write_date(value: object) -> str:
    assert isinstance(value, date)
    return value.isoformat()


def _write_time(value: object) -> str:
    """ISO 8601. A UTC offset with a fraction of a second is written separately: Python formats it, but does not parse
    it in every version."""
    assert isinstance(value, (datetime, time))
    offset = value.utcoffset()
    if offset is None or not offset.microseconds:
        return value.isoformat()
    return f"{value.replace(tzinfo=None).isoformat()} {_write_timedelta(offset)}"


def _write_timedelta(value: object) -> str:
    assert isinstance(value, timedelta)
    return f"{value.days} {value.seconds} {value.microseconds}"


def _write_uuid(value: object) -> str:
    assert isinstance(value, UUID)
    return value.hex


def _write_int32(value: object) -> str:
    assert isinstance(value, int)
    return str(int(value))


def _read_int(content: object) -> int:
    return int(text_of(content), 16)


def _read_float(content: object) -> float:
    return float(text_of(content))


def _read_decimal(content: object) -> Decimal:
    return Decimal(text_of(content))


def _read_uuid(content: object) -> UUID:
    return UUID(text_of(content))


def _read_datetime(content: object) -> datetime:
    instant, apart, offset = text_of(content).partition(" ")
    value = datetime.fromisoformat(instant)
    return value.replace(tzinfo=timezone(_read_timedelta(offset))) if apart else value


def _read_date(content: object) -> date:
    return date.fromisoformat(text_of(content))


def _read_time(content: object) -> time:
    clock, apart, offset = text_of(content).partition(" ")
    value = time.fromisoformat(clock)
    return value.replace(tzinfo=timezone(_read_timedelta(offset))) if apart else value


def _read_timedelta(content: object) -> timedelta:
    days, seconds, microseconds = text_of(content).split(" ")
    return timedelta(int(days), int(seconds), int(microseconds))


def _read_int32(content: object) -> Int32:
    return Int32(int(text_of(content)))


_WRITERS: Final[dict[type[object], tuple[str, Callable[[object], str]]]] = {
    Decimal: ("$decimal", str),
    UUID: ("$uuid", _write_uuid),
    datetime: ("$datetime", _write_time),
    date: ("$date", _write_date),
    time: ("$time", _write_time),
    timedelta: ("$timedelta", _write_timedelta),
    Int32: ("$int32", _write_int32),
}

# The bases whose subclasses are written as the base: a defaultdict as a dict, a named tuple as a tuple.
_BASES: Final[tuple[tuple[type[object], Callable[..., object]], ...]] = (
    (str, exact_text),
    (int, int),
    (float, float),
    (bytes, bytes),
    (bytearray, bytes),
    (memoryview, bytes),
    (list, list),
    (dict, dict),
    (tuple, tuple),
    (set, set),
    (frozenset, frozenset),
    (datetime, _exact_datetime),
)

_EXACT: Final = frozenset({*_WRITERS, bool, str, int, float, bytes})

_READERS: Final[dict[str, Callable[[object], object]]] = {
    "$int": _read_int,
    "$float": _read_float,
    "$bytes": base64_bytes,
    "$decimal": _read_decimal,
    "$uuid": _read_uuid,
    "$datetime": _read_datetime,
    "$date": _read_date,
    "$time": _read_time,
    "$timedelta": _read_timedelta,
    "$int32": _read_int32,
}
