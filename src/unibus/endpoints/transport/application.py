"""Runs the ASGI application with uvicorn. Only this module and `http_protocol` know uvicorn.

uvicorn's own listening, signal handling and command line are not used: it gets no sockets, and its connections come
from `port`. Some names used here are not documented by uvicorn; a test pins each of them.
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
    """Runs one application from its startup to its shutdown. It belongs to one event loop."""

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
            proxy_headers=False,  # The peer is the address that connects; a client could forge a header.
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
        """ConfigInvalid if the startup of the application fails; its error is in the log."""
        await self._server.lifespan.startup()
        if self._server.lifespan.should_exit:
            raise ConfigInvalid("the startup of the ASGI application failed", "see its error in the log above")
        # uvicorn's main loop keeps the Date header up to date, until should_exit.
        self._ticking = asyncio.get_running_loop().create_task(self._server.main_loop())

    def http(self) -> HttpConnection:
        """A protocol for a new connection."""
        server = self._server
        return HttpConnection(server.config, server.server_state, server.lifespan.state, self.connections)

    def counts(self) -> tuple[int, int]:
        """The numbers of open connections and of in-flight requests."""
        return len(self.connections), len(self._server.server_state.tasks)

    async def stop(self) -> None:
        """Answer in-flight requests, up to the deadline; then run the application's shutdown."""
        if self._ticking is None:
            return
        self._server.should_exit = True
        await self._ticking
        await self._server.shutdown(sockets=[])
        self.connections.abort()
        if self._server.force_exit:
            # uvicorn skips the lifespan's shutdown then, and the end of the loop would cancel it with a traceback.
            await self._server.lifespan.shutdown()

    def stop_waiting(self) -> None:
        """Do not wait for in-flight requests any longer."""
        self._server.force_exit = True
