"""One bus for the lifetime of one FastAPI application, and the dependency that gives it to routes.

    startup:   open the bus (in a thread) ▶ the application's own lifespan begins ▶ requests
    shutdown:  requests are over ▶ its own lifespan ends ▶ handlers finish, up to a deadline ▶ the bus is closed

The application's own lifespan runs inside of ours, so it can subscribe handlers and still has an open bus when it
cleans up. A start that fails closes what it has opened.

The bus is kept in two places: in `app.state`, for code that has the application, and in the state of the ASGI lifespan,
which the server hands to every request. Only the second one reaches an application that is mounted in this one.
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
"""As FastAPI takes it: called with the application, it gives a context manager, which may give a state."""

BusSource: TypeAlias = "MessageBus | Callable[[], MessageBus] | BusConfig | str | PathLike[str] | None"


class BusLifespan:
    """For `FastAPI(lifespan=…)`. It holds one bus at a time; see `lifespan`, which makes one."""

    def __init__(self, source: BusSource, inner: Lifespan | None, drain_timeout: float | None) -> None:
        self._source: Final = source
        self._inner: Final = inner or _nothing
        self._drain_timeout: Final = drain_timeout
        self._is_taken = False
        self._bus: MessageBus | None = None
        self._broker: Broker | None = None
        self.control: Final = ServerControl()
        """Without a way to stop: the program that runs the application decides about its end."""
        self.interrupted: Final = asyncio.Event()
        """Never set: closing the bus ends what waits for messages. A server sets its own before it closes its ports."""

    def __call__(self, app: Any) -> AbstractAsyncContextManager[State]:
        return self._run(app)

    @property
    def bus(self) -> MessageBus:
        """The bus, while the application runs; BusClosed before and after."""
        if self._bus is None:
            raise BusClosed("the application has not started, or has stopped", _HINT)
        return self._bus

    @property
    def broker(self) -> Broker:
        """The operations for the HTTP endpoint. StoreUnavailable before the start and after the end.

        One for all endpoints of the application, because it counts rates. Made when the first one asks for it, because
        a bus with a broker commits in a thread of the store, never on the loop.
        """
        if self._bus is None:
            raise StoreUnavailable("the application has not started, or has stopped", _HINT)
        if self._broker is None:
            self._broker = Broker(self._bus)
        return self._broker

    def report(self, error: BaseException) -> None:
        """A failed store stays failed, and is answered with 503: opening another bus would lose the subscriptions."""

    @asynccontextmanager
    async def _run(self, app: Any) -> AsyncGenerator[State, None]:
        if self._is_taken:
            raise ConfigInvalid("this lifespan runs already", "call lifespan(…) once for each application")
        if hasattr(app.state, STATE):
            raise ConfigInvalid(
                f"the application has a message bus already: app.state.{STATE}",
                "an application has one lifespan(…); open a second bus inside of your own lifespan",
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
        # In a thread: recovering a large store takes seconds, in which the loop has other work.
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

    `bus` is what `MessageBus` takes, a function that makes a bus, or a bus. It is opened (a bus: started) with the
    application and closed with it. Only a bus that was given as an object cannot be started a second time.
    `inner` is a lifespan of your own: it runs while the bus is open. `drain_timeout` bounds the seconds that handlers
    get at the end; None waits as long as they take, as leaving `async with bus` does.
    """
    return BusLifespan(bus, inner, drain_timeout)


_HINT: Final = (
    "FastAPI(lifespan=lifespan(…)) opens it at the startup; a test runs that by `with TestClient(app)`, "
    "and of applications that are mounted in another one only the outermost has a startup"
)


def bus_of(app: Any) -> MessageBus:
    """The bus of an application: for a lifespan of your own. BusClosed unless the application runs with one."""
    return _checked(getattr(getattr(app, "state", None), STATE, None))


async def get_message_bus(connection: HTTPConnection) -> MessageBus:
    """The bus of the application: for `Depends` in routes and WebSockets. BusClosed if there is none."""
    scope = connection.scope
    found = getattr(getattr(scope.get("app"), "state", None), STATE, None)
    if found is None:  # Inside of a mounted application, whose own state has none.
        state = scope.get("state")
        found = state.get(STATE) if isinstance(state, Mapping) else None
    return _checked(found)


def _checked(found: object) -> MessageBus:
    if not isinstance(found, MessageBus):
        raise BusClosed("the application has no message bus that is open", _HINT)
    return found


Bus = Annotated[MessageBus, Depends(get_message_bus)]
"""A parameter of this type gets the bus: `async def order(bus: Bus) -> None`."""
