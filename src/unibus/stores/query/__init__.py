"""SQL queries over the messages of a store, in a sandbox: user SQL never reaches a database that stores messages.

    SELECT … ──▶ SQLite in memory ──▶ virtual tables ──▶ the store
                 authorizer, limits, guard

Each query has its own SQLite in memory with virtual tables only, which read from the store what the query needs. The
rule: whatever its text, a query changes nothing, reads nothing but these tables, and ends within its limits of time,
rows and memory.
"""

from typing import TYPE_CHECKING

from unibus.limits import QUERY_MEMORY_MB_DEFAULT, QUERY_ROWS_DEFAULT, QUERY_TIME_S_DEFAULT

if TYPE_CHECKING:
    from unibus.stores.query.run_query import Query
    from unibus.stores.seam.store_view import StoreView


def query(
    view: "StoreView",
    sql: object,
    parameters: object = (),
    time_limit: object = QUERY_TIME_S_DEFAULT,
    rows_max: object = QUERY_ROWS_DEFAULT,
    memory_mb: object = QUERY_MEMORY_MB_DEFAULT,
) -> "Query":
    """A query that is ready to run. SQLite is imported here: a bus without queries does not need it."""
    from unibus.stores.query.run_query import Query

    return Query(view, sql, parameters, time_limit, rows_max, memory_mb)
