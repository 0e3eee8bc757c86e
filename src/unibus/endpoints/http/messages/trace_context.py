# mypyc: compiled
"""The W3C trace context of a request becomes that of the message."""

import re
from typing import Final

from unibus.endpoints.http.request import Request

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.ASCII)
_TRACESTATE_CHARS_MAX: Final = 512


def put_trace_context(request: Request, fields: dict[str, object]) -> None:
    """An invalid traceparent is ignored, and its tracestate with it, as the specification requires."""
    parent = request.headers.get("traceparent")
    if parent is None or parent.startswith("ff") or not _TRACEPARENT.fullmatch(parent):
        return
    fields["traceparent"] = parent
    state = request.headers.get("tracestate")
    if state and len(state) <= _TRACESTATE_CHARS_MAX and state.isascii():
        fields["tracestate"] = state
