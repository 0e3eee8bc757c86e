"""The administration behind a real HTTPS server on a free port, with tokens checked, for clients of other people."""

import asyncio
import base64
import datetime as dt
import ipaddress
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncClient
from azure.servicebus.management import ServiceBusAdministrationClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from unibus import MessageBus
from unibus.bus.broker import Broker
from unibus.core.access.decide import Access
from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule
from unibus.endpoints.http.administration.table import ADMINISTRATION
from unibus.endpoints.http.app import Front, application
from unibus.endpoints.http.operation import Table
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.service import Service

KEY = base64.b64encode(b"k" * 32).decode()
RULE = AuthorizationRule("RootManageSharedAccessKey", frozenset(Right), KEY, KEY)


class Serving:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker


class Gate:
    """core/access, asked as a server asks it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._access = Access([RULE], broker.access_rules)

    def check(self, request: Request, right: Right, target: str) -> str:
        token = request.headers.get("authorization")
        return self._access.check(token, right, target, self._broker.now_ns()).claims.rule

    def check_forwarding(self, request: Request, forward_to: str, forward_dead_letters_to: str) -> None:
        headers = ("servicebussupplementaryauthorization", "servicebusdlqsupplementaryauthorization")
        for target, header in zip((forward_to, forward_dead_letters_to), headers, strict=True):
            if target:
                self._access.check(request.headers[header], Right.MANAGE, target, self._broker.now_ns())


class Requests:
    """What was answered, for tests that look at what a client sends."""

    def __init__(self) -> None:
        self.answered_with: list[tuple[str, int]] = []

    def answered(self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str) -> None:
        self.answered_with.append((operation, status))


@dataclass
class Namespace:
    """A running server. `call` runs a coroutine of the test on its loop."""

    port: int
    ca: Path
    loop: asyncio.AbstractEventLoop
    bus: MessageBus
    broker: Broker

    @property
    def connection_string(self) -> str:
        return self.connection_string_of("RootManageSharedAccessKey", KEY)

    def connection_string_of(self, name: str, key: str) -> str:
        return (
            f"Endpoint=sb://localhost:{self.port};SharedAccessKeyName={name};SharedAccessKey={key};"
            "UseDevelopmentEmulator=true"
        )

    def call(self, work: Callable[[], object]) -> object:
        async def run() -> object:
            found = work()
            return await found if hasattr(found, "__await__") else found

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)


def _certificates(folder: Path) -> tuple[Path, Path]:
    """A certificate authority and a certificate of localhost: ca.pem, and the chain with its key."""
    now = dt.datetime.now(dt.UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "unibus test CA")])

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
        )

    identifier = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        builder(issuer, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    leaf = (
        builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]), key.public_key())
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    ca_path, leaf_path = folder / "ca.pem", folder / "server.pem"
    ca_path.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    leaf_path.write_bytes(private + leaf.public_bytes(serialization.Encoding.PEM))
    return ca_path, leaf_path


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


class _Server(threading.Thread):
    def __init__(self, pem: Path) -> None:
        super().__init__(name="azure-admin-server", daemon=True)
        self._pem = pem
        # Listening before the server runs: who connects early waits in the backlog, and nothing has to be polled.
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.ready = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.ready.set()

    async def _serve(self) -> None:
        async with MessageBus("memory://") as bus:
            broker = Broker(bus)
            service = Service(Serving(broker), Gate(broker), Requests(), 1024 * 1024)
            table = Table(ADMINISTRATION)
            config = uvicorn.Config(
                Front(service, table, application(service, table)),
                log_level="warning",
                lifespan="off",
                ssl_certfile=str(self._pem),
            )
            self.server = uvicorn.Server(config)
            self.bus, self.broker, self.loop = bus, broker, asyncio.get_running_loop()
            self.ready.set()
            await self.server.serve([self._socket])

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._end)
        self.join(30)
        assert not self.is_alive()

    def _end(self) -> None:
        # Clients close without the farewell of TLS, for which asyncio would wait 30 seconds.
        for connection in list(self.server.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr]
        self.server.should_exit = True


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    ca, pem = _certificates(tmp_path_factory.mktemp("certificates"))
    server = _Server(pem)
    server.start()
    assert server.ready.wait(30)
    assert server.failure is None, server.failure
    yield Namespace(server.port, ca, server.loop, server.bus, server.broker)
    server.stop()


@pytest.fixture
def client(namespace: Namespace) -> Iterator[ServiceBusAdministrationClient]:
    options = {"connection_verify": str(namespace.ca), "retry_total": 0}
    with ServiceBusAdministrationClient.from_connection_string(namespace.connection_string, **options) as opened:
        yield opened
        for queue in list(opened.list_queues()):
            opened.delete_queue(queue.name)
        for topic in list(opened.list_topics()):
            opened.delete_topic(topic.name)


@pytest.fixture
async def async_client(namespace: Namespace) -> AsyncIterator[AsyncClient]:
    options = {"connection_verify": str(namespace.ca), "retry_total": 0}
    async with AsyncClient.from_connection_string(namespace.connection_string, **options) as opened:
        yield opened
        async for queue in opened.list_queues():
            await opened.delete_queue(queue.name)
        async for topic in opened.list_topics():
            await opened.delete_topic(topic.name)
