"""The operations of this package.

Every path is fixed: the query parameter `entity` names the entity (`names_entity`), because names of entities may have
slashes. Answers and errors are JSON, times are nanoseconds since 1970 (`…_ns`), pages go by key (`after`, `next`).
"""

from typing import Final

from unibus.endpoints.http.management.tables.bulk import BULK
from unibus.endpoints.http.management.tables.control import CONTROL
from unibus.endpoints.http.management.tables.entities import ENTITIES
from unibus.endpoints.http.management.tables.events import EVENTS
from unibus.endpoints.http.management.tables.history import HISTORY
from unibus.endpoints.http.management.tables.messages import MESSAGES
from unibus.endpoints.http.management.tables.settings import SETTINGS
from unibus.endpoints.http.operation import Operation

MANAGEMENT: Final[tuple[Operation, ...]] = (
    *ENTITIES,
    *SETTINGS,
    *MESSAGES,
    *HISTORY,
    *EVENTS,
    *BULK,
    *CONTROL,
)
