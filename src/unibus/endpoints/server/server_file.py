"""`FILE.serve.json`, written beside the store's file while the server listens: commands find the server by it
(`config/server_file.py`).

A server that cannot write the file still serves; commands of the same user then need `--url`. A server that does not
listen on loopback writes none, because the key in the file is accepted from this machine only.
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
    """`rule` is valid while the server runs; None for a store without a file."""

    def __init__(self, url: str) -> None:
        self._path = owned_file(url)
        self.rule: AuthorizationRule | None = local_rule() if self._path else None

    def write(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Write the file. Call this when the ports listen: a command connects as soon as it finds the file."""
        local = [(_EVERYWHERE.get(host, host), port) for host, port in addresses]
        found = [address for address in local if is_loopback(address[0])]
        if self.rule is None or not found:
            return
        url = f"http://{address_of(found[0])}"
        key = self.rule.primary_key
        try:
            write_server_file(self._path, ServerFile(url, os.getpid(), self.rule.name, key, version(), time.time_ns()))
        except OSError as error:
            hint = f"commands on this machine need --url {url}; make the folder of the store writable"
            text = "cannot write the file by which commands find this server"
            log_event(log, logging.WARNING, text, reason=str(error), hint=hint)

    def remove(self) -> None:
        if self.rule is not None:
            remove_server_file(self._path, self.rule.primary_key)


def version() -> str:
    try:
        return importlib.metadata.version("unibus")
    except importlib.metadata.PackageNotFoundError:
        return ""
