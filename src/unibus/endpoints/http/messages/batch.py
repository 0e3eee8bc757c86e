"""Azure's batch: a JSON list of `{"Body", "BrokerProperties", "UserProperties"}`, sent as one."""

import binascii
from collections.abc import Sequence
from typing import Final

import msgspec

from unibus.core.wire import base64_bytes
from unibus.endpoints.bodies import JSON_TYPE
from unibus.endpoints.http.messages.broker_properties import (
    KNOWN,
    BrokerProperties,
    StrictProperties,
    fields_of,
    unknown_names,
)
from unibus.endpoints.http.messages.property_headers import check_size, properties_of_json
from unibus.endpoints.http.unknown_names import UnknownNames
from unibus.errors import DecodeError, UsageError
from unibus.limits import BATCH_COMMANDS_MAX


class Item(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    """Other names are refused: `body` for `Body` would send an empty message.

    `Body` is text, base64 with `IsBodyBase64`, or another JSON value, which is then the message as it is written.
    """

    body: msgspec.Raw = msgspec.Raw(b'""')
    is_body_base64: bool = False
    broker_properties: BrokerProperties | None = None
    user_properties: dict[str, object] | None = None


class StrictItem(Item, rename="pascal", forbid_unknown_fields=True):
    """Without names in BrokerProperties that are not known."""

    broker_properties: StrictProperties | None = None


class NamedItem(msgspec.Struct, rename="pascal"):
    """Only the names in BrokerProperties."""

    broker_properties: dict[str, msgspec.Raw] | None = None


_SHAPE: Final = 'send a list of {"Body": …, "BrokerProperties": {…}, "UserProperties": {…}}'
_decode: Final = msgspec.json.Decoder(list[Item]).decode
_decode_strict: Final = msgspec.json.Decoder(list[StrictItem]).decode
_decode_names: Final = msgspec.json.Decoder(list[NamedItem]).decode
_text: Final = msgspec.json.Decoder(str).decode


def messages_of_batch(document: bytes, unknown: UnknownNames, entity: str) -> list[tuple[bytes, dict[str, object]]]:
    """Body and fields of each message. The first that is wrong refuses all of them."""
    items: Sequence[Item]
    try:
        try:
            items = _decode_strict(document)
        except msgspec.ValidationError:
            items = _decode(document)
            if not unknown.is_full:
                named = [name for item in _decode_names(document) for name in item.broker_properties or ()]
                unknown.report(unknown_names(named), KNOWN, entity)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"the batch cannot be read: {error!s:.200}", _SHAPE) from error
    if not 1 <= len(items) <= BATCH_COMMANDS_MAX:
        raise UsageError(f"a batch of {len(items)} messages", f"from 1 to {BATCH_COMMANDS_MAX}")
    return [_message(item) for item in items]


def _message(item: Item) -> tuple[bytes, dict[str, object]]:
    fields = {} if item.broker_properties is None else fields_of(item.broker_properties)
    if item.user_properties:
        fields["headers"] = properties_of_json(item.user_properties, "UserProperties")
    check_size(fields)
    return body_of_json(item.body, item.is_body_base64, fields), fields


def body_of_json(raw: msgspec.Raw, is_base64: bool, fields: dict[str, object]) -> bytes:
    """A JSON string is text for people: its characters are the body. Any other value is a JSON body."""
    written = bytes(raw)
    if not written.startswith(b'"'):
        if is_base64:
            raise UsageError("IsBodyBase64 with a Body that is no text", "leave it out")
        fields.setdefault("content_type", JSON_TYPE)
        return written
    try:
        text = _text(written)
        return base64_bytes(text) if is_base64 else text.encode()
    except (ValueError, binascii.Error) as error:
        raise DecodeError(f"a Body cannot be read: {error!s:.100}", "base64 with IsBodyBase64, else UTF-8") from error
