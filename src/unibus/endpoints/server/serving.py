"""The broker as endpoints see it: there, or for the moment not.

    open ──▶ up ── StoreFailed ──▶ down ── the store was opened again ──▶ up … ──▶ closed
                                    └─ StoreUnavailable for every call, which endpoints answer with 503

After a write has failed the outcome of the last calls is unknown until the store was opened again. So the bus is closed
and opened again in the background, as often as it takes, while requests are answered. No caller keeps the broker across
an await: it may be another one afterwards.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from unibus.bus.api.message_bus import MessageBus
from unibus.core.access.rules import AuthorizationRule
from unibus.endpoints.log_lines import log_event
from unibus.endpoints.server_control import ServerControl
from unibus.endpoints.transport.connections import log
from unibus.errors import BusError, StoreFailed, StoreUnavailable

RETRY_S: Final = 0.2
RETRY_S_MAX: Final = 5.0


class Operations(Protocol):
    """What the server itself asks of a broker."""

    def namespace_rules(self) -> tuple[AuthorizationRule, ...]: ...


BrokerT = TypeVar("BrokerT", bound=Operations)


class Serving(Generic[BrokerT]):
    """Holds the broker of a server. For the loop that it is opened on.

    `draining` is set when the server stops: what waits for messages answers at once, without any.
    `interrupted` is set then too, and when the store has failed: what waits at that broker would never be woken.
    """

    def __init__(self, open_bus: Callable[[], MessageBus], make_broker: Callable[[MessageBus], BrokerT]) -> None:
        self.draining = asyncio.Event()
        self.interrupted = asyncio.Event()
        self.reopened = 0
        self.control = ServerControl()
        self._open_bus = open_bus
        self._make_broker = make_broker
        self._bus: MessageBus | None = None
        self._broker: BrokerT | None = None
        self._problem = "the server has not started"
        self._reopening: asyncio.Task[None] | None = None

    @property
    def broker(self) -> BrokerT:
        """The broker. StoreUnavailable while the store is being opened again, and after the end."""
        if self._broker is None:
            raise StoreUnavailable(f"the store is not available: {self._problem}", "try again in a moment")
        return self._broker

    @property
    def bus(self) -> MessageBus:
        """The bus of the broker. StoreUnavailable as there."""
        if self._bus is None or self._broker is None:
            raise StoreUnavailable(f"the store is not available: {self._problem}", "try again in a moment")
        return self._bus

    @property
    def problem(self) -> str:
        """Why there is no broker; "" while there is one."""
        return "" if self._broker is not None else self._problem

    async def open(self) -> None:
        """StoreUnavailable, or one of its kinds, if the store cannot be opened."""
        # In a thread: to recover a large store takes seconds, and a signal must be able to end it.
        bus = await asyncio.to_thread(self._open_bus)
        try:
            await bus.__aenter__()
            self._broker = self._make_broker(bus)
        except BaseException:
            await bus.close(0)
            raise
        self._bus = bus

    def drain(self) -> None:
        """The server stops: end what waits for messages."""
        self.draining.set()
        self.interrupted.set()

    async def close(self) -> None:
        """Close the bus, after what was published on it was handled."""
        self._problem = "the server has stopped"
        reopening, self._reopening = self._reopening, None
        if reopening is not None:
            reopening.cancel()
            await asyncio.gather(reopening, return_exceptions=True)
        bus, self._bus, self._broker = self._bus, None, None
        if bus is not None:
            await bus.close()

    def report(self, error: BaseException) -> None:
        """An operation has raised this. After StoreFailed the store is opened again; other errors are the caller's."""
        if isinstance(error, StoreFailed):
            self.check()  # A late report may be about the store before this one.

    def check(self) -> None:
        """Look whether the store has failed without any operation noticing it."""
        if self._bus is None or self._broker is None:
            return
        health = self._bus.health_check()
        if health.store is not None and not health.store.ok:
            self._go_down(health.store.problem)

    def _go_down(self, problem: str) -> None:
        log_event(log, logging.ERROR, "the store has failed", reason=problem)
        self._problem = problem
        self._broker = None
        self.interrupted.set()
        self._reopening = asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        bus, self._bus = self._bus, None
        if bus is not None:
            try:
                await bus.close(0)
            except BusError as error:  # It has failed before; what it could not write is unknown anyway.
                log_event(log, logging.WARNING, "closing the failed store", reason=error.what)
        delay_s = RETRY_S
        while True:
            try:
                await self.open()
                break
            except (BusError, OSError) as error:
                self._problem = error.what if isinstance(error, BusError) else str(error)
                log_event(log, logging.ERROR, "the store cannot be opened", reason=self._problem, retry_s=delay_s)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_S_MAX)
        if not self.draining.is_set():
            self.interrupted = asyncio.Event()  # Another one: those who wait at the old broker still have to notice.
        self.reopened += 1
        self._reopening = None
        log_event(log, logging.WARNING, "the store is open again")
