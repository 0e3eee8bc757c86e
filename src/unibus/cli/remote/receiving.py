"""Receiving from a server: long polls, and locks that are renewed until the messages are settled or released.

A call runs in a thread, so that Ctrl-C takes effect while it waits. Ctrl-C closes the connection, and the server
releases what it had locked for it. If the answer arrives nevertheless, its messages are released here.

    receive ──▶ wait ≤ POLL_S ──▶ messages; or none: poll again until the deadline
       └─ Ctrl-C ──▶ close the connection ──▶ did an answer arrive? ──▶ release its messages
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar, cast

from unibus.bus.management.messages.documents import message_of_document
from unibus.bus.management.messages.receiving import (
    AcceptedSession,
    AcceptRequest,
    HeldSessionRecord,
    ReceivedMessage,
    ReceiveRequest,
    RenewedLock,
    RenewedSession,
    RenewRequest,
    SessionRequest,
    SettledMessage,
    SettleRequest,
)
from unibus.cli.remote.entities import all_entities
from unibus.client.client import Client
from unibus.core.envelope.message import Message
from unibus.errors import BusError, SessionNotFound

if TYPE_CHECKING:
    from unibus.cli.connection import management

POLL_S: Final = 20.0
"""How long one request waits. A server that disappears is noticed after this time at the latest."""

FIRST_RENEWAL_S: Final = 0.3
LOCK_S: Final = 30.0
T = TypeVar("T")


class RemoteReceived:
    def __init__(self, given: ReceivedMessage) -> None:
        self.entity = given.entity
        self.token = given.token or ""
        self.message: Message = message_of_document(given.document)
        self.message.sequence = given.sequence
        self.message.delivery_count = given.delivery_count
        self.enqueued_at = datetime.fromtimestamp(given.enqueued_ns / 1e9, UTC)
        self.settled = given.token is None


class RemoteReceiver:
    def __init__(self, client: Client) -> None:
        self._client = client

    def close(self) -> None:
        self._client.close()

    async def receive_batch(self, entity: str, count: int, wait_s: float | None, lock: bool) -> list[RemoteReceived]:
        return await self.receive(entity, ReceiveRequest(count, 0.0, lock), wait_s)

    async def receive(self, entity: str, request: ReceiveRequest, wait_s: float | None) -> list[RemoteReceived]:
        ends_s = None if wait_s is None else time.monotonic() + wait_s
        while True:
            found = await self._received(entity, _with_wait(request, _left(ends_s)))
            if found or (ends_s is not None and time.monotonic() >= ends_s):
                return found

    async def _received(self, entity: str, request: ReceiveRequest) -> list[RemoteReceived]:
        def work() -> list[RemoteReceived]:
            query = {"entity": entity}
            found = self._client.post("messages/receive", list[ReceivedMessage], request, query, wait_s=request.wait_s)
            return [RemoteReceived(each) for each in found]

        return await self.interruptible(work, self._release)

    @contextlib.asynccontextmanager
    async def session(
        self, entity: str, session_id: str | None, wait_s: float | None
    ) -> "AsyncIterator[RemoteSession]":
        session = await self._accepted(entity, session_id, wait_s)
        try:
            yield session
        finally:
            with contextlib.suppress(BusError):  # Its lock has expired: the session is free in either case.
                await self.finished(session.release)

    async def _accepted(self, entity: str, session_id: str | None, wait_s: float | None) -> "RemoteSession":
        ends_s = None if wait_s is None else time.monotonic() + wait_s

        def work() -> AcceptedSession:
            left_s = _left(ends_s)
            request = AcceptRequest(session_id, left_s)
            return self._client.post("sessions/accept", AcceptedSession, request, {"entity": entity}, wait_s=left_s)

        def undo(accepted: AcceptedSession) -> None:
            RemoteSession(self, self._client, accepted).release()

        while True:
            try:
                return RemoteSession(self, self._client, await self.interruptible(work, undo))
            except SessionNotFound:
                if ends_s is not None and time.monotonic() >= ends_s:
                    raise

    @contextlib.asynccontextmanager
    async def hold(self, messages: "Sequence[management.ShownMessage]") -> AsyncIterator[None]:
        held = cast(Sequence[RemoteReceived], messages)
        renewing = _Renewing(self._client.twin(), held)
        try:
            yield
        finally:
            renewing.stop()
            await self.finished(lambda: self._release(held))

    async def complete(self, messages: "Sequence[management.ShownMessage]") -> None:
        done = cast(Sequence[RemoteReceived], messages)
        await self.finished(lambda: self._settle("complete", done, False))

    def _release(self, messages: Sequence[RemoteReceived]) -> None:
        self._settle("release", [each for each in messages if not each.settled], True)

    def _settle(self, verb: str, messages: Sequence[RemoteReceived], each: bool) -> None:
        for entity in dict.fromkeys(message.entity for message in messages):
            own = [message for message in messages if message.entity == entity]
            request = SettleRequest(verb, [message.token for message in own], each=each)  # type: ignore[arg-type]
            self._client.post("messages/settle", list[SettledMessage], request, {"entity": entity})
            for message in own:
                message.settled = True

    # Calls in a thread

    async def interruptible(self, work: Callable[[], T], undo: Callable[[T], None]) -> T:
        """Runs `work` in a thread. If cancelled, closes the connection and undoes an answer that still arrives."""
        calling = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            self._client.interrupt()
            with contextlib.suppress(BusError):
                result = await calling
                await self.finished(lambda: undo(result))
            raise

    async def finished(self, work: Callable[[], T]) -> T:
        """Runs `work` in a thread to its end, even if cancelled: a settlement must not stop halfway."""
        calling = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            await calling
            raise


class RemoteSession:
    def __init__(self, receiver: RemoteReceiver, client: Client, accepted: AcceptedSession) -> None:
        self.lock_s = accepted.lock_duration_s
        self._receiver = receiver
        self._client = client
        self._renewals = client.twin()
        self._entity = accepted.entity
        self._held = HeldSessionRecord(accepted.session_id, accepted.token)

    async def receive_batch(self, count: int, wait_s: float | None, lock: bool) -> list[RemoteReceived]:
        request = ReceiveRequest(count, 0.0, lock, self._held)
        return await self._receiver.receive(self._entity, request, wait_s)

    def renew(self) -> None:
        self._renewals.post("sessions/renew", RenewedSession, self._request(), {"entity": self._entity}, is_safe=True)

    def release(self) -> None:
        self._renewals.close()
        self._client.post("sessions/release", dict[str, object], self._request(), {"entity": self._entity})

    def _request(self) -> SessionRequest:
        return SessionRequest(self._held.id, self._held.token)


class _Renewing:
    """Renews locks in a thread: a reader that does not read the pipe blocks the event loop."""

    def __init__(self, client: Client, messages: Sequence[RemoteReceived]) -> None:
        self._client = client
        self._messages = messages
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="unibus-locks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()

    def _renew(self) -> None:
        if self._ended.wait(FIRST_RENEWAL_S):
            return  # Most messages are settled by then and need no request.
        try:
            every_s = self._lock_s() / 3
            while True:
                self._renew_all()
                if self._ended.wait(every_s):
                    return
        except BusError:
            return  # The settlement raises LockLost.

    def _lock_s(self) -> float:
        names = {message.entity for message in self._messages}
        found = [info.settings.get("lock_duration") for info in all_entities(self._client) if info.name in names]
        return min([each for each in found if isinstance(each, (int, float))], default=LOCK_S)

    def _renew_all(self) -> None:
        for entity in dict.fromkeys(message.entity for message in self._messages):
            tokens = [each.token for each in self._messages if each.entity == entity and not each.settled]
            if tokens:
                query = {"entity": entity}
                self._client.post("messages/renew", list[RenewedLock], RenewRequest(tokens), query, is_safe=True)


def _left(ends_s: float | None) -> float:
    return POLL_S if ends_s is None else min(POLL_S, max(0.0, ends_s - time.monotonic()))


def _with_wait(request: ReceiveRequest, wait_s: float) -> ReceiveRequest:
    return ReceiveRequest(request.count, wait_s, request.lock, request.session, request.consumer)
