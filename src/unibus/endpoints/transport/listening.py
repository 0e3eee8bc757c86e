"""Which sockets a server binds: every host on its port, and on the second port where AMQP clients look.

A port that was asked for and cannot be bound is an error. What is only a default is left out, with a line in the log:
the second port, if another program has it, and IPv6, if the machine has none.
"""

import errno
import logging
import socket
from typing import Final

from unibus.config.settings import ServerSettings
from unibus.endpoints.log_lines import log_event
from unibus.endpoints.transport.connections import log
from unibus.endpoints.transport.port import bind, is_missing_address
from unibus.errors import PortUnavailable

FREE_PORT_TRIES: Final = 20


def bind_all(settings: ServerSettings) -> list[socket.socket]:
    """Sockets for `port`, then for `amqp_port`, bound and not yet listening. PortUnavailable leaves none open."""
    first = _bind_hosts(settings, settings.port)
    if settings.amqp_port is None or settings.amqp_port == settings.port != 0:
        return first
    try:
        return first + _bind_hosts(settings, settings.amqp_port)
    except PortUnavailable as error:
        if "amqp_port" in settings.given:
            close_all(first)
            raise
        log_event(log, logging.WARNING, "the second port is not served", reason=error.what)
        return first


def _bind_hosts(settings: ServerSettings, port: int) -> list[socket.socket]:
    """On all hosts or on none. A free port is the same one everywhere, so one host may refuse what another gave."""
    for tries in range(FREE_PORT_TRIES, 0, -1):
        bound: list[socket.socket] = []
        try:
            for host in settings.host:
                bound += _bind_host(settings, host, bound[0].getsockname()[1] if bound and not port else port)
        except PortUnavailable as error:
            close_all(bound)
            cause = error.__cause__
            if port or not bound or tries == 1 or not isinstance(cause, OSError) or cause.errno != errno.EADDRINUSE:
                raise
            continue
        if bound:
            return bound
        raise PortUnavailable(f"this machine has none of the addresses {', '.join(settings.host)}", "see --host")
    raise AssertionError("the last try returns or raises")


def _bind_host(settings: ServerSettings, host: str, port: int) -> list[socket.socket]:
    try:
        return bind(host, port)
    except PortUnavailable as error:
        if "host" in settings.given or not is_missing_address(error):
            raise
        log_event(log, logging.INFO, "an address is not served", reason=error.what)
        return []


def close_all(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()
