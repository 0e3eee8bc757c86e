"""Messages one by one: peek, send, receive, settle, sessions, move, remove."""

from typing import Final

from unibus.endpoints.http.operation import Operation

MESSAGES: Final[tuple[Operation, ...]] = ()
