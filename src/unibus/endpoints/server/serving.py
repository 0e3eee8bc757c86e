"""The broker of a server, which is unavailable while a failed store is being reopened.

    open ──▶ up ── the store stops ──▶ down ── the store is reopened ──▶ up … ──▶ closed
                                    └─ StoreUnavailable for every call, which endpoints answer with 503

After a failed write the outcome of the last calls is unknown until the store is recovered. So the bus is closed and
opened again in the background, until that succeeds, while requests get 503. Invariant for callers: do not keep the
broker across an await, because it may be replaced meanwhile.
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
    """What the server itself needs of a broker."""

    def namespace_rules(self) -> tuple[AuthorizationRule, ...]: ...


BrokerT = TypeVar("BrokerT", bound=Operations)


class Serving(Generic[BrokerT]):
    """Holds the broker of a server. It belongs to the event loop that it is opened on.

    `draining` is set when the server stops: waiting receives then answer at once, without a message.
    `interrupted` is set then too, and when the store has failed: that broker would never wake a waiting receive.
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
        """The broker. StoreUnavailable while the store is being reopened, and after `close`."""
        if self._broker is None:
            raise StoreUnavailable(f"the store is not available: {self._problem}", "try again in a moment")
        return self._broker

    @property
    def bus(self) -> MessageBus:
        """The bus of the broker. StoreUnavailable as for `broker`."""
        if self._bus is None or self._broker is None:
            raise StoreUnavailable(f"the store is not available: {self._problem}", "try again in a moment")
        return self._bus

    @property
    def problem(self) -> str:
        """Why there is no broker; "" while it is available."""
        return "" if self._broker is not None else self._problem

    async def open(self) -> None:
        """Open the store. StoreUnavailable, or a subclass, if that fails."""
        # In a thread: recovery of a large store takes seconds, and signals have to be handled meanwhile.
        bus = await asyncio.to_thread(self._open_bus)
        try:
            await bus.__aenter__()
            self._broker = self._make_broker(bus)
        except BaseException:
            await bus.close(0)
            raise
        self._bus = bus

    def drain(self) -> None:
        """The server stops: end waiting receives."""
        self.draining.set()
        self.interrupted.set()

    async def close(self) -> None:
        """Close the bus, after its handlers have processed what was published."""
        self._problem = "the server has stopped"
        reopening, self._reopening = self._reopening, None
        if reopening is not None:
            reopening.cancel()
            await asyncio.gather(reopening, return_exceptions=True)
        bus, self._bus, self._broker = self._bus, None, None
        if bus is not None:
            await bus.close()

    def report(self, error: BaseException) -> None:
        """An operation has raised this error. A StoreFailed may mean that the store has stopped: its health says so."""
        if isinstance(error, StoreFailed):
            self.check()  # Not `_go_down`: a late report may be about the store before this one.

    def check(self) -> None:
        """Check whether the store has stopped, also if no operation has noticed it, and open it again then."""
        if self._bus is None or self._broker is None:
            return
        health = self._bus.health_check()
        if health.store is not None and health.store.stopped:
            self._go_down(health.store.problem)

    def _go_down(self, problem: str) -> None:
        hint = "clients get 503 until it is open again; the server retries"
        log_event(log, logging.ERROR, "the store has failed", reason=problem, hint=hint)
        self._problem = problem
        self._broker = None
        self.interrupted.set()
        self._reopening = asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        bus, self._bus = self._bus, None
        if bus is not None:
            try:
                await bus.close(0)
            except BusError as error:  # Expected of a failed store; the outcome of its last writes is unknown anyway.
                log_event(log, logging.WARNING, "the failed store was not closed cleanly", reason=error.what)
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
            # A new event; the old one stays set, because receives at the old broker may not have seen it yet.
            self.interrupted = asyncio.Event()
        self.reopened += 1
        self._reopening = None
        log_event(log, logging.WARNING, "the store is open again")
