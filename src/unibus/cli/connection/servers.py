"""Which server a command connects to: the one of `--url`, or the one that owns the file.

A running server writes its address and key into `FILE.serve.json`. A command trusts that file after three checks:
no other user could have written it, its process holds the lock of the store, and the server proves that it knows the
key. If a check fails, the command opens the store itself. It sends no key and no data before all three have passed.
"""

import os
from typing import TYPE_CHECKING, Final

from unibus.cli.terminal.report import debug_line

if TYPE_CHECKING:
    from unibus.client.client import Client

CA_VARIABLE: Final = "UNIBUS_CA"
_given: dict[str, str] = {}


def use_ca(file: str) -> None:
    """Stores the value of `--ca` for the command that follows; empty: none."""
    _given["ca"] = file


def _ca_file() -> str:
    return _given.get("ca") or os.environ.get(CA_VARIABLE, "")


def client_of(given: str) -> "Client":
    from unibus.client.address import address_of
    from unibus.client.client import Client

    return Client(address_of(given, os.environ), _ca_file())


def server_of_store(url: str) -> "Client | None":
    """The client of the server that owns the store of this URL and has proved it; None if there is none."""
    from unibus.bus.store_url import owned_file
    from unibus.stores.files.lock_holder import SERVER_SUFFIX, is_held_by

    path = owned_file(url)
    if not path or not os.path.lexists(f"{os.path.realpath(path)}{SERVER_SUFFIX}"):
        return None
    from unibus.config.server_file import ServerFileIgnored, read_server_file, server_file_of

    name = server_file_of(path)
    try:
        found = read_server_file(path)
    except ServerFileIgnored as error:
        debug_line(f"{name} is ignored: {error}")
        return None
    if found is None:
        return None
    if not is_held_by(path, found.pid):
        debug_line(f"{name} is ignored: process {found.pid} does not own the store")
        return None
    client = client_of(found.url)
    proved = type(client)(client.address.with_key(found.rule, found.key), _ca_file())
    if proved.is_proved(found.key):
        return proved
    proved.close()
    debug_line(f"{name} is ignored: the server at {found.url} did not prove that it knows the key")
    return None


def refuse_served(file: str, verb: str) -> None:
    """Raises StoreBusy for a file that a server owns: the state is in its memory, and the file may be behind it."""
    from unibus.bus.store_url import url_of
    from unibus.cli.connection.bus_option import is_server
    from unibus.errors import StoreBusy, UsageError

    if is_server(file):
        raise UsageError(
            f"`unibus {verb}` works on files, not on a server", "`unibus server status` shows the state of a server"
        )
    client = server_of_store(url_of(file))
    if client is None:
        return
    client.close()
    raise StoreBusy(
        f"{file} is in use by the server {client.address}",
        f"stop the server with `unibus server stop`, then {verb} the file; `unibus server status` shows its state",
        str(client.address),
    )
