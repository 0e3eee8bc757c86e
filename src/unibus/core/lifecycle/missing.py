"""Hints for an entity that does not exist, or that is the wrong one for a call. Most of these calls name a subscription
in a shorter form than `topic/Subscriptions/name`, or a topic where one of its subscriptions was meant.

A hint names subscriptions of the topic that the caller has named, and no other entity: a client may have rights on that
topic only. It looks a name up and never compares it with all names, because the lock of the store is held.
"""

import re
from typing import Final

from unibus.core.flow.deadletter import SUB_QUEUE
from unibus.core.lifecycle.state.entity import SUBSCRIPTION, TOPIC, Entity, is_reserved, subscription_path
from unibus.core.lifecycle.state.state import StoreState
from unibus.near_names import near_name

CREATE: Final = "create it first"
NAMED_MAX: Final = 5
"""Subscriptions that a hint lists."""
_COMPARED_MAX: Final = 200
_DEAD_LETTER_WORDS: Final = ("dlq", "deadletter", "deadletters", "deadletterqueue")
_WORD_PARTS: Final = re.compile(r"[$_. -]")


def meant_subscription(state: StoreState, name: str) -> Entity | None:
    """The subscription `T/Subscriptions/S` for the name `T/S`; None if there is none."""
    topic, _, last = name.rpartition("/")
    if not topic or is_reserved(name):
        return None
    found = state.find(subscription_path(topic, last))
    return found if found is not None and found.kind == SUBSCRIPTION else None


def hint_for_missing(state: StoreState, name: str, otherwise: str = CREATE) -> str:
    """What to write instead of a name that no entity has."""
    meant = meant_subscription(state, name)
    if meant is not None:
        return f"write {meant.name!r}: it is a subscription of a topic"
    whole, _, part = name.rpartition("/")
    if _WORD_PARTS.sub("", part.casefold()) in _DEAD_LETTER_WORDS and state.find(whole) is not None:
        return f"write {f'{whole}/{SUB_QUEUE}'!r}: it is the dead-letter queue"
    topic = state.find(topic_of(name))
    if topic is None or topic.kind != TOPIC:
        return otherwise
    return _with_nearest(topic, name.rpartition("/")[2])


def hint_for_topic(topic: Entity) -> str:
    """Which subscriptions to receive from instead of the topic."""
    names = subscription_names(topic)
    if not names:
        return f"it has no subscription: create_subscription({topic.name!r}, …) creates one"
    return f"receive from one of its subscriptions: {listed([subscription_path(topic.name, each) for each in names])}"


def hint_for_send(entity: str) -> str:
    """Where to send instead of to a subscription or dead-letter queue."""
    topic = topic_of(entity)
    if topic:
        return f"send to the topic {topic!r}: each of its subscriptions gets a copy that its rules match"
    return f"send to the queue {entity.rpartition('/')[0]!r}"


def topic_of(name: str) -> str:
    """The topic in `topic/Subscriptions/name` and in the names of its parts; "" for another name."""
    parts = name.split("/")
    folded = name.casefold().split("/")
    return "/".join(parts[: folded.index("subscriptions")]) if "subscriptions" in folded else ""


def subscription_names(topic: Entity) -> list[str]:
    return sorted([each.name.rpartition("/")[2] for each in topic.subscriptions])


def listed(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    text = ", ".join([repr(each) for each in names[:NAMED_MAX]])
    return text if more <= 0 else f"{text} and {more} more"


def _with_nearest(topic: Entity, given: str) -> str:
    names = subscription_names(topic)
    near = near_name(given, names[:_COMPARED_MAX])
    if near:
        return f"did you mean {subscription_path(topic.name, near)!r}?"
    if not names:
        return f"the topic {topic.name!r} has no subscription: create it first"
    return f"the subscriptions of {topic.name!r} are {listed(names)}"
