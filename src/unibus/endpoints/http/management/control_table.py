"""The server itself: status, log, stop."""

from typing import Final

from unibus.endpoints.http.operation import Operation

CONTROL: Final[tuple[Operation, ...]] = ()
