"""Request and reply: an inbox channel of the bus's own, and who waits for which answer."""

from collections.abc import Callable
from typing import Any, TypeAlias

from unibus.bus.exchange import REPLY_PREFIX, Exchange
from unibus.bus.registry import Registry
from unibus.bus.settings import ChannelConfig, SubscribeOptions
from unibus.bus.subscriptions import Subscriptions, retry_policy
from unibus.core.cold import Cold
from unibus.core.message import Message
from unibus.errors import RequestFailed

Answer = Callable[[Message], None]
Reply: TypeAlias = Any  # What a handler returned: only the caller knows its type.


class Requests:
    """Replies are matched by correlation id; a reply that nobody waits for any more is dropped."""

    def __init__(self, exchange: Exchange, registry: Registry, subscriptions: Subscriptions) -> None:
        self._exchange = exchange
        self._registry = registry
        self._subscriptions = subscriptions
        self._waiting: dict[str, Answer] = {}
        self._inbox = f"{REPLY_PREFIX}{exchange.stamper.prefix}inbox"
        self._open = False

    def expect(self, message: Message, answer: Answer) -> str:
        """Prepare a message to be a request; `answer` is called with the reply, in the replier's thread."""
        if not self._open:
            self._registry.create(self._inbox, ChannelConfig(max_queue_size=0))
            options = SubscribeOptions(dispatch="inline", group="$reply")
            self._subscriptions.add(self._inbox, self._arrived, retry_policy(0, 0.0, options), 1, options)
            self._open = True
        cold = Cold() if message.cold is None else message.cold
        cold.reply_to = self._inbox
        cold.correlation_id = cold.correlation_id or message.id
        message.cold = cold
        self._waiting[cold.correlation_id] = answer
        return cold.correlation_id

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def _arrived(self, reply: Message) -> None:
        answer = self._waiting.pop(reply.correlation_id or "", None)
        if answer is not None:
            answer(reply)


def reply_body(reply: Message) -> Reply:
    """What the handler returned, or its failure as an error."""
    reason = reply.headers.get("error_reason")
    if reason is not None:
        raise RequestFailed(f"the request was not handled ({reason!s}): {reply.headers.get('error_text')!s}")
    return reply.body
