"""A server that owns a file writes beside it where commands reach it (`config/server_file.py`), while it listens.

A server that cannot write it serves as well: commands of the same user then need `--url`. One that does not listen on
loopback writes none, because the key in the file is accepted from this machine only.
"""

import importlib.metadata
import logging
import os
import time
from collections.abc import Sequence

from unibus.bus.store_url import owned_file
from unibus.config.server_file import ServerFile, local_rule, remove_server_file, write_server_file
from unibus.config.settings import is_loopback
from unibus.core.access.rules import AuthorizationRule
from unibus.endpoints.log_lines import log_event
from unibus.endpoints.transport.connections import address_of, log

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class OwnServerFile:
    """`rule` is in force as long as the server runs; None for a store that is in no file."""

    def __init__(self, url: str) -> None:
        self._path = owned_file(url)
        self.rule: AuthorizationRule | None = local_rule() if self._path else None

    def write(self, addresses: Sequence[tuple[str, int]]) -> None:
        """To be called when the ports listen."""
        local = [(_EVERYWHERE.get(host, host), port) for host, port in addresses]
        found = [address for address in local if is_loopback(address[0])]
        if self.rule is None or not found:
            return
        url = f"http://{address_of(found[0])}"
        key = self.rule.primary_key
        try:
            write_server_file(self._path, ServerFile(url, os.getpid(), self.rule.name, key, version(), time.time_ns()))
        except OSError as error:
            hint = f"commands find this server by --url {url} only"
            log_event(log, logging.WARNING, "the file for commands was not written", reason=str(error), hint=hint)

    def remove(self) -> None:
        if self.rule is not None:
            remove_server_file(self._path, self.rule.primary_key)


def version() -> str:
    try:
        return importlib.metadata.version("unibus")
    except importlib.metadata.PackageNotFoundError:
        return ""
