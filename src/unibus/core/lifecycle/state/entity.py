# mypyc: compiled
"""The messages, sessions and entities of a store in memory.

Queues, topics, subscriptions and dead-letter queues are one class, `Entity`: all but the topic are queues.

    Entity ── entries: sequence -> StoredMessage
       ├───── waiting: ReadyQueue         the active messages, in order of delivery
       └───── sessions: id -> Session     each with its own ReadyQueue
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from unibus.core.filters.expressions import Draw
from unibus.core.lifecycle.state.changes import HeaderOverrides, MessageRef, SavedEntry, SavedSession, Settings
from unibus.core.lifecycle.state.deadlines import DeadlineItem
from unibus.core.lifecycle.state.dedup_window import DedupWindow
from unibus.core.lifecycle.state.peek_order import PeekOrder
from unibus.core.lifecycle.state.ready_queue import ReadyItem, ReadyQueue
from unibus.core.lifecycle.state.rules import RuleSet, rule_set_of
from unibus.core.lifecycle.state.session_lists import SessionLists
from unibus.core.lifecycle.state.settings import EntitySettings
from unibus.core.lifecycle.state.states import ACTIVE, GONE, LOCKED, SCHEDULED

QUEUE: Final = 1
TOPIC: Final = 2
SUBSCRIPTION: Final = 3
DEAD_LETTERS: Final = 4
NAMESPACE: Final = 5
NAMESPACE_NAME: Final = "$namespace"
"""The only entity of its kind: it has the settings of the whole store, such as the namespace's authorization rules. It
is created with the first of them, and is in no listing."""

KIND_NAMES: Final[dict[int, str]] = {
    QUEUE: "queue",
    TOPIC: "topic",
    SUBSCRIPTION: "subscription",
    DEAD_LETTERS: "dead-letter queue",
    NAMESPACE: "namespace",
}

SUBSCRIPTIONS: Final = "Subscriptions"
FOREVER_NS: Final = 100 * 365 * 24 * 3600 * 1_000_000_000
"""How long the key of a processed message is kept if its entity has no ttl: longer than any redelivery."""


@final
@mypyc_attr(acyclic=True)
class StoredMessage(ReadyItem):
    """`due_ns` is when a scheduled message becomes active, or when a lock ends. All instants are wall time.

    `data` is the encoded envelope, None while it is only on disk. There it is in the record `home_sequence` of the
    journal, or, if `home_entity` is not 0, in the snapshot's row (home_entity, home_sequence).
    """

    def __init__(self, entity: "Entity", sequence: int, who: MessageRef, priority: int, data: bytes | None) -> None:
        super().__init__(sequence, priority)
        self.entity = entity
        self.who = who
        self.size: i64 = who.size
        self.data = data
        self.delivery_count: i64 = 0
        self.expires_ns: i64 = 0
        self.due_ns: i64 = 0
        self.enqueued_ns: i64 = 0
        self.first_delivered_ns: i64 = 0
        self.home_entity: i64 = 0
        self.home_sequence: i64 = 0
        self.hops: i64 = 0
        self.token: bytes | None = None
        self.session: Session | None = None
        self.consumer = ""
        self.overlay: HeaderOverrides | None = None
        self.was_deferred = False  # Deferred before it was locked: a return makes it deferred again.
        self.ends_with_process = False  # Its last lock is one of a handler in the process that has the store open.
        self.delayed = False  # Scheduled by an abandon with a delay: it keeps its sequence.
        self.saved = False  # The snapshot has a row for it.
        self.unsaved = False  # It changed since the snapshot.
        self.has_ids = True  # False: the message has no properties, so there is no id beside its own to read.

    def deadline_ns(self) -> i64:
        if self.state == ACTIVE:
            return self.expires_ns
        if self.state == SCHEDULED:
            return self.due_ns
        if self.state == LOCKED and self.session is None:
            return self.due_ns
        return 0

    def lock_ends_ns(self) -> i64:
        """In a session the lock of the session protects the message."""
        return self.due_ns if self.session is None else self.session.until_ns

    def as_saved(self) -> SavedEntry:
        return SavedEntry(
            who=self.who,
            priority=self.priority,
            state=self.state,
            delivery_count=self.delivery_count,
            expires_ns=self.expires_ns,
            due_ns=self.due_ns,
            enqueued_ns=self.enqueued_ns,
            first_delivered_ns=self.first_delivered_ns,
            token=self.token,
            was_deferred=self.was_deferred,
            delayed=self.delayed,
            hops=self.hops,
            overlay=self.overlay,
            consumer=self.consumer,
            ends_with_process=self.ends_with_process,
        )


@final
@mypyc_attr(acyclic=True)
class Session(DeadlineItem):
    """One session: its messages, ready in order of sequence, and its lock. It is unlocked while `token` is None."""

    def __init__(self, entity: "Entity", session_id: str) -> None:
        super().__init__()
        self.entity = entity
        self.id = session_id
        self.waiting = ReadyQueue(False)
        self.entries: dict[int, StoredMessage] = {}  # Its messages in any state, by sequence,
        self.active: i64 = 0  # and how many of them are active.
        self.locked: dict[bytes, StoredMessage] = {}
        self.state: bytes | None = None
        self.stated_ns: i64 = 0  # When the state was set; 0 without a state.
        self.token: bytes | None = None
        self.until_ns: i64 = 0
        self.consumer = ""
        self.order: PeekOrder | None = None  # Created by the first peek, and then maintained.

    def deadline_ns(self) -> i64:
        return 0 if self.token is None else self.until_ns

    def is_listed(self) -> bool:
        return len(self.entries) > 0 or self.state is not None

    def as_saved(self) -> SavedSession:
        return SavedSession(self.id, self.state, self.token, self.until_ns, self.consumer, self.stated_ns)


@final
class Entity:
    """`number` identifies it in the journal. The four counts add up to the number of `entries`."""

    def __init__(self, number: int, name: str, kind: int, settings: Settings) -> None:
        self.number: i64 = number
        self.name = name
        self.kind: i64 = kind
        self.settings = EntitySettings(settings)
        self.sequence: i64 = 0  # The last one assigned.
        self.entries: dict[int, StoredMessage] = {}
        self.waiting = ReadyQueue(self.settings.by_priority)
        self.sessions: dict[str, Session] = {}
        self.ready: dict[str, Session] = {}  # Unlocked sessions with active messages, in the order they became so.
        self.marks: DedupWindow | None = None
        self.processed: DedupWindow | None = None
        self.topic: Entity | None = None
        self.subscriptions: list[Entity] = []
        self.dead: Entity | None = None
        self.owner: Entity | None = None  # For a dead-letter queue: the entity that it belongs to.
        self.active: i64 = 0
        self.locked: i64 = 0
        self.scheduled: i64 = 0
        self.deferred: i64 = 0
        self.size_bytes: i64 = 0
        self.deleted = False
        self.status_changed = False  # Its status has changed: wake all waiting receivers, so that they see the error.
        self.unsaved = True
        self.created_ns: i64 = 0  # 0: unknown.
        self.updated_ns: i64 = 0
        self.accessed_ns: i64 = 0  # Since the store was opened.
        self._rules: RuleSet | None = None  # Compiled when needed; the next set reuses unchanged rules.
        self.wakers: list[Callable[[], None]] = []  # Of waiting receivers, first come first served.
        # What the dict `entries` cannot do: start at any key, and skip removed keys at its front. Created on first use.
        self.order: PeekOrder | None = None
        self.session_lists: SessionLists | None = None
        self.ordered = False  # Whether a new message has to be added to any of these.
        self._oldest: StoredMessage | None = None
        self._searched: i64 = -1  # Up to this sequence every message but the oldest is removed or scheduled.
        # Counters since the process started: never stored, and not incremented by a replay.
        self.sent: i64 = 0
        self.delivered: i64 = 0
        self.completed: i64 = 0
        self.abandoned: i64 = 0
        self.dead_lettered: i64 = 0
        self.locks_expired: i64 = 0

    def is_queue(self) -> bool:
        return self.kind != TOPIC

    def receives(self) -> bool:
        """Whether its status allows receiving. A dead-letter queue follows its entity."""
        return self.settings.receives and (self.owner is None or self.owner.settings.receives)

    def used(self, now_ns: i64) -> None:
        """Record a use: a send, a receive, a peek or a change of its settings. Its topic or owner is used with it."""
        self.accessed_ns = now_ns
        if self.topic is not None:
            self.topic.accessed_ns = now_ns
        if self.owner is not None:
            self.owner.used(now_ns)

    def idle_at_ns(self, since_ns: i64, now_ns: i64) -> i64:
        """When it will have been idle long enough to be deleted. A waiting receiver counts as a use, too.

        `since_ns` is when the counting began: earlier uses are unknown.
        """
        # Forwarding counts as a receiver.
        dead_in_use = self.dead is not None and self.dead._is_in_use()
        parts_in_use = dead_in_use or any([each._is_in_use() for each in self.subscriptions])
        if self.settings.forward_to or self._is_in_use() or parts_in_use:
            return now_ns + self.settings.idle_ns
        return max(self.accessed_ns, self.updated_ns, since_ns) + self.settings.idle_ns

    def _is_in_use(self) -> bool:
        if self.wakers or self.locked or self.scheduled:
            return True
        return any([session.token is not None for session in self.sessions.values()])

    def ready_queue_of(self, entry: StoredMessage) -> ReadyQueue:
        """The ready queue of the message: that of its session, or of the entity."""
        return self.waiting if entry.session is None else entry.session.waiting

    def session_of(self, entry: StoredMessage) -> Session | None:
        """The session of the message, created with its first message; None if the entity has no sessions."""
        if not self.settings.requires_session or self.kind == DEAD_LETTERS:
            return None
        session_id = entry.who.session_id
        return None if session_id is None else self.session(session_id)

    def session(self, session_id: str) -> Session:
        found = self.sessions.get(session_id)
        if found is None:
            found = Session(self, session_id)
            self.sessions[session_id] = found
        return found

    def page(self, from_sequence: i64, count: int) -> list[StoredMessage]:
        """Up to `count` messages in any state, in order of sequence, from that one on."""
        order = self._ordered()
        return [self.entries[sequence] for sequence in order.page(self.entries, from_sequence, count)]

    def session_page(self, session_id: str, from_sequence: i64, count: int) -> list[StoredMessage]:
        """The same for one session. The cost of the first call grows with the session, not with the entity."""
        session = self.sessions.get(session_id)
        if session is None:
            return []
        order = session.order
        if order is None:
            order = PeekOrder(sorted(session.entries))
            session.order = order
            self.ordered = True
        return [session.entries[sequence] for sequence in order.page(session.entries, from_sequence, count)]

    def listed_sessions(self) -> SessionLists:
        """The sorted session ids. Created by the first call, and then maintained."""
        lists = self.session_lists
        if lists is None:
            stated = {session.id: int(session.stated_ns) for session in self.sessions.values() if session.stated_ns}
            lists = SessionLists([each.id for each in self.sessions.values() if each.is_listed()], stated)
            self.session_lists = lists
        return lists

    def oldest_ns(self) -> i64:
        """When the oldest message was enqueued; 0 without any. A scheduled message is not enqueued yet.

        Searched once: a message before the found one is scheduled, and gets a higher sequence when it becomes active.
        """
        if not self.active and not self.locked and not self.deferred and not self.scheduled:
            return 0
        oldest = self._oldest
        if oldest is None or oldest.state == GONE:
            oldest = None
            order = self._ordered()
            at = order.index_after(self._searched)
            while at < len(order.sequences) and oldest is None:
                self._searched = order.sequences[at]
                entry = self.entries.get(self._searched)
                if entry is not None and entry.enqueued_ns:
                    oldest = entry
                at += 1
            self._oldest = oldest
        return 0 if oldest is None else oldest.enqueued_ns

    def _ordered(self) -> PeekOrder:
        order = self.order
        if order is None:
            order = PeekOrder(list(self.entries))
            self.order = order
            self.ordered = True
        return order

    def place(self, entry: StoredMessage) -> None:
        """Append a message with a new sequence, the highest so far, to every order that is maintained."""
        if entry.sequence <= self._searched:  # Only in a reader: see `PeekOrder.append`.
            self._searched = entry.sequence - 1
            self._oldest = None
        order = self.order
        if order is not None:
            order.append(entry.sequence, len(self.entries))
            if order.is_wasteful:
                order.compact(self.entries)
        session = entry.session
        if session is not None:
            order = session.order
            if order is not None:
                order.append(entry.sequence, len(session.entries))
                if order.is_wasteful:
                    order.compact(session.entries)

    def mark(self, key: str, now_ns: i64) -> None:
        sent_window(self).add(key, now_ns)

    def is_known(self, key: str, now_ns: i64) -> bool:
        return self.marks is not None and self.marks.has(key, now_ns)

    def mark_processed(self, key: str, now_ns: i64) -> None:
        processed_window(self).add(key, now_ns)

    def was_processed(self, key: str, now_ns: i64) -> bool:
        return self.processed is not None and self.processed.has(key, now_ns)

    def rule_set(self, new_id: Draw | None) -> RuleSet:
        """The rules of a subscription. `new_id` draws the value of newid() in a rule."""
        text = self.settings.rules or None
        mode = self.settings.filter_mode
        found = self._rules
        if found is None or found.text != text or found.mode != mode:
            found = rule_set_of(text, mode, new_id, found)
            self._rules = found
        return found

    def release(self) -> None:
        """Drop every reference back to this entity. The cycle collector does not traverse messages and sessions, so it
        could not free them."""
        self.entries = {}
        self.order = None
        self._oldest = None
        self.waiting = ReadyQueue(self.settings.by_priority)
        for session in self.sessions.values():
            session.waiting.clear()
            session.locked.clear()
            session.entries.clear()
        self.sessions = {}
        self.session_lists = None
        self.ready = {}

    def change_settings(self, settings: Settings) -> None:
        self.settings = EntitySettings(settings)
        if self.marks is not None:
            self.marks.window_ns = self.settings.mark_window_ns()
        if self.processed is not None:
            self.processed.window_ns = self.settings.ttl_ns or FOREVER_NS
        if self.waiting.by_priority != self.settings.by_priority:
            self._reorder()

    def _reorder(self) -> None:
        moved = ReadyQueue(self.settings.by_priority)
        while True:
            entry = self.waiting.pop()
            if entry is None:
                break
            moved.reinsert(entry)
        self.waiting = moved


def sent_window(entity: Entity) -> DedupWindow:
    if entity.marks is None:
        entity.marks = DedupWindow(entity.settings.mark_window_ns())
    return entity.marks


def processed_window(entity: Entity) -> DedupWindow:
    if entity.processed is None:
        entity.processed = DedupWindow(entity.settings.ttl_ns or FOREVER_NS)
    return entity.processed


def lock_ns_of(entity: Entity) -> i64:
    """The lock duration of its messages. A dead-letter queue has the lock duration of its entity."""
    owner = entity.owner
    if owner is None or "lock_duration" in entity.settings.given:
        return entity.settings.lock_ns
    return owner.settings.lock_ns


def is_reserved(name: str) -> bool:
    """Whether only a part of another entity may have this name: a subscription, a dead-letter queue."""
    parts = name.casefold().split("/")
    return any([part.startswith("$") or part == "subscriptions" for part in parts])


def subscription_path(topic: str, name: str) -> str:
    return f"{topic}/{SUBSCRIPTIONS}/{name}"
