"""The operations of this package."""

from typing import Final

from unibus.endpoints.http.operation import Operation

MESSAGES: Final[tuple[Operation, ...]] = ()
