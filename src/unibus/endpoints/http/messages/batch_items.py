"""The JSON document of a batch as data. Not in batch.py, which is compiled: a class of msgspec cannot be."""

from typing import Final

import msgspec


class Item(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    """Other names are refused: `body` for `Body` would send an empty message.

    `Body` is text, base64 with `IsBodyBase64`, or another JSON value, which is then the message as it is written.
    """

    body: msgspec.Raw = msgspec.Raw(b'""')
    is_body_base64: bool = False
    broker_properties: dict[str, object] | None = None
    user_properties: dict[str, object] | None = None


decode_items: Final = msgspec.json.Decoder(list[Item]).decode
