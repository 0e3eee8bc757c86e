"""Request and reply: matches the replies in the inbox channel of the bus with the open requests.

request ──publish, reply_to=$reply/…inbox──▶ handler ──returns──▶ $reply/…inbox ──▶ the OpenRequest with that id
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from unibus.bus.pubsub.exchange import REPLY_PREFIX, REQUEST_HEADER, Exchange
from unibus.bus.pubsub.registry import Registry
from unibus.bus.settings import ChannelConfig, SubscribeOptions
from unibus.bus.subscriptions.subscriptions import Subscriptions, retry_policy
from unibus.core.atomic import LOCK
from unibus.core.envelope.message import Message
from unibus.core.envelope.message_properties import MessageProperties
from unibus.errors import RequestFailed

Answer = Callable[[Message], None]
Reply: TypeAlias = Any  # What a handler returned: only the caller knows its type.


class OpenRequest:
    """A request that waits for its reply."""

    def __init__(self, message_id: str, correlation_id: str, answer: Answer) -> None:
        self.message_id = message_id
        self.correlation_id = correlation_id
        self.answer = answer


class Requests:
    """The open requests of one bus. A reply is matched by the id of its request, as several may share a correlation id.

    A reply that a handler publishes itself has only the correlation id: it answers the first open request with it. A
    reply without an open request (it came after the timeout) is ignored.
    """

    def __init__(self, exchange: Exchange, registry: Registry, subscriptions: Subscriptions) -> None:
        self._exchange = exchange
        self._registry = registry
        self._subscriptions = subscriptions
        self._waiting: dict[str, list[OpenRequest]] = {}  # By correlation id, in the order of the requests.
        self._inbox = f"{REPLY_PREFIX}{exchange.id_generator.prefix}inbox"
        self._open = False

    def expect(self, message: Message, answer: Answer) -> OpenRequest:
        """Make the message a request. `answer` is called with the reply, in the thread of the replying handler."""
        # Without a lock: two threads with the first two requests may both subscribe. Then the inbox has two members of
        # one group, and each reply still reaches one of them.
        if not self._open:
            # Unbounded and inline: a reply never waits for a place or for a worker, so a full pool cannot hold back the
            # replies that its own handlers wait for.
            self._registry.create(self._inbox, ChannelConfig(max_queue_size=0))
            options = SubscribeOptions(dispatch="inline", group="$reply")
            self._subscriptions.add(self._inbox, self._arrived, retry_policy(0, 0.0, options), 1, options)
            self._open = True
        properties = MessageProperties() if message.properties is None else message.properties
        properties.reply_to = self._inbox
        # A correlation id of the caller is kept: it may belong to a conversation of several requests.
        properties.correlation_id = properties.correlation_id or message.id
        message.properties = properties
        request = OpenRequest(message.id, properties.correlation_id, answer)
        # Before the caller publishes: an inline handler replies within that publish.
        with LOCK:
            self._waiting.setdefault(request.correlation_id, []).append(request)
        return request

    def forget(self, request: OpenRequest) -> None:
        """The requester stops waiting. Without effect for a request that was answered."""
        with LOCK:
            waiting = self._waiting.get(request.correlation_id, [])
            if request in waiting:
                waiting.remove(request)
                if not waiting:
                    del self._waiting[request.correlation_id]

    def _arrived(self, reply: Message) -> None:
        # Taken out and answered once: a second reply, or a reply at the same moment as the timeout, finds no open
        # request. `answer` is called without LOCK, because it wakes a thread or an event loop.
        with LOCK:
            request = self._asked(reply)
            if request is not None:
                self.forget(request)
        if request is not None:
            request.answer(reply)

    def _asked(self, reply: Message) -> OpenRequest | None:
        # The caller holds LOCK.
        answered = reply.headers.get(REQUEST_HEADER)
        for request in self._waiting.get(reply.correlation_id or "", []):
            if answered is None or answered == request.message_id:
                return request
        return None


def reply_body(reply: Message) -> Reply:
    """The value that the handler returned; raises RequestFailed if the handler failed."""
    reason = reply.headers.get("error_reason")
    if reason is not None:
        raise RequestFailed(f"the request was not handled ({reason!s}): {reply.headers.get('error_text')!s}")
    return reply.body
