"""What happened: SQL, trace, replay, export and import."""

from typing import Final

from unibus.endpoints.http.operation import Operation

HISTORY: Final[tuple[Operation, ...]] = ()
