"""The operations of this package.

Every path is fixed: the entity that an operation is about is `?entity=` (`names_entity`), because names of entities
have slashes. Answers and errors are JSON, times are nanoseconds since 1970 (`…_ns`), pages go by key (`after`, `next`).
"""

from typing import Final

from unibus.endpoints.http.management.bulk_table import BULK
from unibus.endpoints.http.management.control_table import CONTROL
from unibus.endpoints.http.management.entities_table import ENTITIES
from unibus.endpoints.http.management.events_table import EVENTS
from unibus.endpoints.http.management.history_table import HISTORY
from unibus.endpoints.http.management.messages_table import MESSAGES
from unibus.endpoints.http.management.settings_table import SETTINGS
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
