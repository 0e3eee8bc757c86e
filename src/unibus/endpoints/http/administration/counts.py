"""The counts that only a topic has: its subscriptions, and the filters of their rules."""

from collections.abc import Mapping
from typing import Final

from unibus.bus.api.broker import EntityInfo
from unibus.endpoints.http.administration.properties import TOPIC
from unibus.endpoints.http.service import Service

_NONE: Final[Mapping[str, int]] = {}


async def topic_counts(service: Service, info: EntityInfo) -> Mapping[str, int]:
    if info.kind != TOPIC:
        return _NONE
    counted = await service.broker.rule_counts(info.name)
    return {
        "SubscriptionCount": counted.subscriptions,
        "SqlFilterCount": counted.rules - counted.correlations,
        "CorrelationFilterCount": counted.correlations,
    }
