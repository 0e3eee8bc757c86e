"""The real server, in a thread of its own on free ports, as clients of other people see it."""

import base64
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.server.running import Running, running
from unibus.bus.api.broker import Broker
from unibus.bus.api.message_bus import MessageBus
from unibus.config.settings import ServerSettings

KEY = base64.b64encode(b"k" * 32).decode()


class Namespace:
    """A running server with its development CA. `call` runs work of the test on the server's loop."""

    def __init__(self, server: Running) -> None:
        self.running = server

    @property
    def port(self) -> int:
        return self.running.server.port

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def ca(self) -> Path:
        found = self.running.server.ca_file
        assert found is not None
        return found

    @property
    def broker(self) -> Broker:
        found: Any = self.running.server.serving.broker
        assert isinstance(found, Broker)
        return found

    @property
    def bus(self) -> MessageBus:
        return self.running.server.serving.bus

    @property
    def connection_string(self) -> str:
        """As the server prints it."""
        return self.running.server.connection_string

    def connection_string_of(self, name: str, key: str) -> str:
        return (
            f"Endpoint=sb://localhost:{self.port};SharedAccessKeyName={name};SharedAccessKey={key};"
            "UseDevelopmentEmulator=true"
        )

    def get(self, path: str, headers: dict[str, str] | None = None) -> str:
        """The body of a successful answer over plain HTTP."""
        request = urllib.request.Request(self.url + path, headers=headers or {})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.read().decode())

    def call(self, work: Callable[[], object]) -> Any:
        async def run() -> object:
            found = work()
            return await found if hasattr(found, "__await__") else found

        return self.running.call(run())


@contextmanager
def namespace_running(certificates: Path, **settings: Any) -> Iterator[Namespace]:
    """Keywords are settings of the server, in memory unless they name a store."""
    given = {"store": "memory://", "port": 0, "amqp_port": None, "certificate_folder": str(certificates)}
    chosen = ServerSettings(**{**given, **settings})
    with running(chosen, build_app=None, make_broker=None) as server:
        yield Namespace(server)
        # Clients of other people end TLS without its farewell, for which a server that stops would wait two seconds.
        server.do(server.server.connections.abort)
