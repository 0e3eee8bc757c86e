"""The options of `format("unibus")`: from the text that Spark passes to checked values.

Every name and every value is checked before anything is read or written, and the hint names the nearest valid one:
Spark itself ignores unknown options, so a typing error would silently read something else.
"""

import difflib
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import msgspec

from unibus.bus.store_url import url_of
from unibus.errors import NameInvalid, UsageError
from unibus.limits import BATCH_COMMANDS_MAX
from unibus.stores.files.local_folder import local_folder, scheme_of
from unibus.stores.schemes import is_store_scheme, kept_in

PERMISSIVE: Final = "permissive"
FAIL: Final = "fail"
QUARANTINE: Final = "quarantine"
MODES: Final = (FAIL, PERMISSIVE, QUARANTINE)

DELAY_S_DEFAULT: Final = 900.0
"""How long `minEventsPerTrigger` may delay events: 15 minutes, as in Spark's Kafka source."""

ROWS_PER_TRANSACTION: Final = 2_000
"""Rows that a sink publishes in one transaction. A larger one gains little and blocks other writers for longer."""

ROWS_PER_TRANSACTION_MAX: Final = BATCH_COMMANDS_MAX - 2
"""Two commands are reserved for the positions: how far the batch is, and which checkpoint it belongs to."""

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_NAME: Final = re.compile(r"(?!\.+$)[\w.@-]{1,128}")


@dataclass(frozen=True)
class ReadOptions:
    """The options of a reader. Empty text and empty tuples mean "not given"."""

    where: tuple[str, ...]
    channels: tuple[str, ...]
    kinds: tuple[str, ...]
    columns: tuple[str, ...]
    starting: str
    ending: str
    max_events: int
    min_events: int
    max_delay_s: float
    fail_on_data_loss: bool
    mode: str
    quarantine: str
    cursor: str
    bodies: bool
    pushdown: bool


@dataclass(frozen=True)
class WriteOptions:
    """The options of a writer."""

    url: str
    channel: str
    query: str
    batch: str
    staging: str
    rows_per_transaction: int
    checkpoint: str


# The value of one option


