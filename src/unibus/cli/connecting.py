"""Turns the value of `--url` into a `Management`.

--url http://…            ──▶ RemoteManagement: the server at that address
--url FILE, server runs   ──▶ RemoteManagement: the server that owns the file
--url FILE, no server     ──▶ LocalManagement: this process opens the store
"""

import contextlib
from collections.abc import Iterator

from unibus.cli.connection.bus_option import is_server, store_url
from unibus.cli.connection.management import Management


@contextlib.contextmanager
def managed(given: str, makes: bool = False) -> Iterator[Management]:
    """The bus that `--url` names, closed when the block ends.

    Raises StoreUnavailable if the file does not exist, unless the command creates it (`makes`).
    """
    with contextlib.closing(_management(given, makes)) as found:
        yield found


def _management(given: str, makes: bool) -> Management:
    if is_server(given):
        from unibus.cli.connection.servers import client_of
        from unibus.cli.remote.remote import RemoteManagement

        return RemoteManagement(client_of(given))
    url = store_url(given, makes)
    from unibus.cli.connection.servers import server_of_store

    client = server_of_store(url)
    if client is not None:
        from unibus.cli.remote.remote import RemoteManagement

        return RemoteManagement(client)
    from unibus.cli.local.local import LocalManagement

    return LocalManagement(url)
