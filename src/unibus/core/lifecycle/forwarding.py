# mypyc: compiled
"""Forwarding: whether the target of a forward accepts a message, by the same checks as for a send to it.

    disabled, full, or the message is too large     rejected: the caller dead-letters the message
    its dedup window knows the message              a duplicate
    else                                            accepted

Nothing is changed here: the caller records what follows, and recovery replays only that. A dead-letter queue accepts
everything, and a message is not a duplicate of itself if forwards form a cycle.
"""

from typing import final

from mypy_extensions import i64

from unibus.core.flow.deadletter import ENTITY_DISABLED, MESSAGE_SIZE_EXCEEDED, QUOTA_EXCEEDED
from unibus.core.lifecycle.admission import check_message, check_quota, is_stored_in
from unibus.core.lifecycle.routed_message import RoutedMessage
from unibus.core.lifecycle.state.entity import DEAD_LETTERS, TOPIC, Entity
from unibus.core.lifecycle.state.routing import Arrival
from unibus.core.lifecycle.state.state import Load, StoreState
from unibus.errors import EntityDisabled, MessageTooLarge, QuotaExceeded


@final
class Admission:
    """The decision of a target. `reason` is empty unless it rejects the message; `key` is its dedup key there."""

    def __init__(self) -> None:
        self.reason = ""
        self.description = ""
        self.is_duplicate = False
        self.key: str | None = None
        self.arrivals: list[Arrival] | None = None  # For a topic with rules: computed once, also for the fan-out.


def ask(state: StoreState, target: Entity, routed: RoutedMessage, now_ns: i64) -> Admission:
    """`routed` is the message as it arrives at the target."""
    admission = Admission()
    if target.kind == DEAD_LETTERS:
        return admission
    try:
        # The same checks as for a send. A rejection is a value here, not an exception for the sender: its send was
        # accepted.
        check_message(target, routed.who.size)
        key = _dedup_key(state, target, routed)
        if key is not None and routed.was_forwarded_by(target) and target.is_known(key, now_ns):
            key = None  # The key is its own, from when it passed this entity: it keeps that time.
        admission.is_duplicate = key is not None and target.is_known(key, now_ns)
        admission.key = key
        if not admission.is_duplicate:
            admission.arrivals = _check_room(state, target, routed)
    except EntityDisabled as error:
        _refuse(admission, ENTITY_DISABLED, error.what)
    except MessageTooLarge as error:
        _refuse(admission, MESSAGE_SIZE_EXCEEDED, error.what)
    except QuotaExceeded as error:
        _refuse(admission, QUOTA_EXCEEDED, error.what)
    return admission


def _refuse(admission: Admission, reason: str, description: str) -> None:
    admission.reason = reason
    admission.description = description


def _dedup_key(state: StoreState, target: Entity, routed: RoutedMessage) -> str | None:
    """As for a send: the dedup key, or the id if the target has duplicate detection.

    A stored message has its dedup key only in its data. It is decoded if the target has duplicate detection; a target
    without it would need the key only for senders that use the same keys with the target and with the forward.
    """
    if routed.dedup_key is not None or not target.settings.dedup_ns:
        return routed.dedup_key
    # A new message has its key in `routed.dedup_key` only. A rule action may have made a message from a stored one.
    if routed.source is not None or routed.message is not None:
        properties = routed.content(state).properties
        if properties is not None and properties.dedup_key is not None:
            return properties.dedup_key
    return routed.who.message_id


def _check_room(state: StoreState, target: Entity, routed: RoutedMessage) -> list[Arrival] | None:
    """Raise if an entity that would store it is full, including what the batch was granted already."""
    arrivals: list[Arrival] | None = None
    stores: list[Entity] = []
    if is_stored_in(target):
        stores.append(target)
    elif target.kind == TOPIC:
        router = state.router(target)
        if router.takes_all:
            stores = [each for each in target.subscriptions if is_stored_in(each)]
        else:
            arrivals = router.arrivals(routed.content(state))
            stores = [each.entity for each in arrivals if not each.error and is_stored_in(each.entity)]
    adds: dict[str, Load] = {}
    for entity in stores:
        check_quota(entity, routed.who.size, adds, state.batch)
    batch = state.batch
    if batch is not None:
        for name, add in adds.items():
            load = batch.get(name)
            if load is not None and load.count:
                # The forward uses space of the target now: the next forward of this batch must see it.
                load.count += add.count
                load.size += add.size
    return arrivals
