# mypyc: compiled
"""The whole state of one store in memory. It changes in one way only: by playing changes (playing.py)."""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from unibus.core.filters.expressions import Draw
from unibus.core.lifecycle.state.changes import Change
from unibus.core.lifecycle.state.deadlines import NEVER, Deadlines
from unibus.core.lifecycle.state.entity import (
    DEAD_LETTERS,
    NAMESPACE,
    NAMESPACE_NAME,
    QUEUE,
    SUBSCRIPTION,
    SUBSCRIPTIONS,
    TOPIC,
    Entity,
    StoredMessage,
)
from unibus.core.lifecycle.state.routing import FilterWatch, Router
from unibus.core.lifecycle.state.states import LOCKED
from unibus.errors import UsageError
from unibus.limits import QUEUES_MAX_DEFAULT, SUBSCRIPTIONS_PER_TOPIC_MAX, TOPICS_MAX_DEFAULT

MARK_SENT: Final = 1
MARK_PROCESSED: Final = 2


@final
class Load:
    """What a batch adds to one entity, beside what that held when the batch was checked."""

    def __init__(self) -> None:
        self.size: i64 = 0
        self.count: i64 = 0
        self.size_before: i64 = 0
        self.count_before: i64 = 0
        self.keys: set[str] = set()


@final
class StoreState:
    """`memory_budget` bounds the bytes of message data that are kept in memory; a journal keeps the rest."""

    def __init__(self, memory_budget: int) -> None:
        self.entities: dict[int, Entity] = {}
        self.kinds: dict[int, int] = {}  # How many there are of each kind,
        self.most: dict[int, int] = {  # and may be; subscriptions are counted by topic.
            QUEUE: QUEUES_MAX_DEFAULT,
            TOPIC: TOPICS_MAX_DEFAULT,
            SUBSCRIPTION: SUBSCRIPTIONS_PER_TOPIC_MAX,
        }
        self.names: dict[str, Entity] = {}  # By the exact name, and by the name without case.
        self.namespace: Entity | None = None  # Holds settings only. It has no place in `names`, so no verb reaches it.
        self.tokens: dict[bytes, StoredMessage] | None = None  # The index of lock tokens, once there is one.
        self._listings: dict[tuple[int, int], list[Entity]] = {}  # Sorted by name; made when a page is asked for.
        self.known: dict[int, str] = {}  # The names of all entities by number, deleted ones included: for history.
        self.retired: dict[str, int] = {}  # Names of deleted entities, with the last sequence they used.
        self.positions: dict[str, int] = {}  # How far others have come whose work goes into the store.
        self.routers: dict[int, Router] = {}  # By topic, made when they are needed.
        self.filter_watch: FilterWatch | None = None
        self.new_id: Draw | None = None
        self.fetch: Callable[[StoredMessage], bytes] | None = (
            None  # Data that is on disk only, in the few cases that need it.
        )
        self.auto_deleted: dict[int, Entity] = {}  # Those that are deleted when nobody uses them.
        self.idle_check_ns: i64 = NEVER  # When to look at them again,
        self.idle_since_ns: i64 = 0  # and when the counting began.
        self.due = Deadlines()
        self.seq: i64 = 0
        self.fresh: list[Change] = []
        # What all changes so far weigh, replayed ones included: about the memory that they take. Counted while they are
        # applied, because a journal that had to look at each change again would cost every message a Python call.
        self.weight: i64 = 0
        self.replayed_ns: i64 = 0  # When the first change took place that was replayed.
        self.woken: list[Entity] = []
        # True while a decision changes the state. An exception meanwhile leaves half of a decision in memory, and the
        # store has to stop; one before that is a refusal and changes nothing.
        self.deciding = False
        # While a batch is carried out: the room that its sends were granted when it was checked, by entity. Forwards
        # are decided only when they happen, and must not take that room.
        self.batch: dict[str, Load] | None = None
        # Decided since the process began: a send that made no copy compares it before and after.
        self.forwarded_duplicates: i64 = 0
        self.strict = True  # False while a journal is played over a snapshot that is partly newer.
        self.replaying = False
        self.to_shed: list[StoredMessage] = []  # Beyond the budget: their data goes as soon as it is written.
        self.held_bytes: i64 = 0
        self.memory_budget: i64 = memory_budget
        self.numbered: i64 = 0
        # What the next snapshot has to write, where there are snapshots: else nobody would ever take it away.
        self.saves = True
        self.unsaved: list[StoredMessage] = []
        self.gone: list[tuple[int, int]] = []
        self.dropped: list[int] = []
        self.unsaved_marks: list[tuple[int, int, str, int]] = []
        self.carrier: i64 = 0  # The record that holds the data of the copies that follow it.
        self.carried: bytes = b""

    def find(self, name: str) -> Entity | None:
        found = self.names.get(name)
        return self.names.get(_folded(name)) if found is None else found

    def find_any(self, name: str) -> Entity | None:
        """The same, and the namespace by its reserved name."""
        return self.namespace if name == NAMESPACE_NAME else self.find(name)

    def visible(self) -> list[Entity]:
        """Every entity but the namespace, in the order in which they were created."""
        return [entity for entity in self.entities.values() if entity is not self.namespace]

    def listing(self, kind: int, topic: Entity | None) -> list[Entity]:
        """The entities of one kind, or the subscriptions of one topic, by name. The caller must not change the list.

        Kept until an entity is created or deleted: a client that reads 10,000 names page by page sorts them once.
        """
        key = (kind, 0 if topic is None else topic.number)
        found = self._listings.get(key)
        if found is None:
            among = list(self.entities.values()) if topic is None else topic.subscriptions
            found = sorted([each for each in among if each.kind == kind], key=_by_name)
            self._listings[key] = found
        return found

    def forget_listings(self) -> None:
        if self._listings:
            self._listings = {}

    def router(self, topic: Entity) -> Router:
        found = self.routers.get(topic.number)
        if found is None:
            found = Router(topic.subscriptions, self.new_id, topic.name, self.filter_watch)
            self.routers[topic.number] = found
        return found

    def watch_filters(self, watch: FilterWatch | None) -> None:
        self.filter_watch = watch
        self.routers = {}

    def data_of(self, entry: StoredMessage) -> bytes:
        """Read from disk where it has to be."""
        data = entry.data
        if data is not None:
            return data
        assert self.fetch is not None, "only a store with a disk releases data"
        return self.fetch(entry)

    def entry(self, entity: int, sequence: int) -> StoredMessage | None:
        found = self.entities.get(entity)
        return None if found is None else found.entries.get(sequence)

    def take(self) -> list[Change]:
        """The changes since the last time, which the caller has to write."""
        fresh = self.fresh
        self.fresh = []
        self.end_group()
        return fresh

    def end_group(self) -> None:
        """What is written together ends here: no copy refers to data beyond that."""
        self.carrier = 0
        self.carried = b""

    def by_token(self, token: bytes) -> StoredMessage | None:
        """The message that is locked with this token.

        Only protocol servers ask by token alone, so the index is made by the first of these calls and kept from then
        on: exactly the messages that are locked. A bus without a server does not pay for it.
        """
        tokens = self.tokens
        if tokens is None:
            tokens = {}
            for entity in self.entities.values():
                for entry in entity.entries.values():
                    if entry.state == LOCKED and entry.token:
                        tokens[entry.token] = entry
            self.tokens = tokens
        return tokens.get(token)

    def update_auto_deleted(self, entity: Entity) -> None:
        """Its settings may say that it goes when nobody uses it."""
        if entity.settings.idle_ns:
            self.auto_deleted[entity.number] = entity
            self.idle_check_ns = 0
        else:
            self.auto_deleted.pop(entity.number, None)

    def release(self) -> None:
        """The end: nobody will ask any more, and what is held must not outlive its store."""
        for entity in self.entities.values():
            entity.release()
        self.auto_deleted = {}
        self.tokens = None
        self._listings = {}
        self.due = Deadlines()
        self.unsaved = []
        self.to_shed = []
        self.fresh = []

    def shed(self, entries: list[StoredMessage]) -> None:
        """Their data was written and stays on disk until it is asked for."""
        for entry in entries:
            if entry.data is not None:
                self.held_bytes -= entry.size
                entry.data = None

    def add_entity(self, entity: Entity, sequence: int) -> None:
        entity.sequence = sequence
        self.numbered = max(self.numbered, entity.number)
        if entity.number not in self.entities:
            self.kinds[entity.kind] = self.kinds.get(entity.kind, 0) + 1
        self.entities[entity.number] = entity
        self.update_auto_deleted(entity)
        self.known[entity.number] = entity.name
        self.forget_listings()
        if entity.kind == NAMESPACE:
            self.namespace = entity
            return
        for name in (entity.name, entity.name.casefold()):
            # A replay over a snapshot meets entities of the past beside their successors: the latest has the name.
            named = self.names.get(name)
            if named is None or named.number < entity.number:
                self.names[name] = entity
        self.retired.pop(entity.name.casefold(), None)
        owner = self.find(owner_name(entity.name, entity.kind))
        if entity.kind == SUBSCRIPTION and owner is not None:
            self.routers.pop(owner.number, None)
            entity.topic = owner
            owner.subscriptions = [*owner.subscriptions, entity]
        elif entity.kind == DEAD_LETTERS and owner is not None:
            entity.owner = owner
            if owner.dead is None or owner.dead.number < entity.number:
                owner.dead = entity


def _by_name(entity: Entity) -> str:
    return entity.name.casefold()


def _folded(name: object) -> str:
    if not isinstance(name, str):
        raise UsageError(f"an entity is named by text, not {type(name).__name__}")
    return name.casefold()


def owner_name(name: str, kind: int) -> str:
    """The name of the topic of a subscription, or of the queue of a dead-letter sub-queue."""
    if kind == SUBSCRIPTION:
        head, _, _ = name.rpartition(f"/{SUBSCRIPTIONS}/")
        return head
    if kind == DEAD_LETTERS:
        head, _, _ = name.rpartition("/")
        return head
    return ""
