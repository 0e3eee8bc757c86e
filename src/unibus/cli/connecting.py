"""Turns the value of `--url` into a `Management`.

--url http://…            ──▶ RemoteManagement: the server at that address
--url FILE, server runs   ──▶ RemoteManagement: the server that owns the file
--url FILE, no server     ──▶ LocalManagement: this process opens the store
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

import typer

from unibus.cli.connection.bus_option import is_server, store_url
from unibus.cli.connection.management import Management

_KNOWN: Final = frozenset({"UNIBUS_URL", "UNIBUS_KEY", "UNIBUS_CONNECTION_STRING", "UNIBUS_CA"})


@contextlib.contextmanager
def managed(given: str, makes: bool = False) -> Iterator[Management]:
    """The bus that `--url` names, closed when the block ends.

    Raises StoreUnavailable if the file does not exist, unless the command creates it (`makes`).
    """
    _warn_of_variables()
    with contextlib.closing(_management(given, makes)) as found:
        yield found


def _warn_of_variables() -> None:
    """A misspelt UNIBUS_URL is ignored, and the command would work on another bus without a word."""
    if all(name in _KNOWN for name in os.environ if name.startswith("UNIBUS_")):
        return  # Nearly always: the settings of a server need not be imported.
    from unibus.cli.terminal.output import printable
    from unibus.config.sources import misspelt_variables

    for warning in misspelt_variables(os.environ):
        typer.echo(f"note: {printable(warning)}", err=True)


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
