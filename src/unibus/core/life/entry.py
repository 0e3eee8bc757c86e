# mypyc: compiled
"""One message in one entity, and one session of an entity: what the store holds in memory for them."""

from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr

from unibus.core.life.changes import Overlay, SavedEntry, SavedSession, Who
from unibus.core.life.due import Timed
from unibus.core.life.states import ACTIVE, LOCKED, SCHEDULED
from unibus.core.life.waiting import Waiting

if TYPE_CHECKING:
    from unibus.core.life.entity import Entity


@final
@mypyc_attr(acyclic=True)
class Entry(Timed):
    """`due_ns` is when a scheduled message becomes visible, or when a lock ends. All instants are wall time.

    `data` is the encoded envelope, None while it is only on disk. Its home there is the record `home_sequence` of the
    journal, or, where `home_entity` is not 0, the snapshot's row (home_entity, home_sequence).
    """

    def __init__(self, entity: "Entity", sequence: int, who: Who, priority: int, data: bytes | None) -> None:
        super().__init__()
        self.entity = entity
        self.sequence: i64 = sequence
        self.who = who
        self.priority: i64 = priority
        self.data = data
        self.state: i64 = ACTIVE
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
        self.overlay: Overlay | None = None
        self.was_deferred = False  # Locked out of the deferred state: it goes back there.
        self.delayed = False  # Scheduled by a return: it keeps its sequence.
        self.saved = False  # The snapshot has a row of it.
        self.unsaved = False  # It changed since.

    def deadline_ns(self) -> i64:
        if self.state == ACTIVE:
            return self.expires_ns
        if self.state == SCHEDULED:
            return self.due_ns
        if self.state == LOCKED and self.session is None:
            return self.due_ns
        return 0

    def lock_ends_ns(self) -> i64:
        """Inside of a session the session's lock is the lock."""
        return self.due_ns if self.session is None else self.session.until_ns

    def as_saved(self) -> SavedEntry:
        return SavedEntry(
            self.who,
            self.priority,
            self.state,
            self.delivery_count,
            self.expires_ns,
            self.due_ns,
            self.enqueued_ns,
            self.first_delivered_ns,
            self.token,
            self.was_deferred,
            self.delayed,
            self.hops,
            self.overlay,
            self.consumer,
        )


@final
@mypyc_attr(acyclic=True)
class Session(Timed):
    """The messages of one session wait here, by sequence alone. It is free while `token` is None."""

    def __init__(self, entity: "Entity", session_id: str) -> None:
        super().__init__()
        self.entity = entity
        self.id = session_id
        self.waiting = Waiting(False)
        self.held: i64 = 0  # Messages in whatever state,
        self.active: i64 = 0  # and those that wait.
        self.locked: dict[bytes, Entry] = {}
        self.state: bytes | None = None
        self.token: bytes | None = None
        self.until_ns: i64 = 0
        self.consumer = ""

    def deadline_ns(self) -> i64:
        return 0 if self.token is None else self.until_ns

    def as_saved(self) -> SavedSession:
        return SavedSession(self.id, self.state, self.token, self.until_ns, self.consumer)
