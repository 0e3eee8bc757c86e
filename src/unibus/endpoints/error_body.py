"""The body of an HTTP error: one function for operations and for requests that are rejected before any operation.

Azure's clients read XML (`<Error><Code>…</Code><Detail>…</Detail></Error>`); a client that accepts JSON gets
`{"error": {"code", "message", "details"}}`. This module imports nothing from the endpoint, because both the transport
(`http_protocol`) and the operations (`http/errors`) use it.
"""

from typing import Final
from xml.sax.saxutils import escape

import msgspec

JSON: Final = "application/json"


def error_content(as_json: bool, status: int, code: str, what: str, hint: str = "") -> tuple[bytes, str]:
    """The bytes of the body and its content type."""
    if as_json:
        document = {"error": {"code": code, "message": what, "details": hint}}
        return msgspec.json.encode(document), f"{JSON}; charset=utf-8"
    detail = f"{code}: {what}. {hint}".rstrip(". ")
    text = f"<Error><Code>{status}</Code><Detail>{escape(_printable(detail))}</Detail></Error>"
    return text.encode("utf-8", "replace"), "application/xml; charset=utf-8"


def _printable(text: str) -> str:
    """An error may quote what the client sent, and XML cannot express most control characters: they become `?`."""
    return "".join([char if char in "\t\n\r" or " " <= char < "\ufffe" or char > "\uffff" else "?" for char in text])
