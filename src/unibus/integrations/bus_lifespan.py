"""One bus for the lifespan of one FastAPI application, and the dependency that provides it to routes.

    startup:   open the bus (in a thread) ▶ the application's own lifespan begins ▶ requests
    shutdown:  requests are over ▶ its own lifespan ends ▶ handlers finish, up to a deadline ▶ the bus is closed

The application's own lifespan runs inside ours, so it can subscribe handlers, and the bus is still open when it cleans
up. A start that fails closes what it has opened.

The bus is stored in two places: in `app.state`, for code that has the application, and in the state of the ASGI
lifespan, which the server passes to every request. Only the second one reaches an application mounted in this one.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from os import PathLike
from typing import Annotated, Any, Final, TypeAlias

from fastapi import Depends
from starlette.requests import HTTPConnection

from unibus.bus.api.broker import Broker
from unibus.bus.api.message_bus import MessageBus
from unibus.bus.settings import BusConfig
from unibus.endpoints.server_control import ServerControl
from unibus.errors import BusClosed, ConfigInvalid, StoreUnavailable

STATE: Final = "message_bus"
"""The attribute of `app.state`, and the key in the state of the lifespan."""

State: TypeAlias = Mapping[str, Any]
Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[State | None]]
"""FastAPI's form: called with the application, it returns a context manager, which may yield a state."""

BusSource: TypeAlias = "MessageBus | Callable[[], MessageBus] | BusConfig | str | PathLike[str] | None"


class BusLifespan:
    """For `FastAPI(lifespan=…)`. It holds one bus at a time; `lifespan` creates it."""

    def __init__(self, source: BusSource, inner: Lifespan | None, drain_timeout: float | None) -> None:
        self._source: Final = source
        self._inner: Final = inner or _nothing
        self._drain_timeout: Final = drain_timeout
        self._is_taken = False
        self._bus: MessageBus | None = None
        self._broker: Broker | None = None
        self.control: Final = ServerControl()
        """Without `stop`: the program that runs the application stops it."""
        self.interrupted: Final = asyncio.Event()
        """Never set: closing the bus ends waiting receives. `unibus serve` sets its own before it closes its ports."""

    def __call__(self, app: Any) -> AbstractAsyncContextManager[State]:
        return self._run(app)

    @property
    def bus(self) -> MessageBus:
        """The bus, while the application runs; BusClosed before and after."""
        if self._bus is None:
            raise BusClosed("the bus is not open: the application has not started, or has stopped", _HINT)
        return self._bus

    @property
    def broker(self) -> Broker:
        """The broker for the HTTP endpoint. StoreUnavailable before the start and after the end.

        All endpoints of the application share one, because it counts rates. Created at the first use, because a bus
        with a broker commits in a thread of the store, never on the loop.
        """
        if self._bus is None:
            raise StoreUnavailable("the bus is not open: the application has not started, or has stopped", _HINT)
        if self._broker is None:
            self._broker = Broker(self._bus)
        return self._broker

    def report(self, error: BaseException) -> None:
        """Does nothing. A failed store stays failed, and requests get 503: a new bus would lose the subscriptions."""

    @asynccontextmanager
    async def _run(self, app: Any) -> AsyncGenerator[State, None]:
        if self._is_taken:
            raise ConfigInvalid(
                "this lifespan(…) is in use by a running application", "call lifespan(…) once for each application"
            )
        if hasattr(app.state, STATE):
            raise ConfigInvalid(
                f"the application already has a message bus: app.state.{STATE}",
                "use lifespan(…) once; open a second bus inside your own lifespan",
            )
        self._is_taken = True
        self.control.begin()
        try:
            async with await self._opened() as bus:
                self._bus = bus
                setattr(app.state, STATE, bus)
                async with self._inner(app) as state:
                    yield {**(state or {}), STATE: bus}
                if self._drain_timeout is not None:
                    await bus.close(self._drain_timeout)
        finally:
            self._ended(app)

    async def _opened(self) -> MessageBus:
        source = self._source
        if isinstance(source, MessageBus):
            return source
        # In a thread: recovery of a large store takes seconds, and must not block the loop.
        return await asyncio.to_thread(source if callable(source) else lambda: MessageBus(source))

    def _ended(self, app: Any) -> None:
        if self._bus is not None:
            delattr(app.state, STATE)
        self._bus = self._broker = None
        self.control.end()
        self._is_taken = False


@asynccontextmanager
async def _nothing(app: Any) -> AsyncGenerator[None, None]:
    yield


def lifespan(
    bus: BusSource = None, inner: Lifespan | None = None, *, drain_timeout: float | None = None
) -> BusLifespan:
    """The lifespan of an application with a bus: `FastAPI(lifespan=lifespan("sqlite:///bus.db"))`.

    `bus` is an argument of `MessageBus`, a function that returns a bus, or a bus. It is opened (a bus: started) with
    the application and closed with it. A bus that was given as an object cannot be started a second time.
    `inner` is a lifespan of your own: it runs while the bus is open. `drain_timeout` is how many seconds handlers get
    at the end; None waits until they are done, as leaving `async with bus` does.
    """
    return BusLifespan(bus, inner, drain_timeout)


_HINT: Final = (
    "FastAPI(lifespan=lifespan(…)) opens it at startup; in a test use `with TestClient(app)`, which runs the startup; "
    "of mounted applications only the outermost one has a startup"
)


def bus_of(app: Any) -> MessageBus:
    """The bus of an application, for a lifespan of your own. BusClosed unless the application runs with one."""
    return _checked(getattr(getattr(app, "state", None), STATE, None))


async def get_message_bus(connection: HTTPConnection) -> MessageBus:
    """The bus of the application, for `Depends` in routes and WebSockets. BusClosed if there is none."""
    scope = connection.scope
    found = getattr(getattr(scope.get("app"), "state", None), STATE, None)
    if found is None:  # Inside a mounted application, whose own state has no bus.
        state = scope.get("state")
        found = state.get(STATE) if isinstance(state, Mapping) else None
    return _checked(found)


def _checked(found: object) -> MessageBus:
    if not isinstance(found, MessageBus):
        raise BusClosed("the application has no open message bus", _HINT)
    return found


Bus = Annotated[MessageBus, Depends(get_message_bus)]
"""The type of a route's parameter that receives the bus: `async def order(bus: Bus) -> None`."""
