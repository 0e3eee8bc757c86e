"""The items of a batch as a msgspec class. Not in batch.py, which is compiled: mypyc cannot compile such a class."""

from typing import Final

import msgspec


class Item(msgspec.Struct, rename="pascal", forbid_unknown_fields=True):
    """Unknown names are rejected: `body` instead of `Body` would otherwise send an empty message.

    `Body` is text, base64 with `IsBodyBase64`, or another JSON value, which becomes the body as it is written.
    """

    body: msgspec.Raw = msgspec.Raw(b'""')
    is_body_base64: bool = False
    broker_properties: dict[str, object] | None = None
    user_properties: dict[str, object] | None = None


decode_items: Final = msgspec.json.Decoder(list[Item]).decode