def listed(name: str, text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if text.strip() and not found:
        raise UsageError(f"option {name} {text!r} has no names", "separate names by commas")
    return found


def yes_or_no(name: str, text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise UsageError(f"option {name} must be true or false, got {text!r}")
    return value == "true"


def counted(name: str, text: str) -> int:
    if not text.strip().isdecimal() or not 0 < int(text) < 2**62:
        raise UsageError(f"option {name} must be a whole number of 1 or more, got {text!r}")
    return int(text)


def seconds(name: str, text: str) -> float:
    """`90s`, `10m`, `1h30m`, `250ms`; a bare number is seconds."""
    given = text.strip().lower()
    found = _PART.findall(given)
    if found and "".join(number + unit for number, unit in found) == given:
        return sum(float(number) * _UNITS[unit] for number, unit in found)
    try:
        total = float(given)
    except ValueError:
        total = -1.0
    if not 0 <= total < 9e9:
        raise UsageError(f"option {name} {text!r} is not a duration", "for instance 90s, 10m or 1h30m")
    return total


def one_of(name: str, text: str, allowed: Collection[str]) -> str:
    value = text.strip().lower()
    if value not in allowed:
        raise UsageError(f"option {name} has the unknown value {text!r}", near(value, allowed))
    return value


def near(given: str, known: Collection[str]) -> str:
    """A hint with the nearest known name, or with all known names."""
    close = difflib.get_close_matches(given.lower(), [each.lower() for each in known], 1)
    names = {each.lower(): each for each in known}
    return f"did you mean {names[close[0]]!r}?" if close else f"one of {', '.join(sorted(known))}"


def named(name: str, text: str) -> str:
    if not _NAME.fullmatch(text):
        hint = "letters, digits and . _ @ -, at most 128 of them, and not dots alone"
        raise NameInvalid(f"option {name} {text!r:.200} is not a valid name", hint)
    return text


def _mode(name: str, text: str) -> str:
    return one_of(name, text, MODES)


def _text(name: str, text: str) -> str:
    return text.strip()


def _folder(name: str, text: str) -> str:
    return local_folder(text.strip(), f"the folder of the option {name}")


def _rows(name: str, text: str) -> int:
    rows = counted(name, text)
    if rows > ROWS_PER_TRANSACTION_MAX:
        raise UsageError(
            f"option {name} must be at most {ROWS_PER_TRANSACTION_MAX}, the limit of one transaction, got {rows}"
        )
    return rows


# All options

_Check = Callable[[str, str], Any]

_READ: Final[dict[str, tuple[str, _Check, object]]] = {
    "channels": ("channels", listed, ()),
    "kinds": ("kinds", listed, ()),
    "columns": ("columns", listed, ()),
    "startingOffsets": ("starting", _text, ""),
    "endingOffsets": ("ending", _text, ""),
    "maxEventsPerTrigger": ("max_events", counted, 0),
    "minEventsPerTrigger": ("min_events", counted, 0),
    "maxTriggerDelay": ("max_delay_s", seconds, DELAY_S_DEFAULT),
    "failOnDataLoss": ("fail_on_data_loss", yes_or_no, True),
    "mode": ("mode", _mode, FAIL),
    "quarantinePath": ("quarantine", _folder, ""),
    "cursor": ("cursor", named, ""),
    "bodies": ("bodies", yes_or_no, False),
    "pushdown": ("pushdown", yes_or_no, False),
}
_WRITE: Final[dict[str, tuple[str, _Check, object]]] = {
    "channel": ("channel", _text, ""),
    "query": ("query", named, ""),
    "batch": ("batch", named, ""),
    "staging": ("staging", _text, ""),
    "rowsPerTransaction": ("rows_per_transaction", _rows, ROWS_PER_TRANSACTION),
    "checkpointLocation": ("checkpoint", _text, ""),
}
_PLACES: Final = ("path", "paths", "url")
_OF_SPARK: Final = frozenset({"queryname", "__partition_columns"})
"""Spark adds these by itself."""


def read_options(given: Mapping[str, str]) -> ReadOptions:
    values = _checked(given, _READ)
    if values["min_events"] and values["max_events"] and values["min_events"] > values["max_events"]:
        raise UsageError("minEventsPerTrigger is larger than maxEventsPerTrigger", "make it smaller")
    if "maxtriggerdelay" in _keys(given) and not values["min_events"]:
        raise UsageError("maxTriggerDelay has no effect without minEventsPerTrigger", "set minEventsPerTrigger too")
    places = _places(given)
    if not places:
        raise UsageError("no source to read is given", "load a capture directory, or set the option url to a store")
    return ReadOptions(tuple(dict.fromkeys(_readable(place) for place in places)), **values)


def only_for_streams(options: ReadOptions) -> list[str]:
    """The given options that have an effect only for `readStream`."""
    given = {"max_events": options.max_events, "min_events": options.min_events, "cursor": options.cursor}
    return [name for name, (field, _, _) in _READ.items() if given.get(field)]


def write_options(given: Mapping[str, str]) -> WriteOptions:
    values = _checked(given, _WRITE)
    places = _places(given)
    if len(places) != 1:
        raise UsageError(
            f"{len(places)} buses to write to are given, not one", "set the option url, for instance sqlite:///bus.db"
        )
    url = url_of(places[0])
    if not url:
        raise UsageError("a bus in memory ends with the process that writes to it", "write to sqlite:///bus.db")
    return WriteOptions(absolute(url, "a bus"), **values)


def _keys(given: Mapping[str, str]) -> dict[str, str]:
    """Spark ignores the case of options, and passes them in lower case."""
    return {key.lower(): value for key, value in given.items()}


def _checked(given: Mapping[str, str], known: Mapping[str, tuple[str, _Check, object]]) -> dict[str, Any]:
    names = {name.lower(): name for name in known}
    values: dict[str, Any] = {field: default for field, _, default in known.values()}
    for key, text in _keys(given).items():
        if key in names:
            field, check, _ = known[names[key]]
            values[field] = check(names[key], text)
        elif key not in _PLACES and key not in _OF_SPARK and not key.startswith("spark."):
            raise UsageError(f"there is no option {key!r}", near(key, [*known, *_PLACES]))
    return values


def _places(given: Mapping[str, str]) -> list[str]:
    keys = _keys(given)
    if "path" in keys and "url" in keys:
        raise UsageError("both path and url are given", "leave one of them out")
    if "paths" in keys:
        return msgspec.json.decode(keys["paths"], type=list[str])
    return [keys[key] for key in ("path", "url") if keys.get(key)]


def _readable(place: str) -> str:
    """The URL of a place. A path of a file is a SQLite store: a capture is a folder."""
    found = absolute(place)
    return absolute(url_of(found)) if "://" not in found and os.path.isfile(found) else found


def absolute(place: str, what: str = "a capture") -> str:
    """An absolute place: an executor may have another current directory."""
    scheme, _, rest = place.partition("://")
    if not is_store_scheme(scheme_of(place)):
        return os.path.abspath(local_folder(place, what))
    if kept_in(scheme) and rest.startswith("/") and not rest.startswith("//"):
        path, question, query = rest[1:].partition("?")
        return f"{scheme}:///{os.path.abspath(path)}{question}{query}" if path else place
    return place


assert {field for field, _, _ in _READ.values()} | {"where"} == {each.name for each in fields(ReadOptions)}
assert {field for field, _, _ in _WRITE.values()} | {"url"} == {each.name for each in fields(WriteOptions)}
