# mypyc: compiled
"""Forwarding: what the target of a forward says to a message. It is asked as it would be for a send to it.

    disabled, full, or the message is too large     refused: the caller keeps the message in a dead-letter queue
    its duplicate detection knows the message       a duplicate
    else                                            accepted

Nothing is changed here: the caller writes down what follows from the answer, and a recovery reads only that. A
dead-letter queue accepts everything, and a message is no duplicate of itself where forwards go in a circle.
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
    """The answer of a target. `reason` is empty unless it refuses; `key` is what it will know the message by."""

    def __init__(self) -> None:
        self.reason = ""
        self.description = ""
        self.is_duplicate = False
        self.key: str | None = None
        self.arrivals: list[Arrival] | None = None  # Of a topic with rules: found once, for the fan-out too.


def ask(state: StoreState, target: Entity, routed: RoutedMessage, now_ns: i64) -> Admission:
    """`routed` is the message as it arrives at the target."""
    admission = Admission()
    if target.kind == DEAD_LETTERS:
        return admission
    try:
        check_message(target, routed.who.size)
        key = _dedup_key(state, target, routed)
        if key is not None and routed.was_forwarded_by(target) and target.is_known(key, now_ns):
            key = None  # It is known there by itself, and stays known from that instant on.
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
    """As for a send: the sender's own key, or the id where the target compares ids.

    A message that was stored before has its own key only in its data. That is read where the target compares ids; a
    target that does not would need it only for senders that use such keys both with the target and with the forward.
    """
    if routed.dedup_key is not None or not target.settings.dedup_ns:
        return routed.dedup_key
    # Of a message that is new, `routed.dedup_key` is all there is. An action makes another one of a stored message too.
    if routed.source is not None or routed.message is not None:
        properties = routed.content(state).properties
        if properties is not None and properties.dedup_key is not None:
            return properties.dedup_key
    return routed.who.message_id


def _check_room(state: StoreState, target: Entity, routed: RoutedMessage) -> list[Arrival] | None:
    """Whether every entity that would store it has room, beside what the batch has checked already."""
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
                load.count += add.count
                load.size += add.size
    return arrivals
