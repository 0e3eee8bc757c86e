"""Receiving from a store that this process has opened: a `management.Receiver` on its queues."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from unibus.bus.queues.operations import PEEK_LOCK, RECEIVE_AND_DELETE
from unibus.bus.queues.received import complete_many
from unibus.bus.queues.receivers import accept_session, receive_batch, request_for
from unibus.errors import LockLost

if TYPE_CHECKING:
    from unibus.bus.queues.operations import Queues
    from unibus.bus.queues.received import Received
    from unibus.bus.queues.receivers import SessionReceiver
    from unibus.cli.connection import management


class LocalReceiver:
    def __init__(self, queues: "Queues") -> None:
        self._queues = queues

    async def receive_batch(self, entity: str, count: int, wait_s: float | None, lock: bool) -> "list[Received]":
        return await receive_batch(self._queues, request_for(entity, count, _mode(lock), ""), wait_s)

    @contextlib.asynccontextmanager
    async def session(self, entity: str, session_id: str | None, wait_s: float | None) -> "AsyncIterator[LocalSession]":
        async with await accept_session(self._queues, entity, session_id, wait_s, "") as session:
            found = [each for each in await self._queues.store.entities() if each.name == session.entity]
            lock_s = found[0].settings["lock_duration"]
            assert isinstance(lock_s, (int, float))
            yield LocalSession(session, lock_s)

    @contextlib.asynccontextmanager
    async def hold(self, messages: "Sequence[management.ShownMessage]") -> AsyncIterator[None]:
        held = cast("Sequence[Received]", messages)
        async with contextlib.AsyncExitStack() as until:
            for message in held:
                await until.enter_async_context(message)
            # The last callback runs first: every message is settled when its own context ends. Otherwise an error here
            # would abandon the messages, which counts as a delivery.
            until.push_async_callback(release_all, held)
            yield

    async def complete(self, messages: "Sequence[management.ShownMessage]") -> None:
        await complete_many(self._queues, cast("Sequence[Received]", messages))


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
    """Releases what is not settled: the delivery is not counted."""
    releases = []
    for message in messages:
        if not message.settled:
            try:
                releases.append(message.release())
            except LockLost:
                # Its lock has expired, so the store has released it already. Continue with the others.
                message.settled = True
    for pending in releases:
        await pending
