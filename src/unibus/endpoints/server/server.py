"""A server: a store, its broker, the application and the ports, started and stopped in order.

    start:  store ▶ broker ▶ entities ▶ certificate ▶ application ▶ ports ▶ FILE.serve.json
    stop:   FILE.serve.json ▶ ports ▶ in-flight requests (up to a deadline) ▶ application ▶ store

A start that fails closes what it has opened, and leaves no new store behind: if the store does not exist yet, the ports
are bound and the settings are checked before it is created. The ports listen only after the store is open, so no client
connects to a server that cannot answer.
"""

import asyncio
import datetime
import importlib
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic
from urllib.parse import unquote, urlsplit

from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.management.settings.declaring import declare_file
from unibus.bus.store_url import url_of
from unibus.config.settings import ServerSettings, is_loopback
from unibus.core.access.rules import WELL_KNOWN_KEY, WELL_KNOWN_NAME, accepts_well_known_key
from unibus.endpoints.log_lines import log_event
from unibus.endpoints.server.exposure import check_exposure
from unibus.endpoints.server.server_file import OwnServerFile
from unibus.endpoints.server.serving import BrokerT, Serving
from unibus.endpoints.transport.application import Application, ApplicationServer
from unibus.endpoints.transport.certificates import (
    CertificateFiles,
    check_development_certificate,
    development_certificate,
)
from unibus.endpoints.transport.connections import Connections, address_of, log
from unibus.endpoints.transport.first_byte import ConnectionFactory, Protocols
from unibus.endpoints.transport.listening import bind_all, close_all
from unibus.endpoints.transport.open_files import RESERVED, raise_limit
from unibus.endpoints.transport.port import Port
from unibus.errors import StoreUnavailable

SWEEP_S: Final = 1.0
HEALTH_TICKS: Final = 5
_EVERYWHERE: Final = ("0.0.0.0", "::")
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

AppBuilder = Callable[[Serving[BrokerT], ServerSettings], Application]


