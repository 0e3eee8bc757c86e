"""The ASGI application, run by uvicorn. This module and `http_protocol` are all that know uvicorn.

uvicorn's listening, signals and command line are not used: it is given no sockets, and its connections come from
`port`. Of what it offers without documenting it, a test pins every name that is used here.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any, cast

import uvicorn

from unibus.config.settings import ServerSettings
from unibus.endpoints.transport.connections import Connections
from unibus.endpoints.transport.http_protocol import HttpConnection
from unibus.errors import ConfigInvalid

Application = Callable[..., Any]
"""An ASGI callable."""


class ApplicationServer:
    """Runs one application from its startup to its shutdown. It belongs to one loop."""

    def __init__(self, app: Application, settings: ServerSettings) -> None:
        config = uvicorn.Config(
            app,
            http=HttpConnection,
            ws="none",
            loop="none",
            lifespan="auto",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # The peer is the one that connects: a header must not replace it.
            server_header=False,
            timeout_graceful_shutdown=math.ceil(settings.drain_deadline_s),
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._server.servers = []
        self._ticking: asyncio.Task[None] | None = None
        self.connections = Connections(settings, cast("set[object]", self._server.server_state.connections))

    async def start(self) -> None:
        """ConfigInvalid if the application fails at its startup; the log has its error."""
        await self._server.lifespan.startup()
        if self._server.lifespan.should_exit:
            raise ConfigInvalid("the application did not start", "the log has its error")
        # It keeps the Date header up to date, until should_exit.
        self._ticking = asyncio.get_running_loop().create_task(self._server.main_loop())

    def http(self) -> HttpConnection:
        """The protocol of a new connection."""
        server = self._server
        return HttpConnection(server.config, server.server_state, server.lifespan.state, self.connections)

    def counts(self) -> tuple[int, int]:
        """How many connections are open, and how many requests are being answered."""
        return len(self.connections), len(self._server.server_state.tasks)

    async def stop(self) -> None:
        """Answer what is in flight, until the deadline; then the application's shutdown."""
        if self._ticking is None:
            return
        self._server.should_exit = True
        await self._ticking
        await self._server.shutdown(sockets=[])
        self.connections.abort()
        if self._server.force_exit:
            # uvicorn leaves it out then, and the end of the loop would cancel it with a traceback.
            await self._server.lifespan.shutdown()

    def hurry(self) -> None:
        """Wait for nothing more."""
        self._server.force_exit = True
