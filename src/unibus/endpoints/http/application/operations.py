"""The one table of all operations of the HTTP endpoint."""

from typing import Final

from unibus.endpoints.http.administration.table import ADMINISTRATION
from unibus.endpoints.http.management.tables.table import MANAGEMENT
from unibus.endpoints.http.messages.table import MESSAGES
from unibus.endpoints.http.monitoring.table import MONITORING
from unibus.endpoints.http.operation import OperationTable

TABLE: Final = OperationTable((*MESSAGES, *ADMINISTRATION, *MONITORING, *MANAGEMENT))
