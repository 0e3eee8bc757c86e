"""Dead-lettered messages, and work on many messages as jobs."""

from typing import Final

from unibus.endpoints.http.operation import Operation

BULK: Final[tuple[Operation, ...]] = ()
