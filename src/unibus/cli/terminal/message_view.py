"""How messages are shown: one JSON object per line for programs, a readable block for people, or the body alone.

The record is the JSON form of a message (core/codec/document.py) with the field names of the bus. `kind` says how to
read the body: "json" is plain JSON, "tagged" has the tags of core/codec/wire.py, "bytes" is base64.
"""

import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from unibus.cli.terminal.output import flush, is_terminal, printable, write, write_json
from unibus.core.codec.codec import encode_json
from unibus.core.envelope.message import Message
from unibus.core.envelope.payload import Serialized

if TYPE_CHECKING:
    from rich.text import Text

Record = dict[str, object]

LABEL_WIDTH: Final = 12
_TIMES: Final = {"timestamp_ns": "sent_at", "scheduled_at_ns": "scheduled_at", "expires_ns": "expires_at"}
_LEFT_OUT: Final = frozenset({"unibus", "channel", "ttl_ns", "backend_id"})
_FIRST: Final = ("entity", "sequence", "id", "kind", "body", "priority", "delivery_count", "enqueued_at")
# Shown in the first lines of a block, or too long for a terminal.
_NOT_LISTED: Final = frozenset({*_FIRST, "headers", "sent_at", "trace"})


class MessageView:
    """Shows messages one by one. A message counts as shown only after `flush`."""

    def __init__(self, raw: bool = False) -> None:
        self._raw = raw
        self._console = None
        if is_terminal() and not raw:
            from rich.console import Console  # Only a terminal needs it: it takes longer than to show a message.

            self._console = Console(highlight=False)

    def show(self, entity: str, message: Message, enqueued_at: datetime | None = None) -> None:
        """`enqueued_at` is when the message arrived in the entity, perhaps long after it was sent. None: unknown."""
        if self._raw:
            write(raw_body(message.body))
            return
        shown = record_of(entity, message, enqueued_at)
        if self._console is None:
            write_json(shown)
        else:
            self._console.print(block(shown), soft_wrap=True)

    def flush(self) -> None:
        flush()


def record_of(entity: str, message: Message, enqueued_at: datetime | None) -> Record:
    document: Record = msgspec.json.decode(encode_json(message))
    record: Record = {"entity": entity}
    for name, value in document.items():
        if name in _TIMES and isinstance(value, int):
            record[_TIMES[name]] = instant(value)
        elif name not in _LEFT_OUT:
            record[name] = value
    record["delivery_count"] = int(message.delivery_count)
    if message.locked_until is not None:
        record["locked_until"] = message.locked_until.isoformat()
    if enqueued_at is not None:
        record["enqueued_at"] = enqueued_at.isoformat()
    first: Record = {name: record[name] for name in _FIRST if name in record}
    return {**first, **record}


def instant(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat()


def raw_body(body: object) -> bytes:
    """Text and JSON as one line; bytes unchanged, without a line end, so that the output is exactly the body."""
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    if isinstance(body, Serialized):
        return body.data
    if isinstance(body, str):
        return body.encode("utf-8") + b"\n"
    document: Record = msgspec.json.decode(encode_json(Message.new("body", body)))
    return msgspec.json.encode(document["body"]) + b"\n"


def block(record: Record) -> "Text":
    """For people: a headline, then every field that is set, then the body."""
    return fields(record).append_text(body(record))


def body(record: Record) -> "Text":
    from rich.text import Text

    return Text(f"{_indented(body_text(record))}\n")


def fields(record: Record) -> "Text":
    """The block without the body."""
    from rich.text import Text

    shown = Text()
    shown.append(f"#{record['sequence']}", style="bold")
    shown.append(f"  priority {record['priority']}", style="cyan")
    shown.append(f"  {deliveries(record['delivery_count'])}", style="cyan")
    shown.append(f"  {_when(record)}\n", style="dim")
    _append_line(shown, "id", record["id"])
    for name, value in record.items():
        if name not in _NOT_LISTED:
            label = name.removesuffix("_id").removesuffix("_at").replace("_", " ")
            _append_line(shown, label, local_time(value) if name.endswith(("_at", "_until")) else value)
    headers = record.get("headers")
    for name, value in headers.items() if isinstance(headers, dict) else ():
        _append_line(shown, "header", f"{name}={value if isinstance(value, str) else compact(value)}")
    return shown


def _append_line(shown: "Text", label: str, value: object) -> None:
    shown.append(f"  {label:<{LABEL_WIDTH}} ", style="dim")
    shown.append(printable(str(value)).replace("\n", "\n" + " " * (LABEL_WIDTH + 3)) + "\n")


def deliveries(count: object) -> str:
    return "not delivered yet" if count == 0 else f"delivery {count}"


def _when(record: Record) -> str:
    if "enqueued_at" in record:
        return f"enqueued {local_time(record['enqueued_at'])}"
    return f"sent {local_time(record['sent_at'])}"


def local_time(text: object) -> str:
    """In the local time zone."""
    return f"{datetime.fromisoformat(str(text)).astimezone():%Y-%m-%d %H:%M:%S}"


def body_text(record: Record) -> str:
    """JSON indented, text unchanged, bytes in base64; but as JSON or text if the content type says that they are."""
    body, kind = record["body"], str(record["kind"])
    if kind == "bytes" and isinstance(body, str):
        body, kind = _as_content(body, str(record.get("content_type")))
    if isinstance(body, str):
        return printable(body if kind == "json" else f"{kind} in base64: {body}")
    return printable(json.dumps(body, indent=2, ensure_ascii=False))


def _as_content(encoded: str, content_type: str) -> tuple[object, str]:
    """The body that these bytes are by their content type, and its kind. Bytes that are not what it says stay bytes:
    over HTTP the sender chooses it."""
    media = content_type.partition(";")[0].strip().casefold()
    try:
        if media == "application/json" or media.endswith("+json"):
            return json.loads(base64.b64decode(encoded)), "json"
        if media.startswith("text/"):
            return base64.b64decode(encoded).decode("utf-8"), "json"
    except ValueError:
        pass
    return encoded, "bytes"


def compact(value: object) -> str:
    return msgspec.json.encode(value).decode("utf-8")


def _indented(text: str) -> str:
    return "".join(f"  {line}" for line in text.splitlines(keepends=True)) or '  ""'
