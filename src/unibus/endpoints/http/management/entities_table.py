"""Entities as operators see them: the list, and its live form."""

from typing import Final

from unibus.endpoints.http.operation import Operation

ENTITIES: Final[tuple[Operation, ...]] = ()
