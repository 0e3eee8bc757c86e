# mypyc: compiled
"""Admission: whether a message may be sent. What speaks against it is found here, before the first change."""

from typing import Final, final

from mypy_extensions import i64

from unibus.core.codec import decode
from unibus.core.deadletter import is_sub_queue
from unibus.core.life.book import Book
from unibus.core.life.commands import Send
from unibus.core.life.entity import DEAD_LETTERS, KIND_NAMES, SUBSCRIPTION, TOPIC, Entity, is_reserved
from unibus.errors import (
    DuplicateMessage,
    EntityDisabled,
    EntityNotFound,
    MessageTooLarge,
    QuotaExceeded,
    SessionRequired,
    UsageError,
)

ENABLE: Final = "set its status to 'active'"


def target_of(book: Book, name: str) -> Entity:
    """The entity of that name. The dead-letter queue of one that exists exists too."""
    found = book.find(name)
    if found is None:
        raise EntityNotFound(f"there is no queue, topic or subscription {name!r}", "create it first")
    return found


@final
class Load:
    """What a batch adds to one entity."""

    def __init__(self) -> None:
        self.size: i64 = 0
        self.count: i64 = 0
        self.keys: set[str] = set()


def check_send(book: Book, command: Send, now_ns: i64, before: dict[str, Load] | None) -> None:
    """Raise what speaks against it. `before` holds what the batch has sent so far, by entity; None: it is alone."""
    if command.former is not None:
        _check_former(book, command, before)
        return
    entity = book.find(command.entity)
    if entity is None:
        if is_reserved(command.entity):
            raise EntityNotFound(
                f"there is no {command.entity!r}",
                "a name with $ or Subscriptions belongs to another entity",
            )
        if not command.makes:
            raise EntityNotFound(f"there is no queue or topic {command.entity!r}", "create it first, or not strict")
        _check_made(book, command, before)
        if command.dedup_key is not None and before is not None:
            _check_key(command.entity, command.dedup_key, command.raises, False, before)
        return
    if entity.kind == DEAD_LETTERS or entity.kind == SUBSCRIPTION:
        raise UsageError(f"messages cannot be sent to {entity.name!r} directly", "send to its queue or topic")
    settings = entity.settings
    if not settings.sends:
        raise EntityDisabled(f"messages cannot be sent to {entity.name!r}: it is {settings.status}", ENABLE)
    if settings.message_size_max and command.size > settings.message_size_max:
        raise MessageTooLarge(
            f"a message of {command.size} bytes, and {entity.name!r} takes {settings.message_size_max}",
            "send a reference, or raise max_message_size_kb",
        )
    if settings.requires_session and command.who.session_id is None and not settings.forward_to:
        raise SessionRequired(f"{entity.name!r} requires a session_id", "give the message a session_id")
    key = dedup_key(entity, command)
    if key is not None:
        _check_key(entity.name, key, command.raises, entity.is_known(key, now_ns), before)
    if entity.kind == TOPIC and entity.subscriptions and command.visible_ns <= now_ns:
        _check_arrivals(book, entity, command, before)
    else:
        check_room(entity, command.size, before)


def check_number(book: Book, kind: int, here: int) -> None:
    """Whether one more may be made where there are so many: in the store, or of a topic's subscriptions."""
    most = book.most.get(kind, here + 1)
    if here >= most:
        what = f"{KIND_NAMES[kind]}s"
        where = "the topic" if kind == SUBSCRIPTION else "the store"
        raise QuotaExceeded(
            f"{where} has {here} {what} and may have {most}",
            f"delete some, or open the store with a higher max_{what}",
        )


def _check_made(book: Book, command: Send, before: dict[str, Load] | None) -> None:
    """A message to a name that is not there makes it, and a batch may make several."""
    kind = command.makes
    made = 0
    if before is not None:
        if command.entity in before:
            return
        _load(before, command.entity)
        load = _load(before, f"${kind}")  # No name that anybody can give.
        made = load.count
        load.count += 1
    check_number(book, kind, book.kinds.get(kind, 0) + made)


def _check_arrivals(book: Book, topic: Entity, command: Send, before: dict[str, Load] | None) -> None:
    """Only who gets the message needs room for it. It is found out once, here: what follows is in the same step."""
    router = book.router(topic)
    if router.takes_all:
        check_room(topic, command.size, before)
        return
    message = command.message
    if message is None:
        message = decode(command.data)
    arrivals = router.arrivals(message)
    if before is None and len(arrivals) > 1:
        before = {}  # A subscription may get several copies.
    for arrival in arrivals:
        if not arrival.error and is_stored_in(arrival.entity):
            _check_quota(arrival.entity, command.size, before)
    command.arrivals = arrivals


def check_room(entity: Entity, size: i64, before: dict[str, Load] | None) -> None:
    """Whether everybody who would store it has room."""
    if is_stored_in(entity):
        _check_quota(entity, size, before)
    else:
        for target in entity.subscriptions:
            if is_stored_in(target):
                _check_quota(target, size, before)


def _check_key(entity: str, key: str, raises: bool, known: bool, before: dict[str, Load] | None) -> None:
    """A key that the entity knows, or that the batch has used before, is an error where the sender wants it to be."""
    if before is not None:
        load = _load(before, entity)
        known = known or key in load.keys
        load.keys.add(key)
    if known and raises:
        raise DuplicateMessage(f"{key!r} was sent to {entity!r} within its window", "nothing was stored")


def _load(before: dict[str, Load], entity: str) -> Load:
    load = before.get(entity)
    if load is None:
        load = Load()
        before[entity] = load
    return load


def _check_quota(entity: Entity, size: i64, before: dict[str, Load] | None) -> None:
    settings = entity.settings
    count: i64 = 0
    if before is not None:
        load = _load(before, entity.name)
        count = load.count
        load.count += 1
        load.size += size
        size = load.size
    if entity.size_bytes + size > settings.size_max:
        raise QuotaExceeded(
            f"{entity.name!r} holds {entity.size_bytes} bytes and may hold {settings.size_max}",
            "receive some, or raise max_size_mb",
        )
    if settings.count_max and len(entity.entries) + count >= settings.count_max:
        raise QuotaExceeded(
            f"{entity.name!r} holds {len(entity.entries)} messages and may hold {settings.count_max}",
            "receive some, or raise max_count",
        )


def is_stored_in(entity: Entity) -> bool:
    """Whether what arrives at the entity stays there: not in a topic that others listen to, not where it forwards."""
    if entity.kind == TOPIC:
        return entity.settings.keeps and not entity.subscriptions
    return not entity.settings.forward_to


def dedup_key(entity: Entity, command: Send) -> str | None:
    """A dedup key is always heeded, an id only where the entity asks for it."""
    if command.dedup_key is not None:
        return command.dedup_key
    return command.who.message_id if entity.settings.dedup_ns else None


def _check_former(book: Book, command: Send, before: dict[str, Load] | None) -> None:
    """A dead letter is never refused, as everywhere; else there has to be room, and a session where one is needed."""
    entity = former_place(book, command.entity)
    if is_sub_queue(command.entity):
        if entity.kind == TOPIC:
            raise UsageError(f"the topic {entity.name!r} has no dead-letter queue", "its subscriptions have one")
        return
    if entity.settings.requires_session and command.who.session_id is None:
        raise SessionRequired(f"{entity.name!r} requires a session_id", "the message has no session_id")
    _check_quota(entity, command.size, before)


def former_place(book: Book, name: str) -> Entity:
    """The entity; that of a dead-letter queue, which may not have been made yet."""
    return target_of(book, name.rpartition("/")[0] if is_sub_queue(name) else name)
