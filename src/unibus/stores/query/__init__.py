"""SQL over the messages of a store, in a sandbox of its own: user SQL never reaches an engine that keeps messages.

Each query has a fresh SQLite in memory with nothing in it but virtual tables, which read from the store what the query
asks for. The rule: whatever the text of a query says, it changes nothing, reads nothing but these tables, and ends
within its limits of time, rows and memory.
"""

from typing import TYPE_CHECKING

from unibus.limits import QUERY_MEMORY_MB_DEFAULT, QUERY_ROWS_DEFAULT, QUERY_TIME_S_DEFAULT

if TYPE_CHECKING:
    from unibus.stores.query.run_query import Query
    from unibus.stores.seam.store import Store


def query(
    store: "Store",
    sql: object,
    parameters: object = (),
    time_limit: object = QUERY_TIME_S_DEFAULT,
    rows_max: object = QUERY_ROWS_DEFAULT,
    memory_mb: object = QUERY_MEMORY_MB_DEFAULT,
) -> "Query":
    """A query that can be run. A bus that is never asked needs no SQLite."""
    from unibus.stores.query.run_query import Query

    return Query(store, sql, parameters, time_limit, rows_max, memory_mb)
