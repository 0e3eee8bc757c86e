"""A real server on a store, in a thread of the test process; and commands that run against it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unibus.config.settings import ServerSettings
from unibus.endpoints.server.server import Server

PATIENCE_S = 60.0


class Served:
    """`url` is where it listens, `path` the file that it owns."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        given = {"store": str(path), "host": ("127.0.0.1",), "port": 0, "amqp_port": None, "tls": False, **settings}
        self.server: Server[Any] = Server(ServerSettings(**given))
        self._do(self.server.start())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def stop(self) -> None:
        self._do(self.server.stop())

    def end(self) -> None:
        self.stop()
        self._do(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


@contextmanager
def serving(path: Path, **settings: Any) -> Iterator[Served]:
    served = Served(path, **settings)
    try:
        yield served
    finally:
        served.end()
