# mypyc: compiled
"""The whole state of one store in memory, and the only place that changes it: by playing changes.

A command never touches the state itself. It notes changes here, one after the other; each is played at once and waits
in `fresh` until the store takes it to the journal. At open the journal's changes are played in the same way.
"""

from typing import Final, final

from mypy_extensions import i64

from unibus.core.life.changes import (
    Activated,
    Cancelled,
    Change,
    Completed,
    Copied,
    DeadLettered,
    Declared,
    Deferred,
    Delivered,
    Dropped,
    Duplicated,
    Expired,
    Passed,
    Processed,
    Purged,
    Renewed,
    Returned,
    Routed,
    SavedEntry,
    SavedSession,
    Sent,
    SessionLeft,
    SessionStated,
    SessionTaken,
)
from unibus.core.life.due import Due
from unibus.core.life.entity import DEAD_LETTERS, SUBSCRIPTION, SUBSCRIPTIONS, Entity
from unibus.core.life.entry import Entry, Session
from unibus.core.life.states import ACTIVE, DEFERRED, GONE, LOCKED, SCHEDULED, STATE_NAMES, may
from unibus.errors import StoreDamaged

MARK_SENT: Final = 1
MARK_PROCESSED: Final = 2


@final
class Book:
    """`memory_budget` bounds the bytes of message data that are kept in memory; a journal keeps the rest."""

    def __init__(self, memory_budget: int) -> None:
        self.entities: dict[int, Entity] = {}
        self.names: dict[str, Entity] = {}  # By the exact name, and by the name without case.
        self.retired: dict[str, int] = {}  # Names of deleted entities, with the last sequence they used.
        self.due = Due()
        self.seq: i64 = 0
        self.fresh: list[Change] = []
        self.woken: list[Entity] = []
        self.strict = True  # False while a journal is played over a snapshot that is partly newer.
        self.replaying = False
        self.to_shed: list[Entry] = []  # Beyond the budget: their data goes as soon as it is written.
        self.held_bytes: i64 = 0
        self.memory_budget: i64 = memory_budget
        self.numbered: i64 = 0
        self.rules_version: i64 = 0  # Counts what decides where a message goes.
        # What the next snapshot has to write.
        self.unsaved: list[Entry] = []
        self.gone: list[tuple[int, int]] = []
        self.dropped: list[int] = []
        self.unsaved_marks: list[tuple[int, int, str, int]] = []
        self._carrier: i64 = 0  # The record that holds the data of the copies that follow it.
        self._carried: bytes = b""

    # Looking

    def find(self, name: str) -> Entity | None:
        found = self.names.get(name)
        return self.names.get(name.casefold()) if found is None else found

    def entry(self, entity: int, sequence: int) -> Entry | None:
        found = self.entities.get(entity)
        return None if found is None else found.entries.get(sequence)

    # Changing

    def note(self, change: Change) -> None:
        """A command's decision: true from now on, and to be written."""
        self.seq += 1
        self.fresh.append(change)
        self._play(change)

    def replay(self, change: Change) -> None:
        """A decision of the past, from the journal. Not strict, it may be about what is gone by now."""
        self.seq += 1
        if self.strict or change.entity in self.entities or isinstance(change, Declared):
            self._play(change)

    def take(self) -> list[Change]:
        """The changes since the last time, which the caller has to write."""
        fresh = self.fresh
        self.fresh = []
        self.end_group()
        return fresh

    def end_group(self) -> None:
        """What is written together ends here: no copy refers to data beyond that."""
        self._carrier = 0
        self._carried = b""

    def shed(self, entries: list[Entry]) -> None:
        """Their data was written and stays on disk until it is asked for."""
        for entry in entries:
            if entry.data is not None:
                self.held_bytes -= entry.who.size
                entry.data = None

    def _play(self, change: Change) -> None:
        # The most common first.
        if isinstance(change, Sent):
            self._sent(change)
        elif isinstance(change, Delivered):
            self._delivered(change)
        elif isinstance(change, Completed):
            self._end(change, "completed")
        elif isinstance(change, Copied):
            self._copied(change)
        elif isinstance(change, Passed):
            self._passed(change)
        elif isinstance(change, Returned):
            self._returned(change)
        elif isinstance(change, (Expired, DeadLettered, Cancelled, Routed, Purged)):
            self._end(change, _ENDS[type(change)])
        else:
            self._play_rare(change)

    def _play_rare(self, change: Change) -> None:
        if isinstance(change, Activated):
            self._activated(change)
        elif isinstance(change, Renewed):
            self._renewed(change)
        elif isinstance(change, Deferred):
            self._deferred(change)
        elif isinstance(change, Declared):
            self._declared(change)
        elif isinstance(change, Dropped):
            self._dropped(change)
        elif isinstance(change, Processed):
            self._entity(change.entity).mark_processed(change.key, change.at_ns)
            self.unsaved_marks.append((change.entity, MARK_PROCESSED, change.key, change.at_ns))
        elif isinstance(change, (SessionTaken, SessionLeft, SessionStated)):
            self._session_changed(change)
        else:
            assert isinstance(change, Duplicated)

    # Messages come

    def _sent(self, change: Sent) -> None:
        entity = self._entity(change.entity)
        if change.dedup_key is not None:
            self._mark(entity, change.dedup_key, change.at_ns)
        if not self._is_new(entity, change.sequence):
            return
        data = change.data
        entry = Entry(entity, change.sequence, change.who, change.priority, data)
        entry.expires_ns = change.expires_ns
        entry.home_sequence = self.seq
        self._put(entity, entry, change.at_ns, change.visible_ns)

    def _mark(self, entity: Entity, key: str, at_ns: int) -> None:
        entity.mark(key, at_ns)
        self.unsaved_marks.append((entity.number, MARK_SENT, key, at_ns))

    def _passed(self, change: Passed) -> None:
        entity = self._entity(change.entity)
        if change.dedup_key is not None:
            self._mark(entity, change.dedup_key, change.at_ns)
        if change.sequence > entity.sequence:
            entity.sequence = change.sequence
        if change.data:
            self._carrier = self.seq
            self._carried = change.data

    def _copied(self, change: Copied) -> None:
        entity = self._entity(change.entity)
        if not self._is_new(entity, change.sequence):
            return
        entry = Entry(entity, change.sequence, change.who, change.priority, None)
        if change.back:
            if self.seq - change.back != self._carrier:
                raise _damaged(f"the copy {entity.name!r} #{change.sequence} does not follow its data")
            entry.data = self._carried
            entry.home_sequence = self._carrier
        else:
            source = self.entry(change.source_entity, change.source_sequence)
            if source is None:
                self._missing(entity, change.source_sequence, "copied")
                return
            entry.data = source.data
            entry.home_entity = source.home_entity
            entry.home_sequence = source.home_sequence
        entry.expires_ns = change.expires_ns
        entry.hops = change.hops
        entry.overlay = change.overlay
        self._put(entity, entry, change.at_ns, change.visible_ns)

    def _is_new(self, entity: Entity, sequence: int) -> bool:
        """Every sequence is used once. One that is known already was played before."""
        if sequence > entity.sequence:
            entity.sequence = sequence
            return True
        if self.strict:
            raise _damaged(f"{entity.name!r} #{sequence} appears twice in the journal")
        return sequence not in entity.entries

    def _put(self, entity: Entity, entry: Entry, at_ns: int, visible_ns: int) -> None:
        size = entry.who.size
        entity.entries[entry.sequence] = entry
        entity.size_bytes += size
        if entry.data is not None:
            if self.held_bytes + size <= self.memory_budget:
                self.held_bytes += size
            elif self.replaying:
                entry.data = None
            else:
                # Nobody can read it from the journal before it was written.
                self.held_bytes += size
                self.to_shed.append(entry)
        self._join_session(entity, entry)
        self._touch(entry)
        if visible_ns:
            entry.due_ns = visible_ns
            self._enter(entry, SCHEDULED)
        else:
            entry.enqueued_ns = at_ns
            self._enter(entry, ACTIVE)
            entity.waits_in(entry).push(entry)

    def restore(self, entity: Entity, sequence: int, saved: SavedEntry) -> Entry:
        """A message from a snapshot, in the order of sequences. Its data stays on disk."""
        entry = Entry(entity, sequence, saved.who, saved.priority, None)
        entry.delivery_count = saved.delivery_count
        entry.expires_ns = saved.expires_ns
        entry.due_ns = saved.due_ns
        entry.enqueued_ns = saved.enqueued_ns
        entry.first_delivered_ns = saved.first_delivered_ns
        entry.token = saved.token
        entry.was_deferred = saved.was_deferred
        entry.delayed = saved.delayed
        entry.hops = saved.hops
        entry.overlay = saved.overlay
        entry.consumer = saved.consumer
        entry.home_entity = entity.number
        entry.home_sequence = sequence
        entry.saved = True
        entity.entries[sequence] = entry
        entity.size_bytes += saved.who.size
        self._join_session(entity, entry)
        self._enter(entry, saved.state)
        if saved.state == ACTIVE:
            entity.waits_in(entry).push(entry)
        return entry

    def _join_session(self, entity: Entity, entry: Entry) -> None:
        session = entity.session_of(entry)
        if session is not None:
            session.held += 1
            entry.session = session

    # Messages change

    def _delivered(self, change: Delivered) -> None:
        entry = self._moving(change.entity, change.sequence, "delivered")
        if entry is None:
            return
        entry.was_deferred = entry.state == DEFERRED
        self._leave(entry)
        entry.delivery_count = change.delivery_count
        entry.token = change.token
        entry.due_ns = change.until_ns
        entry.consumer = change.consumer
        if entry.first_delivered_ns == 0:
            entry.first_delivered_ns = change.at_ns
        self._enter(entry, LOCKED)

    def _renewed(self, change: Renewed) -> None:
        entry = self._moving(change.entity, change.sequence, "renewed")
        if entry is not None:
            entry.due_ns = change.until_ns  # It stands among the deadlines already, with an earlier one.

    def _returned(self, change: Returned) -> None:
        entry = self._moving(change.entity, change.sequence, "returned")
        if entry is None:
            return
        self._leave(entry)
        entry.delivery_count = change.delivery_count
        if change.overlay is not None:
            entry.overlay = change.overlay
        if entry.was_deferred:
            self._enter(entry, DEFERRED)
        elif change.visible_ns:
            entry.delayed = True
            entry.due_ns = change.visible_ns
            self._enter(entry, SCHEDULED)
        else:
            self._enter(entry, ACTIVE)
            entry.entity.waits_in(entry).put_back(entry)

    def _deferred(self, change: Deferred) -> None:
        entry = self._moving(change.entity, change.sequence, "deferred")
        if entry is not None:
            self._leave(entry)
            if change.overlay is not None:
                entry.overlay = change.overlay
            self._enter(entry, DEFERRED)

    def _activated(self, change: Activated) -> None:
        entity = self._entity(change.entity)
        if change.new_sequence > entity.sequence:
            entity.sequence = change.new_sequence
        entry = self._moving(change.entity, change.sequence, "activated")
        if entry is None:
            return
        self._leave(entry)
        if entry.delayed:
            entry.delayed = False
            self._enter(entry, ACTIVE)
            entity.waits_in(entry).put_back(entry)
            return
        # Its old identity ends here, and a snapshot may have a row of it.
        del entity.entries[entry.sequence]
        if entry.saved:
            self.gone.append((entity.number, entry.sequence))
            entry.saved = False
        entry.sequence = change.new_sequence
        entry.enqueued_ns = change.at_ns
        entity.entries[entry.sequence] = entry
        self._enter(entry, ACTIVE)
        entity.waits_in(entry).push(entry)

    def _end(self, change: Completed | Expired | DeadLettered | Cancelled | Routed | Purged, name: str) -> None:
        entry = self._moving(change.entity, change.sequence, name)
        if entry is None:
            return
        self._leave(entry)
        self._remove(entry)

    def _remove(self, entry: Entry) -> None:
        entity = entry.entity
        entry.state = GONE
        del entity.entries[entry.sequence]
        entity.size_bytes -= entry.who.size
        if entry.data is not None:
            self.held_bytes -= entry.who.size
            entry.data = None
        if entry.saved:
            self.gone.append((entity.number, entry.sequence))
        session = entry.session
        if session is not None:
            session.held -= 1
            self._forget_session(entity, session)
        self.due.forget(entry)

    def _moving(self, entity: int, sequence: int, change: str) -> Entry | None:
        """The message that a change is about. None when it is gone already, which only a replay may find."""
        owner = self._entity(entity)
        entry = owner.entries.get(sequence)
        if entry is None:
            self._missing(owner, sequence, change)
            return None
        if not may(change, entry.state) and self.strict:
            raise _damaged(f"{owner.name!r} #{sequence} is {STATE_NAMES[entry.state]} and cannot be {change}")
        self._touch(entry)
        return entry

    def _missing(self, entity: Entity, sequence: int, change: str) -> None:
        if self.strict:
            raise _damaged(f"{entity.name!r} #{sequence} is {change} in the journal, but it is not there")

    def _touch(self, entry: Entry) -> None:
        if not entry.unsaved:
            entry.unsaved = True
            self.unsaved.append(entry)

    # The counts, the line and the deadlines follow the state

    def _leave(self, entry: Entry) -> None:
        entity = entry.entity
        state = entry.state
        if state == ACTIVE:
            entity.active -= 1
            if entry.session is not None:
                entry.session.active -= 1
                self._refresh_ready(entity, entry.session)
        elif state == LOCKED:
            entity.locked -= 1
            token = entry.token
            if token is not None:
                entity.locks.pop(token, None)
                if entry.session is not None:
                    entry.session.locked.pop(token, None)
                entry.token = None
        elif state == SCHEDULED:
            entity.scheduled -= 1
        elif state == DEFERRED:
            entity.deferred -= 1

    def _enter(self, entry: Entry, state: i64) -> None:
        entity = entry.entity
        entry.state = state
        if state == ACTIVE:
            entity.active += 1
            if entry.session is not None:
                entry.session.active += 1
                self._refresh_ready(entity, entry.session)
            if entity.wakers:
                self.woken.append(entity)
        elif state == LOCKED:
            entity.locked += 1
            if entry.token is not None:
                entity.locks[entry.token] = entry
                if entry.session is not None:
                    entry.session.locked[entry.token] = entry
        elif state == SCHEDULED:
            entity.scheduled += 1
        elif state == DEFERRED:
            entity.deferred += 1
        deadline_ns = entry.deadline_ns()
        if deadline_ns:
            self.due.add(entry, deadline_ns)

    # Sessions

    def _session_changed(self, change: SessionTaken | SessionLeft | SessionStated) -> None:
        entity = self._entity(change.entity)
        session = entity.session(change.session_id)
        entity.unsaved = True
        if isinstance(change, SessionTaken):
            session.token = change.token
            session.until_ns = change.until_ns
            session.consumer = change.consumer
            self.due.add(session, change.until_ns)
        elif isinstance(change, SessionLeft):
            session.token = None
            session.until_ns = 0
        else:
            session.state = change.state
        self._refresh_ready(entity, session)
        self._forget_session(entity, session)

    def restore_session(self, entity: Entity, saved: SavedSession) -> None:
        session = entity.session(saved.session_id)
        session.state = saved.state
        session.token = saved.token
        session.until_ns = saved.until_ns
        session.consumer = saved.consumer
        if saved.token is not None:
            self.due.add(session, saved.until_ns)
        self._refresh_ready(entity, session)

    def _refresh_ready(self, entity: Entity, session: Session) -> None:
        if session.token is None and session.active > 0:
            if session.id not in entity.ready:
                entity.ready[session.id] = session
                if entity.wakers:
                    self.woken.append(entity)
        else:
            entity.ready.pop(session.id, None)

    def _forget_session(self, entity: Entity, session: Session) -> None:
        """A session without messages, state and lock says nothing any more."""
        if session.held == 0 and session.state is None and session.token is None:
            entity.sessions.pop(session.id, None)

    # Entities

    def _declared(self, change: Declared) -> None:
        entity = self.entities.get(change.entity)
        self.rules_version += 1
        if entity is not None:
            entity.change_settings(change.settings)
            entity.unsaved = True
            return
        self.add_entity(Entity(change.entity, change.name, change.kind, change.settings), change.sequence)

    def add_entity(self, entity: Entity, sequence: int) -> None:
        entity.sequence = sequence
        self.numbered = max(self.numbered, entity.number)
        self.entities[entity.number] = entity
        self.names[entity.name] = entity
        self.names[entity.name.casefold()] = entity
        self.retired.pop(entity.name.casefold(), None)
        owner = self.find(owner_name(entity.name, entity.kind))
        if entity.kind == SUBSCRIPTION and owner is not None:
            entity.topic = owner
            owner.subscriptions = [*owner.subscriptions, entity]
        elif entity.kind == DEAD_LETTERS and owner is not None:
            owner.dead = entity

    def _dropped(self, change: Dropped) -> None:
        entity = self.entities.get(change.entity)
        if entity is None:
            if self.strict:
                raise _damaged(f"entity {change.name!r} is deleted in the journal, but it is not there")
            return
        self.rules_version += 1
        for entry in list(entity.entries.values()):
            self._leave(entry)
            self._remove(entry)
        self.dropped.append(entity.number)
        entity.deleted = True
        del self.entities[change.entity]
        self.names.pop(entity.name, None)
        self.names.pop(entity.name.casefold(), None)
        self.retired[entity.name.casefold()] = entity.sequence
        owner = entity.topic
        if owner is not None:
            owner.subscriptions = [each for each in owner.subscriptions if each is not entity]
        parent = self.find(owner_name(entity.name, entity.kind)) if entity.kind == DEAD_LETTERS else None
        if parent is not None:
            parent.dead = None
        if entity.wakers:
            self.woken.append(entity)

    def _entity(self, number: int) -> Entity:
        found = self.entities.get(number)
        if found is None:
            raise _damaged(f"the journal speaks of entity {number}, which it never declared")
        return found


_ENDS: Final = {
    Completed: "completed",
    Expired: "expired",
    DeadLettered: "dead_lettered",
    Cancelled: "cancelled",
    Routed: "routed",
    Purged: "purged",
}


def owner_name(name: str, kind: int) -> str:
    """The name of the topic of a subscription, or of the queue of a dead-letter sub-queue."""
    if kind == SUBSCRIPTION:
        head, _, _ = name.rpartition(f"/{SUBSCRIPTIONS}/")
        return head
    if kind == DEAD_LETTERS:
        head, _, _ = name.rpartition("/")
        return head
    return ""


def _damaged(what: str) -> StoreDamaged:
    return StoreDamaged(what, "restore a backup; nothing that may be wrong was served")
