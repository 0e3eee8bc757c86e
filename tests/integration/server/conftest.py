"""Servers on a free port, on both event loops."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.running import Running, running
from unibus.config.settings import ServerSettings


@pytest.fixture(params=["uvloop", "asyncio"])
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def shared_servers(certificates: Path) -> Iterator[Callable[..., Running]]:
    """One server for each loop and settings, for tests that leave it as it was: to start one takes a quarter second."""
    started: dict[object, Running] = {}
    with ExitStack() as stack:

        def shared(loop_name: str, **settings: Any) -> Running:
            key = (loop_name, *sorted(settings.items()))
            if key not in started:
                given = {"store": "memory://", "port": 0, "amqp_port": None, "certificate_folder": str(certificates)}
                started[key] = stack.enter_context(running(ServerSettings(**{**given, **settings}), loop_name))
            return started[key]

        yield shared


@pytest.fixture
def serve(loop_name: str, certificates: Path) -> Iterator[Callable[..., Running]]:
    """Starts servers in memory. Keywords are settings; `options` are arguments of Server."""
    with ExitStack() as stack:

        def start(options: dict[str, Any] | None = None, **settings: Any) -> Running:
            given = {"store": "memory://", "port": 0, "amqp_port": None, "certificate_folder": str(certificates)}
            chosen = ServerSettings(**{**given, **settings})
            return stack.enter_context(running(chosen, loop_name, **(options or {})))

        yield start
