"""Receiving from a store that this process has opened: the bus itself, in the form of `management.Receiver`."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from unibus.bus.queues.operations import PEEK_LOCK, RECEIVE_AND_DELETE
from unibus.errors import LockLost

if TYPE_CHECKING:
    from unibus.bus.api.message_bus import MessageBus
    from unibus.bus.queues.received import Received
    from unibus.bus.queues.receivers import SessionReceiver
    from unibus.cli.connection import management


class LocalReceiver:
    def __init__(self, bus: "MessageBus") -> None:
        self._bus = bus

    async def receive_batch(self, entity: str, count: int, wait_s: float | None, lock: bool) -> "list[Received]":
        return await self._bus.receive_batch(entity, count, wait_s, _mode(lock))

    @contextlib.asynccontextmanager
    async def session(self, entity: str, session_id: str | None, wait_s: float | None) -> "AsyncIterator[LocalSession]":
        async with await self._bus.accept_session(entity, session_id, wait_s) as session:
            found = [each for each in await self._bus.entities() if each.name == session.entity]
            lock_s = found[0].settings["lock_duration"]
            assert isinstance(lock_s, (int, float))
            yield LocalSession(session, lock_s)

    @contextlib.asynccontextmanager
    async def hold(self, messages: "Sequence[management.ShownMessage]") -> AsyncIterator[None]:
        held = cast("Sequence[Received]", messages)
        async with contextlib.AsyncExitStack() as until:
            for message in held:
                await until.enter_async_context(message)
            # Left first, so that the messages find themselves settled, and none is abandoned because of our error.
            until.push_async_callback(release_all, held)
            yield

    async def complete(self, messages: "Sequence[management.ShownMessage]") -> None:
        await self._bus.complete_many(cast("Sequence[Received]", messages))


class LocalSession:
    def __init__(self, session: "SessionReceiver", lock_s: float) -> None:
        self.lock_s = lock_s
        self._session = session

    async def receive_batch(self, count: int, wait_s: float | None, lock: bool) -> "list[Received]":
        return await self._session.receive_batch(count, wait_s, _mode(lock))

    def renew(self) -> None:
        self._session.renew_lock().wait()


def _mode(lock: bool) -> str:
    return PEEK_LOCK if lock else RECEIVE_AND_DELETE


async def release_all(messages: "Iterable[Received]") -> None:
    """Release what is not settled: as if it had not been received."""
    on_their_way = []
    for message in messages:
        if not message.settled:
            try:
                on_their_way.append(message.release())
            except LockLost:
                # Its lock has ended, so that it is back already; the others still have to go.
                message.settled = True
    for pending in on_their_way:
        await pending
