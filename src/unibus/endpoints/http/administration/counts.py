"""What a topic counts beside its messages: subscriptions, and the filters of their rules."""

from collections.abc import Mapping
from typing import Final

from unibus.bus.broker import EntityInfo
from unibus.bus.entities import rules_of_info
from unibus.core.filters.filters import CorrelationFilter
from unibus.endpoints.http.administration.properties import SUBSCRIPTION, TOPIC
from unibus.endpoints.http.service import Service
from unibus.limits import SUBSCRIPTIONS_PER_TOPIC_MAX

_NONE: Final[Mapping[str, int]] = {}


async def topic_counts(service: Service, info: EntityInfo) -> Mapping[str, int]:
    if info.kind != TOPIC:
        return _NONE
    found = await service.broker.entities(SUBSCRIPTION, info.name, 0, SUBSCRIPTIONS_PER_TOPIC_MAX)
    rules = [rule for each in found for rule in rules_of_info(each)]
    correlations = len([rule for rule in rules if isinstance(rule.condition, CorrelationFilter)])
    return {
        "SubscriptionCount": len(found),
        "SqlFilterCount": len(rules) - correlations,
        "CorrelationFilterCount": correlations,
    }
