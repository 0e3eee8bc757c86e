"""Events of history: pages, the last ones, and those that come."""

from typing import Final

from unibus.endpoints.http.operation import Operation

EVENTS: Final[tuple[Operation, ...]] = ()
