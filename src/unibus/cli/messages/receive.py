"""`unibus receive`: receive messages from a queue, show them, and settle them.

    receive a batch (locked) ──▶ write its lines ──▶ flush ──▶ complete the batch
                                                 any failure ──▶ release it

At least once: a message is completed only after its line was written and flushed. If the command ends before that
(Ctrl-C, a closed pipe, an error), it releases the message and the delivery is not counted. So a message may be shown
twice, but none is lost. With --delete it is at most once: the store removes a message before it is shown.
"""

import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, DeadLetters, Queue, Url, entity_name, not_found
from unibus.cli.connection.management import BATCH, Management, Receiver, ReceiverSession, ShownMessage
from unibus.cli.terminal.durations import METAVAR, seconds_of
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import aside
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.shared_options import ALL, LIMIT_METAVAR, LIMIT_NAMES, Follow, Raw, limit_of
from unibus.cli.terminal.signals import until_signal
from unibus.errors import BusError, EntityNotFound, SessionNotAllowed, SessionRequired, UsageError

NEXT: Final = "next"
NO_LIMIT: Final = 2**62

Take: TypeAlias = Callable[[int, float | None], Awaitable[Sequence[ShownMessage]]]


@dataclass(frozen=True)
class ReceiveOptions:
    queue: Queue
    limit: Annotated[
        str | None,
        typer.Option(
            *LIMIT_NAMES,
            metavar=LIMIT_METAVAR,
            show_default="1, all with --follow",
            help="At most this number; all: no limit.",
        ),
    ] = None
    timeout: Annotated[
        str, typer.Option(metavar=METAVAR, help="Wait at most this long for a message; 0 does not wait.")
    ] = "0"
    follow: Follow = False
    session: Annotated[
        str | None, typer.Option(metavar="ID|next", help="The messages of one session; next: of the next free session.")
    ] = None
    keep: Annotated[bool, typer.Option("--keep", "--peek-lock", help="Show the messages and release them.")] = False
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove messages before showing them: at most once, not at least once.")
    ] = False
    dead_letters: DeadLetters = False
    raw: Raw = False
    url: Url = DEFAULT_STORE

    def bounds(self) -> tuple[int, float | None]:
        """How many messages at most, and how long to wait for each; None: without limit."""
        default = ALL if self.follow else "1"
        limit = limit_of(default if self.limit is None else self.limit) or NO_LIMIT
        timeout_s = seconds_of("--timeout", self.timeout, zero=True)
        return limit, None if self.follow else timeout_s


@with_options(ReceiveOptions)
def receive(options: ReceiveOptions) -> ExitCode:
    """Receive messages, and complete each one after it was shown.

    Exit code 3 if there were no messages. Ctrl-C releases the messages that were not shown.
    """
    if options.keep and options.delete:
        raise UsageError(
            "--keep and --delete exclude each other: --keep releases messages, --delete removes them", "use one of them"
        )
    if options.keep and options.follow:
        raise UsageError(
            "--keep with --follow would lock every message until the end",
            "leave one of them out; `unibus peek` shows messages without locking them",
        )
    bounds = options.bounds()
    with managed(options.url) as bus:
        shown = until_signal(_receive(options, bus, bounds))
    if not shown:
        aside(f"no messages to receive from {entity_name(options.queue, options.dead_letters)}")
    return ExitCode.OK if shown else ExitCode.NOTHING_MATCHED


async def _receive(options: ReceiveOptions, bus: Management, bounds: tuple[int, float | None]) -> int:
    try:
        async with bus.receiver() as receiver:
            reception = Reception(receiver, options, *bounds)
            await reception.run()
            return reception.shown
    except EntityNotFound:
        raise not_found(options.queue, [each.name for each in bus.entities()]) from None
    except SessionRequired as error:
        raise SessionRequired(error.what, "add --session ID, or --session next for the next free session") from None
    except SessionNotAllowed as error:
        raise SessionNotAllowed(error.what, "remove --session") from None


class Reception:
    """One run of the command. `shown` counts the messages that were written."""

    def __init__(self, receiver: Receiver, options: ReceiveOptions, limit: int, wait_s: float | None) -> None:
        from unibus.cli.terminal.message_view import MessageView

        self.shown = 0
        self._receiver = receiver
        self._options = options
        self._entity = entity_name(options.queue, options.dead_letters)
        self._lock = not options.delete
        self._view = MessageView(options.raw)
        self._limit = limit
        self._wait_s = wait_s

    async def run(self) -> None:
        if self._options.session is None:
            await self._show_all(self._from_queue, self._wait_s)
        elif self._options.session != NEXT:
            async with self._session(self._options.session) as session:
                await self._show_all(self._from(session), self._wait_s)
        else:
            await self._next_sessions()

    async def _next_sessions(self) -> None:
        """One session; with --follow one session after the other, each until it is empty."""
        follow = self._options.follow
        while self.shown < self._limit:
            async with self._session(None) as session:
                await self._show_all(self._from(session), 0 if follow else self._wait_s)
            if not follow:
                return

    def _from_queue(self, count: int, wait_s: float | None) -> Awaitable[Sequence[ShownMessage]]:
        return self._receiver.receive_batch(self._entity, count, wait_s, self._lock)

    def _from(self, session: ReceiverSession) -> Take:
        return lambda count, wait_s: session.receive_batch(count, wait_s, self._lock)

    @contextlib.asynccontextmanager
    async def _session(self, session_id: str | None) -> AsyncIterator[ReceiverSession]:
        async with self._receiver.session(self._entity, session_id, self._wait_s) as session:
            with renewed(session, session.lock_s / 3):
                yield session

    # Showing and settling

    async def _show_all(self, take: Take, wait_s: float | None) -> None:
        async with contextlib.AsyncExitStack() as until_end:
            while self.shown < self._limit:
                messages = await take(min(BATCH, self._limit - self.shown), wait_s)
                if not messages:
                    return
                if self._options.keep:
                    # The locks are renewed as long as a slow reader needs, and released at the end.
                    await until_end.enter_async_context(self._receiver.hold(messages))
                    self._show(messages)
                else:
                    await self._show_and_complete(messages)

    async def _show_and_complete(self, messages: Sequence[ShownMessage]) -> None:
        async with self._receiver.hold(messages) if self._lock else contextlib.nullcontext():
            self._show(messages)
            if self._lock:
                await self._receiver.complete(messages)

    def _show(self, messages: Sequence[ShownMessage]) -> None:
        for message in messages:
            self._view.show(message.entity, message.message, message.enqueued_at)
        self._view.flush()
        self.shown += len(messages)


@contextlib.contextmanager
def renewed(session: ReceiverSession, every_s: float) -> Iterator[None]:
    """Renews the lock on a session, in a thread: a reader that does not read the pipe blocks the event loop."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(every_s):
            try:
                session.renew()
            except BusError:
                return  # The next receive or settlement raises LockLost.

    thread = threading.Thread(target=renew, name="unibus-session-lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