class Server(Generic[BrokerT]):
    """One server on one store. `build_app` and `make_broker` are for tests; by default they are those of unibus.

    `protocols` adds protocols by their first byte. With `is_swept` False a test advances the time by calling
    `connections.sweep()`.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        build_app: AppBuilder[BrokerT] | None = None,
        make_broker: Callable[[MessageBus], BrokerT] | None = None,
        protocols: Mapping[int, ConnectionFactory] | None = None,
        is_swept: bool = True,
    ) -> None:
        self.settings = settings
        self.certificate: CertificateFiles | None = None
        self.addresses: list[tuple[str, int]] = []
        """The addresses that it listens on: those of `port` first, then those of `amqp_port`."""
        self._build_app: AppBuilder[BrokerT] = build_app or self._application_of_unibus
        self._protocols = protocols
        self._is_swept = is_swept
        self._url = url_of(settings.store)
        self._server_file = OwnServerFile(self._url)
        self._was_open = False
        self.serving: Serving[BrokerT] = Serving(
            self._open_bus, make_broker or _imported("unibus.bus.api.broker", "Broker")
        )
        self.serving.control.store_url = self._shown_store()
        self._application: ApplicationServer | None = None
        self._bound: list[socket.socket] = []
        """Bound sockets that no Port owns yet."""
        self._ports: list[Port] = []
        self._timer: asyncio.TimerHandle | None = None

    # Available after the start

    @property
    def connections(self) -> Connections:
        assert self._application is not None, "the server has not started"
        return self._application.connections

    @property
    def port(self) -> int:
        return self.addresses[0][1]

    @property
    def connection_string(self) -> str:
        """The connection string for clients on this machine.

        It contains the well-known key only while that is accepted: as long as the namespace has no rule of its own.
        """
        hosts = [host for host, _ in self.addresses]
        is_local = any([is_loopback(host) or host in _EVERYWHERE for host in hosts])
        endpoint = f"localhost:{self.port}" if is_local else address_of(self.addresses[0])
        stored = self.serving.broker.namespace_rules()
        is_well_known = is_local and accepts_well_known_key(stored, self.settings.authorization_rules)
        name, key = (WELL_KNOWN_NAME, WELL_KNOWN_KEY) if is_well_known else ("<rule>", "<key>")
        return f"Endpoint=sb://{endpoint};SharedAccessKeyName={name};SharedAccessKey={key};UseDevelopmentEmulator=true"

    @property
    def ca_file(self) -> Path | None:
        """The CA certificate that clients have to trust; None without TLS, or with a certificate from the settings."""
        return None if self.certificate is None else self.certificate.ca

    # Start and stop

    async def start(self) -> None:
        """Serve until `stop`. Raises StoreUnavailable, PortUnavailable or ConfigInvalid, and leaves nothing open."""
        self.serving.control.begin()
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        listening = [address_of(address) for address in self.addresses]
        log_event(log, logging.INFO, "started", listening=listening, store=self._shown_store(), pid=os.getpid())

    async def stop(self) -> None:
        """Stop accepting, answer in-flight requests, and close the store. A second call does nothing."""
        was_started = bool(self._ports)
        self._server_file.remove()
        if was_started:
            log_event(log, logging.INFO, "stopping", connections=len(self.connections))
        self.serving.drain()
        bound, self._bound = self._bound, []
        close_all(bound)
        ports, self._ports = self._ports, []
        for port in ports:
            port.close()
        if self._timer is not None:
            self._timer.cancel()
        try:
            await asyncio.gather(*[port.wait_closed() for port in ports])
            if self._application is not None:
                await self._application.stop()
        finally:
            await self.serving.close()
            self.serving.control.end()
        if was_started:
            log_event(log, logging.INFO, "stopped")

    async def run(self, on_started: Callable[[], None] | None = None) -> None:
        """Serve until SIGTERM or SIGINT. A second signal stops without waiting for in-flight requests."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        self.serving.control.stop = stopping.set
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, stopping)
        waiting = loop.create_task(stopping.wait())
        starting = loop.create_task(self.start())
        try:
            await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                if on_started is not None:
                    on_started()
                await waiting
        finally:
            self.serving.control.stop = None
            for task in (starting, waiting):
                task.cancel()
            await asyncio.gather(starting, waiting, return_exceptions=True)
            await self.stop()
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _on_signal(self, stopping: asyncio.Event) -> None:
        if stopping.is_set() and self._application is not None:
            self._application.stop_waiting()
        stopping.set()

    # Starting

    async def _start(self) -> None:
        settings = self.settings
        # Before a store is created: one that does not exist yet has no keys.
        check_exposure(settings, bool(settings.authorization_rules) or _may_exist(self._url))
        if _path_of(self._url) and not _may_exist(self._url):
            # Only for a new store. On an existing one the port of a second start is taken by the first, and StoreBusy,
            # which names that process, is the better error.
            self._bound = bind_all(settings)
            await asyncio.to_thread(self._check_before_creation)
        await self.serving.open()
        rules = self.serving.broker.namespace_rules()
        check_exposure(settings, bool(rules or settings.authorization_rules))
        if settings.insecure and not rules and not settings.authorization_rules and not settings.allow_networks:
            text = (
                "clients on other machines are refused: the server has no authorization rule of its own, and the "
                "well-known key is accepted from loopback only"
            )
            hint = "add a rule: `unibus access add`; or trust their network: --allow-networks"
            log_event(log, logging.WARNING, text, hint=hint)
        if settings.entities:
            plan = await asyncio.to_thread(declare_file, self.serving.bus, settings.entities)
            log_event(log, logging.INFO, "entities declared", file=settings.entities, count=len(plan.steps))
        tls = await asyncio.to_thread(self._tls)
        raise_limit(settings.connections_max)
        application = self._application = ApplicationServer(self._build_app(self.serving, settings), settings)
        self.serving.control.connections = application.counts
        self._report_limit(application.connections.most)
        await application.start()
        protocols = Protocols(application.connections, application.http, self._protocols)
        self._listen(protocols, tls)
        self._server_file.write(self.addresses)
        if self._is_swept:
            self._sweep_later()

    def _check_before_creation(self) -> None:
        """Raise the errors that would end the start after a new store was created. Creates nothing."""
        settings = self.settings
        if settings.tls_certificate:
            self._tls()
        elif settings.tls:
            check_development_certificate(self._certificate_folder(), settings.certificate_names)
        if settings.entities:
            with SyncMessageBus(strict=True) as trial:  # In memory: declare the whole file in an empty store.
                declare_file(trial, settings.entities)

    def _listen(self, protocols: Protocols, tls: ssl.SSLContext | None) -> None:
        self._bound = self._bound or bind_all(self.settings)
        while self._bound:
            self._ports.append(Port(self._bound[0], protocols, tls))
            self._bound.pop(0)
        self.addresses = [port.address for port in self._ports]

    def _report_limit(self, most: int) -> None:
        wanted = self.settings.connections_max
        if most < wanted:
            text = "the limit of open files allows fewer connections than connections_max"
            hint = f"allow {wanted + RESERVED} open files (ulimit -n), or lower connections_max"
            log_event(log, logging.WARNING, text, count=most, hint=hint)

    def _application_of_unibus(self, serving: Serving[BrokerT], settings: ServerSettings) -> Application:
        # It also serves the CA certificate that clients have to trust.
        build = _imported("unibus.endpoints.http.application.app", "build")
        application: Application = build(serving, settings, self.ca_file, self._server_file.rule)
        return application

    def _open_bus(self) -> MessageBus:
        path = _path_of(self._url)
        if self._was_open and path and not os.path.exists(path):
            # Its disk may be unmounted. Creating a store here would serve an empty one under the same name.
            raise StoreUnavailable(
                f"the store {path} does not exist any more", "restore the file or mount its disk: the server retries"
            )
        bus = MessageBus(self._url or "memory://", strict=True)
        self._was_open = True
        return bus

    def _tls(self) -> ssl.SSLContext | None:
        settings = self.settings
        if not settings.tls:
            return None
        if settings.tls_certificate:
            self.certificate = CertificateFiles(Path(settings.tls_certificate), Path(settings.tls_key))
        else:
            now = datetime.datetime.now(datetime.UTC)
            self.certificate = development_certificate(self._certificate_folder(), settings.certificate_names, now)
        return self.certificate.context()

    def _certificate_folder(self) -> Path:
        given = self.settings.certificate_folder
        return Path(given) if given else folder_beside(self._url)

    # While it serves

    def _sweep_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweep_later()  # First: an error below must not end the sweeps.
        self.connections.sweep()
        if self.connections.tick % HEALTH_TICKS == 0:
            self.serving.check()

    def _shown_store(self) -> str:
        """The URL of the store without a password."""
        parts = urlsplit(self._url)
        return self._url.replace(f":{parts.password}@", ":***@") if parts.password else self._url or "memory://"


def folder_beside(url: str) -> Path:
    """The folder of a store's development certificate: beside the store, or in the user's data folder."""
    if path := _path_of(url):
        return Path(f"{path}-certificates")
    data = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "unibus" / "certificates"


def _path_of(url: str) -> str:
    """The file or folder of a store; "" if it has none."""
    parts = urlsplit(url)
    return "" if parts.netloc else unquote(parts.path)[1:].rstrip("/")


def _may_exist(url: str) -> bool:
    path = _path_of(url)
    return path != "" and os.path.exists(path)


def _imported(module: str, name: str) -> Any:
    """A function that is imported at its first call: the application imports FastAPI, which takes a while."""

    def call(*arguments: object) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments)

    return call
