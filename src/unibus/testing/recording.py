"""Buses that record what was published through them, for assertions: `bus.sent("orders")`.

Every publish operation creates its envelopes in `_message` or `_messages`, and there they are recorded: before they are
published, so that the list has the order of the calls even if a handler publishes inside of `publish`. A message that
was accepted has a sequence. Everything else is the real bus: nothing is simulated.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from unibus.bus.api.message_bus import MessageBus
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.pubsub.backpressure import on_a_loop
from unibus.clock import Clock
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import HeaderValue, MessageProperties
from unibus.limits import WORKER_COUNT_DEFAULT
from unibus.testing.clock.virtual_clock import VirtualClock, VirtualTimers

DRAIN_TIMEOUT_S: Final = 5.0
"""Of real time: a test fails instead of hanging."""

END_TIMEOUT_S: Final = 0.05
"""The test is over: the backlog is not delivered, and running handlers are not awaited."""


class SentMessages:
    """The messages of one bus in the order of the publish calls."""

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}  # By identity: a rejected message may be published again.

    def noted(self, message: Message) -> Message:
        self._messages.pop(id(message), None)
        self._messages[id(message)] = message
        return message

    def accepted(self, channel: str | None) -> list[Message]:
        # A rejected message, and a duplicate that the bus dropped, have no sequence.
        noted = [message for message in list(self._messages.values()) if message.sequence]
        return [message for message in noted if channel is None or message.channel == channel]


class RecordingBus(MessageBus):
    """A recording MessageBus. It belongs to the first event loop that uses it."""

    def __init__(
        self,
        store: object = None,
        *,
        worker_count: int = WORKER_COUNT_DEFAULT,
        strict: bool = False,
        idempotency_ttl: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(store, worker_count=worker_count, strict=strict, idempotency_ttl=idempotency_ttl, clock=clock)
        self._sent = SentMessages()

    def sent(self, channel: str | None = None) -> list[Message]:
        """What was published through this bus and accepted, in order; on one channel, or on all."""
        return self._sent.accepted(channel)

    def publish(
        self,
        channel: object,
        payload: object = None,
        priority: object = None,
        trace_id: object = None,
        headers: Mapping[str, HeaderValue] | None = None,
        correlation_id: object = None,
        ttl: object = None,
        dedup_key: object = None,
        fields: Mapping[str, object] | None = None,
        delay: object = None,
    ) -> Awaitable[Message]:
        if delay is not None:
            raise self._refused_delay()
        return super().publish(
            self._message(
                channel, payload, priority, self._properties(trace_id, headers, correlation_id, ttl, dedup_key, fields)
            )
        )

    def _message(
        self, channel: object, payload: object, priority: object, properties: MessageProperties | None
    ) -> Message:
        self._adopt_loop()
        return self._sent.noted(super()._message(channel, payload, priority, properties))

    def _messages(
        self, channel: str, payloads: list[object], priority: object, properties: MessageProperties | None
    ) -> list[Message]:
        self._adopt_loop()
        return [self._sent.noted(message) for message in super()._messages(channel, payloads, priority, properties)]

    def subscribe(self, *args: Any, **options: Any) -> Any:
        self._adopt_loop()
        return super().subscribe(*args, **options)

    async def drain(self, timeout: float | None = DRAIN_TIMEOUT_S) -> bool:
        """Wait until every message was handled, retries included: a virtual clock is advanced from retry to retry."""
        self._adopt_loop()
        clock, timers = self._runtime.clock, self._runtime.timers
        if isinstance(clock, VirtualClock) and isinstance(timers, VirtualTimers):
            try:
                await clock.run_timers_async(timers, timeout=timeout)
            except TimeoutError:
                return False
        return await super().drain(timeout)

    def end(self) -> None:
        """Close at once, from outside of the loop: for the end of a fixture."""
        runtime = self._runtime
        home = runtime.executors.home
        if home is not None and not (home.is_closed() or home.is_running() or on_a_loop()):
            # Between test and teardown the loop does not run, and its tasks can end only on it.
            home.run_until_complete(self.close(END_TIMEOUT_S))
        else:
            runtime.shutdown.closing.close(END_TIMEOUT_S)

    def _adopt_loop(self) -> None:
        if on_a_loop() and (self._runtime.executors.home is None or self._runtime.executors.home.is_closed()):
            self._runtime.executors.home = asyncio.get_running_loop()


class RecordingSyncBus(SyncMessageBus):
    """A recording bus for tests without an event loop."""

    def __init__(
        self,
        store: object = None,
        *,
        worker_count: int = WORKER_COUNT_DEFAULT,
        strict: bool = False,
        idempotency_ttl: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(store, worker_count=worker_count, strict=strict, idempotency_ttl=idempotency_ttl, clock=clock)
        self._sent = SentMessages()

    def sent(self, channel: str | None = None) -> list[Message]:
        """What was published through this bus and accepted, in order; on one channel, or on all."""
        return self._sent.accepted(channel)

    def publish(
        self,
        channel: object,
        payload: object = None,
        priority: object = None,
        trace_id: object = None,
        headers: Mapping[str, HeaderValue] | None = None,
        correlation_id: object = None,
        ttl: object = None,
        dedup_key: object = None,
        fields: Mapping[str, object] | None = None,
        delay: object = None,
    ) -> Message:
        if delay is not None:
            raise self._refused_delay()
        return super().publish(
            self._message(
                channel, payload, priority, self._properties(trace_id, headers, correlation_id, ttl, dedup_key, fields)
            )
        )

    def _message(
        self, channel: object, payload: object, priority: object, properties: MessageProperties | None
    ) -> Message:
        return self._sent.noted(super()._message(channel, payload, priority, properties))

    def _messages(
        self, channel: str, payloads: list[object], priority: object, properties: MessageProperties | None
    ) -> list[Message]:
        return [self._sent.noted(message) for message in super()._messages(channel, payloads, priority, properties)]

    def drain(self, timeout: float | None = DRAIN_TIMEOUT_S) -> bool:
        """Wait until every message was handled, retries included: a virtual clock is advanced from retry to retry."""
        clock, timers = self._runtime.clock, self._runtime.timers
        if isinstance(clock, VirtualClock) and isinstance(timers, VirtualTimers):
            try:
                clock.run_timers(timers, timeout=timeout)
            except TimeoutError:
                return False
        return super().drain(timeout)

    def end(self) -> None:
        """Close at once: for the end of a fixture."""
        self.close(END_TIMEOUT_S)
