"""The interface of publish paths other than the direct one through memory.

bus in memory       no PublishPath: `publish` checks only that
bus with a store    DurableChannels
traced bus          a wrapper around either of them (otel/)
"""

from collections.abc import Callable
from typing import Protocol

from unibus.bus.persistent.publish_queue import BlockedResult
from unibus.bus.pubsub.channel import Channel
from unibus.bus.pubsub.subscription import Subscription
from unibus.bus.settings import ChannelConfig, SubscribeOptions
from unibus.core.envelope.message import Message
from unibus.core.flow.retry import RetryPolicy
from unibus.core.topics.pattern import Pattern
from unibus.errors import StoreUnavailable
from unibus.stores.seam.pending import Pending


class PublishPath(Protocol):
    """DurableChannels documents the contract of each method."""

    def takes(self, channel: str) -> bool: ...

    def publish(self, target: Channel, message: Message) -> Pending[Message] | BlockedResult[Message]: ...

    def publish_now(self, target: Channel, message: Message, may_block: bool) -> Message: ...

    def publish_many(
        self, target: Channel, messages: list[Message]
    ) -> Pending[list[Message]] | BlockedResult[list[Message]]: ...

    def create(self, name: str, config: ChannelConfig, update: bool) -> bool: ...

    def is_listened_to(self, channel: str) -> bool: ...

    def wants(self, target: str | Pattern, options: SubscribeOptions) -> bool: ...

    def subscribe(
        self,
        target: str | Pattern,
        handler: Callable[..., object],
        retry: RetryPolicy,
        concurrency: int,
        options: SubscribeOptions,
        module: str | None = None,
    ) -> Subscription: ...

    def unsubscribe(self, wanted: object) -> bool: ...


def cannot_persist(name: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"channel {name!r} cannot be persistent: the bus has no store",
        "open the bus with one: MessageBus('sqlite:///bus.db'), or persistence_path=",
    )
