# mypyc: compiled
"""Azure's batch: a JSON list of `{"Body", "BrokerProperties", "UserProperties"}`, sent as a whole or not at all."""

import binascii
from typing import Final

import msgspec

from unibus.core.codec.wire import base64_bytes
from unibus.counting import counted
from unibus.endpoints.bodies import JSON_TYPE
from unibus.endpoints.http.messages.batch_items import Item, decode_items
from unibus.endpoints.http.messages.broker_properties import fields_of
from unibus.endpoints.http.messages.property_headers import check_size, properties_of_json
from unibus.endpoints.http.unknown_names import UnknownNames
from unibus.errors import DecodeError, UsageError
from unibus.limits import BATCH_COMMANDS_MAX

_SHAPE: Final = 'send a list of {"Body": …, "BrokerProperties": {…}, "UserProperties": {…}}'
_text: Final = msgspec.json.Decoder(str).decode


def messages_of_batch(document: bytes, unknown: UnknownNames, entity: str) -> list[tuple[bytes, dict[str, object]]]:
    """Body and fields of each message. One invalid message rejects the whole batch."""
    try:
        items = decode_items(document)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"the batch cannot be read: {error!s:.200}", _SHAPE) from error
    if not 1 <= len(items) <= BATCH_COMMANDS_MAX:
        raise UsageError(f"the batch has {counted(len(items), 'message')}, a batch takes 1 to {BATCH_COMMANDS_MAX}")
    return [_message(item, unknown, entity) for item in items]


def _message(item: Item, unknown: UnknownNames, entity: str) -> tuple[bytes, dict[str, object]]:
    given = item.broker_properties
    fields = {} if given is None else fields_of(given, unknown, entity)
    if item.user_properties:
        fields["headers"] = properties_of_json(item.user_properties, "UserProperties")
    check_size(fields)
    return body_of_json(item.body, item.is_body_base64, fields), fields


def body_of_json(raw: msgspec.Raw, is_base64: bool, fields: dict[str, object]) -> bytes:
    """The body of a batch item. The characters of a JSON string are the body; any other value is a JSON body."""
    written = bytes(raw)
    if not written.startswith(b'"'):
        if is_base64:
            raise UsageError("IsBodyBase64 is true, but Body is not a string", "send Body as base64 text")
        fields.setdefault("content_type", JSON_TYPE)
        return written
    try:
        text = _text(written)
        return base64_bytes(text) if is_base64 else text.encode()
    except (ValueError, binascii.Error) as error:
        raise DecodeError(
            f"a Body cannot be decoded: {error!s:.100}", "send base64 with IsBodyBase64, else UTF-8 text"
        ) from error
