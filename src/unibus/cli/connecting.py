"""From the value of `--url` to a `Management`: through a server where it names one, or where one has the file open."""

import contextlib
from collections.abc import Iterator

from unibus.cli.connection.bus_option import is_server, store_url
from unibus.cli.connection.management import Management


@contextlib.contextmanager
def managed(given: str, makes: bool = False) -> Iterator[Management]:
    """The bus that `--url` names: through its server where that is an address, or where a server has the file open.

    StoreUnavailable for a file that is not there, unless the command `makes` it.
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
