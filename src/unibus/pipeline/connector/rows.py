"""Converts a row to the command that sends a message: the names of the columns, their types, and their meaning.

Executors convert and stage the rows: the driver, which is one process, then only applies the commands, and a row that
the bus would reject fails the query before the first row is published.

| column | type | |
|---|---|---|
| channel | string | where to; or the option `channel` for all |
| body | string, binary, or anything that is JSON: struct, map, array, number, boolean | |
| message_id, correlation_id, session_id, subject, … | string | see `TEXTS` |
| headers | map of string to string, number or boolean | |
| priority | whole number | 0 to 255, lower first |
| ttl, delay | number of seconds, or an interval | |
| scheduled_at | timestamp | |
"""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from unibus.bus.names import checked_name
from unibus.core.envelope.fields import seconds_ns, set_fields
from unibus.core.envelope.message import restored
from unibus.core.envelope.message_properties import TEXT_FIELDS, MessageProperties
from unibus.core.envelope.priority import checked_priority
from unibus.core.lifecycle.commands import Send
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import SerializationFailed, UsageError
from unibus.limits import MESSAGE_ID_CHARS_MAX
from unibus.pipeline.connector.options import near

CHANNEL: Final = "channel"
BODY: Final = "body"
TEXTS: Final = ("message_id", "trace_id", *(name for name in TEXT_FIELDS if name not in ("tx_id", "backend_id")))
_JSON: Final = ("application/json", "text/json")


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_map(kind: DataType) -> bool:
    plain = (StringType, NumericType, BooleanType)
    return isinstance(kind, MapType) and _is_text(kind.keyType) and isinstance(kind.valueType, plain)


def _is_whole(kind: DataType) -> bool:
    return kind.typeName() in ("byte", "short", "integer", "long")


def _is_duration(kind: DataType) -> bool:
    return isinstance(kind, (NumericType, DayTimeIntervalType))


def _is_moment(kind: DataType) -> bool:
    return isinstance(kind, TimestampType)


def _is_body(kind: DataType) -> bool:
    return not isinstance(kind, VariantType)


COLUMNS: Final[dict[str, tuple[Callable[[DataType], bool], str]]] = {
    CHANNEL: (_is_text, "text"),
    BODY: (_is_body, "text, binary, or anything that JSON can express: to_json makes it of a variant"),
    **dict.fromkeys(TEXTS, (_is_text, "text")),
    "headers": (_is_map, "a map of text to text, numbers or booleans"),
    "priority": (_is_whole, "a whole number"),
    "ttl": (_is_duration, "seconds, or an interval"),
    "delay": (_is_duration, "seconds, or an interval"),
    "scheduled_at": (_is_moment, "a timestamp"),
}


class Shape:
    """The columns of a frame, checked. Data only: it travels to the executors."""

    def __init__(self, schema: StructType, channel: str) -> None:
        names = schema.fieldNames()
        for field in schema:
            if field.name not in COLUMNS:
                raise UsageError(f"a message has no column {field.name!r}", near(field.name, COLUMNS))
            fits, what = COLUMNS[field.name]
            if not fits(field.dataType):
                raise UsageError(
                    f"column {field.name!r} has the wrong type {field.dataType.simpleString()}", f"it has to be {what}"
                )
        if len(set(names)) < len(names):
            raise UsageError("two columns have the same name", "select one of them")
        if (CHANNEL in names) == bool(channel):
            what = "a column and an option name the channel" if channel else "nothing names the channel"
            raise UsageError(what, "give a column `channel`, or the option")
        if BODY not in names:
            raise UsageError("there is no column `body`", "for instance struct(*) as body")
        self._channel = checked_name(channel) if channel else ""
        self._fields = [name for name in names if name not in (CHANNEL, BODY)]
        self._is_json = not isinstance(schema[BODY].dataType, (StringType, BinaryType))

    def commands(self, batch: pa.RecordBatch, prefix: str, first: int) -> Iterator[Send]:
        """One command per row. A row without an id gets a unique one."""
        now_ns = time.time_ns()
        bodies = _values(batch, BODY)
        if self._is_json:
            bodies = [msgspec.to_builtins(body, str_keys=True) for body in bodies]
        rows = zip(self._channels(batch), bodies, self._fields_of(batch), strict=True)
        for number, (channel, body, fields) in enumerate(rows, first):
            yield command_of(channel, body, fields, f"{prefix}-{number}", now_ns)

    def _channels(self, batch: pa.RecordBatch) -> list[str]:
        if self._channel:
            return [self._channel] * batch.num_rows
        names = _values(batch, CHANNEL)
        for name in set(names):
            checked_name(name)
        return names

    def _fields_of(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        if not self._fields:
            return ({} for _ in range(batch.num_rows))
        rows = zip(*(_values(batch, name) for name in self._fields), strict=True)
        pairs = (zip(self._fields, row, strict=True) for row in rows)
        return ({name: value for name, value in each if value is not None} for each in pairs)


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    found: list[Any] = batch.column(name).to_pylist(maps_as_pydicts="strict")
    return found


def command_of(entity: str, body: object, fields: dict[str, Any], otherwise: str, now_ns: int) -> Send:
    """The command of one row. `otherwise` is the id for a row without one."""
    message_id = fields.pop("message_id", otherwise)
    if not 1 <= len(message_id) <= MESSAGE_ID_CHARS_MAX:
        raise UsageError(f"message_id must have 1 to {MESSAGE_ID_CHARS_MAX} characters, got {message_id!r:.80}")
    priority = fields.pop("priority", None)
    delay = fields.pop("delay", None)
    properties: MessageProperties | None = None  # Most messages have none, and are smaller without.
    if fields or delay is not None:
        content_type = fields.get("content_type")
        if content_type is not None and isinstance(body, (str, bytes)) and is_json(content_type):
            body = _decoded(body)
        properties = MessageProperties()
        set_fields(properties, fields)
        if delay is not None:
            properties.scheduled_at_ns = now_ns + seconds_ns("delay", _plain_seconds(delay))
    message = restored(message_id, entity, body, now_ns, properties)
    if priority is not None:
        message.priority = checked_priority(priority)
    command = send_of(message, entity)
    command.creates = QUEUE
    return command


def is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in _JSON or kind.endswith("+json")


def _decoded(body: str | bytes) -> object:
    """A body with a content type of JSON is stored as the value, as `send` from Python does."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise SerializationFailed(
            f"a body with a content_type of JSON is not JSON: {error}", "leave the content_type out"
        ) from error


def _plain_seconds(value: object) -> object:
    return value if isinstance(value, (timedelta, int)) else float(value)  # type: ignore[arg-type]
