# mypyc: compiled
"""The whole state of one store in memory. It changes in one way only: by applying changes (apply.py).

entities    number -> Entity, with its messages     names   name -> Entity
due         the deadlines of all of them            fresh   changes that the journal does not have yet
unsaved…    what the next snapshot has to write     woken   entities whose waiting receivers must be woken
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from unibus.core.filters.expressions import Draw
from unibus.core.lifecycle.state.applied_batches import AppliedBatches
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
    """What a batch adds to one entity, and what the entity held when the batch was checked."""

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
        self.kinds: dict[int, int] = {}  # The number of entities of each kind,
        self.most: dict[int, int] = {  # and its limit; subscriptions are counted for each topic.
            QUEUE: QUEUES_MAX_DEFAULT,
            TOPIC: TOPICS_MAX_DEFAULT,
            SUBSCRIPTION: SUBSCRIPTIONS_PER_TOPIC_MAX,
        }
        self.names: dict[str, Entity] = {}  # By the exact name, and by the name without case.
        self.namespace: Entity | None = None  # Has settings only. It is not in `names`, so no command can address it.
        self.tokens: dict[bytes, StoredMessage] | None = None  # The index of lock tokens, once it is needed.
        self._listings: dict[tuple[int, int], list[Entity]] = {}  # Sorted by name; built when a page is read.
        self.known: dict[int, str] = {}  # The names of all entities by number, including deleted ones: for history.
        self.retired: dict[str, int] = {}  # Names of deleted entities, with the last sequence they assigned.
        self.positions: dict[str, int] = {}  # The named positions: the progress of writers into the store.
        self.batches = AppliedBatches()  # The ids of batches, with their results.
        self.routers: dict[int, Router] = {}  # By topic, built when needed.
        self.filter_watch: FilterWatch | None = None
        self.new_id: Draw | None = None
        self.fetch: Callable[[StoredMessage], bytes] | None = (
            None  # Reads data that is on disk only, in the few cases that need it.
        )
        self.auto_deleted: dict[int, Entity] = {}  # The entities with `auto_delete_on_idle`,
        self.idle_check_ns: i64 = NEVER  # when to check them again,
        self.idle_since_ns: i64 = 0  # and when counting their idle time began.
        self.due = Deadlines()
        self.seq: i64 = 0
        self.fresh: list[Change] = []
        # The size of all changes so far in memory, roughly, including replayed ones. Counted while they are applied,
        # because a journal that counted would have to read each change again.
        self.weight: i64 = 0
        self.replayed_ns: i64 = 0  # The time of the first change that was replayed.
        self.woken: list[Entity] = []
        # True while a command changes the state. An exception meanwhile leaves half of a command in memory, so the
        # store has to stop. An exception before that is a rejection, and has changed nothing.
        self.deciding = False
        # While a batch is executed: the space that its sends were granted by the check, for each entity. Forwards are
        # decided only when they happen, and must not use that space.
        self.batch: dict[str, Load] | None = None
        # Since the process started: a send that stored no copy compares it before and after.
        self.forwarded_duplicates: i64 = 0
        self.strict = True  # False while a journal is replayed over a snapshot that is partly newer.
        self.replaying = False
        self.to_shed: list[StoredMessage] = []  # Beyond the budget: their data is released once it is written.
        self.held_bytes: i64 = 0
        self.memory_budget: i64 = memory_budget
        self.numbered: i64 = 0
        # What the next snapshot has to write. Only with snapshots: without them nothing would ever clear these lists.
        self.saves = True
        self.unsaved: list[StoredMessage] = []
        self.gone: list[tuple[int, int]] = []
        self.dropped: list[int] = []
        self.unsaved_marks: list[tuple[int, int, str, int]] = []
        self.carrier: i64 = 0  # The seq of the last record with data, which the copies after it share; 0 for none.
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

    def clear_listings(self) -> None:
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
        """The data of a message, from memory or from disk."""
        data = entry.data
        if data is not None:
            return data
        assert self.fetch is not None, "only a store with a disk releases data"
        return self.fetch(entry)

    def entry(self, entity: int, sequence: int) -> StoredMessage | None:
        found = self.entities.get(entity)
        return None if found is None else found.entries.get(sequence)

    def take(self) -> list[Change]:
        """The changes since the last call, which the caller must write to the journal as one group."""
        # Swapped under the store's lock: later changes belong to the next group.
        fresh = self.fresh
        self.fresh = []
        self.end_group()
        return fresh

    def end_group(self) -> None:
        """End a group of the journal: no copy of a later group refers to data of this one."""
        self.carrier = 0
        self.carried = b""

    def by_token(self, token: bytes) -> StoredMessage | None:
        """The message that is locked with this token.

        Only protocol servers look up by token alone, so the first such call builds the index, which is then maintained:
        it has exactly the locked messages. A bus without a server does not pay for it.
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
        """Its settings have changed: it may have `auto_delete_on_idle` now, or not any more."""
        if entity.settings.idle_ns:
            self.auto_deleted[entity.number] = entity
            self.idle_check_ns = 0
        else:
            self.auto_deleted.pop(entity.number, None)

    def release(self) -> None:
        """The store was closed: release the messages, so that a remaining reference to the state keeps none of them."""
        for entity in self.entities.values():
            # Entities and messages refer to each other, and the cycle collector does not traverse them (decision 0006).
            entity.release()
        self.auto_deleted = {}
        self.tokens = None
        self._listings = {}
        self.due = Deadlines()
        self.unsaved = []
        self.to_shed = []
        self.fresh = []

    def shed(self, entries: list[StoredMessage]) -> None:
        """Release the data of these messages from memory. It was written, and is read from disk when needed."""
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
        self.clear_listings()
        if entity.kind == NAMESPACE:
            self.namespace = entity
            return
        for name in (entity.name, entity.name.casefold()):
            # A replay over a snapshot may declare a deleted entity beside its successor: the latest has the name.
            named = self.names.get(name)
            if named is None or named.number < entity.number:
                self.names[name] = entity
        self.retired.pop(entity.name.casefold(), None)
        owner = self.find(owner_name(entity.name, entity.kind))
        if entity.kind == SUBSCRIPTION and owner is not None:
            self.routers.pop(owner.number, None)
            entity.topic = owner
            # A new list, as after a deletion: a loop over the old one is not disturbed.
            owner.subscriptions = [*owner.subscriptions, entity]
        elif entity.kind == DEAD_LETTERS and owner is not None:
            entity.owner = owner
            if owner.dead is None or owner.dead.number < entity.number:
                owner.dead = entity


def _by_name(entity: Entity) -> str:
    return entity.name.casefold()


def _folded(name: object) -> str:
    if not isinstance(name, str):
        raise UsageError(f"the name of an entity must be text, not {type(name).__name__}")
    return name.casefold()


def owner_name(name: str, kind: int) -> str:
    """The name of the topic of a subscription, or of the entity of a dead-letter queue."""
    if kind == SUBSCRIPTION:
        head, _, _ = name.rpartition(f"/{SUBSCRIPTIONS}/")
        return head
    if kind == DEAD_LETTERS:
        head, _, _ = name.rpartition("/")
        return head
    return ""
