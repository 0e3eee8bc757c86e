"""Binds the sockets of a server: every host on `port`, and on `amqp_port`, the default port of AMQP clients.

A port or host from the settings that cannot be bound is an error. A default is skipped instead, with a log line: the
second port if another program uses it, and IPv6 if the machine has none.
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
        hint = "stop the other program, or set amqp_port, or switch it off"
        log_event(log, logging.WARNING, "the second port is not served", reason=error.what, hint=hint)
        return first


def _bind_hosts(settings: ServerSettings, port: int) -> list[socket.socket]:
    """Bind all hosts or none. With port 0 the free port of the first host is used for all, so another host may have
    that port in use: the next try picks another one."""
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
        raise PortUnavailable(
            f"this machine has none of the addresses {', '.join(settings.host)}", "name one that it has: --host"
        )
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
