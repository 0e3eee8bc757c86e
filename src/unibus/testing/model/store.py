"""What can be asked of the model: the verbs of a store, each in the fewest words."""

import copy
from collections.abc import Callable, Mapping, Sequence

from unibus.errors import (
    EntityDisabled,
    LockLost,
    MessageNotFound,
    QuotaExceeded,
    SessionLocked,
    SessionLockLost,
    SessionRequired,
    UsageError,
)
from unibus.testing.model.admission import Room, room_of
from unibus.testing.model.boxes import shorter
from unibus.testing.model.deadlines import TimedBoxes
from unibus.testing.model.letters import Held, ModelMessage, Value
from unibus.testing.model.parts import ModelQueue, ModelSend


class ReferenceModel(TimedBoxes):
    """What goes in, and what operators do with what is there."""

    # All or nothing

    def together(self, steps: list[Callable[[], object]], sends: Sequence[tuple[str, ModelSend]] = ()) -> list[object]:
        """`sends` are those among the steps: all of them are checked before the first step."""
        before = copy.deepcopy((self.boxes, self.sequences))
        try:
            self._room = self._granted(sends)
            return [step() for step in steps]
        except Exception:
            self.boxes, self.sequences = before
            raise
        finally:
            self._room = None

    # Sending

    def send(self, name: str, post: ModelSend) -> int:
        """The sequence that the message got; 0 for a duplicate."""
        box = self.box(name)
        if self._room is None:
            self._granted([(name, post)])
        key = self._key(box, post)
        if key is not None and box.knows(key, self.now_ns):
            return 0
        if key is not None:
            box.marks[key] = self.now_ns
        sequence = box.sequence + 1
        letter = post.letter()
        if post.visible_ns > self.now_ns:
            letter.state, letter.until_ns = "scheduled", post.visible_ns
            self._store(box, letter, shorter(post.ttl_ns, box.rules.ttl_ns), post.visible_ns)
        else:
            self._arrive(box, letter, post.ttl_ns)
        return sequence

    def _key(self, box: ModelQueue, post: ModelSend) -> str | None:
        return post.key or ((post.id or post.text) if box.rules.knows_ids else None)

    def _granted(self, sends: Sequence[tuple[str, ModelSend]]) -> Room:
        """Check them, and give each its room. A duplicate needs none."""
        room, keys = room_of(self.boxes), set()
        for name, post in sends:
            box = self.box(name)
            key = self._key(box, post)
            is_known = key is not None and (box.knows(key, self.now_ns) or (name, key) in keys)
            keys.add((name, key))
            self._check_send(box, post, is_known, room)
        return room

    def _check_send(self, box: ModelQueue, post: ModelSend, is_known: bool, room: Room) -> None:
        if box.rules.is_dead or "/Subscriptions/" in box.name:
            raise UsageError(f"messages cannot be sent to {box.name!r} directly")
        if not box.rules.sends:
            raise EntityDisabled(box.name)
        self._check_session(box, post.session)
        if is_known:
            return
        is_later = post.visible_ns > self.now_ns
        copies = [] if is_later else self.copies(self.subscriptions(box.name), post.letter())
        if box.rules.is_topic and self.subscriptions(box.name) and not is_later:
            self._check_room([each.box for each in copies if not each.failed], room)
        else:
            self._check_room(self._targets(box), room)

    def _check_session(self, box: ModelQueue, session: str | None) -> None:
        if box.rules.by_session and session is None and not box.rules.forward_to:
            raise SessionRequired(box.name)

    def _targets(self, box: ModelQueue) -> list[ModelQueue]:
        """Where a message of the box may be stored, whatever the rules say."""
        return [box, *[self.boxes[name] for name in self.subscriptions(box.name)]]

    def _check_room(self, targets: list[ModelQueue], room: Room) -> None:
        """Each that would store it needs room. Where a message is forwarded to has no say in a send."""
        for box in targets:
            if self.stores(box) and not room.has_place(box):
                raise QuotaExceeded(box.name)
            if self.stores(box):
                room.granted[box.name] += 1

    def cancel(self, name: str, sequence: int) -> None:
        letter = self.box(name).letters.get(sequence)
        if letter is None or letter.state != "scheduled" or letter.delayed:
            raise MessageNotFound(name)
        del self.box(name).letters[sequence]

    # By hand

    def waiting(self, name: str, sequence: int) -> ModelMessage:
        letter = self.box(name).letters.get(sequence)
        if letter is None or letter.state == "locked":
            raise MessageNotFound(name)
        return letter

    def move(self, name: str, sequence: int, target: str) -> None:
        """One that no subscription takes stays where it is."""
        box = self.box(target)
        if box.rules.is_dead:
            raise UsageError(f"messages cannot be moved to {target!r}")
        letter = self.waiting(name, sequence)
        moved = ModelMessage(letter.text, letter.priority, letter.session, 0)
        moved.headers, moved.correlation = letter.headers, letter.correlation
        moved.id, moved.key = letter.id, letter.key
        self._check_taken(target, moved)
        self._check_session(box, letter.session)
        self._room = room_of(self.boxes)
        try:
            self._check_room(self._targets(box), self._room)
            self._arrive(box, moved, 0)
        finally:
            self._room = None
        del self.box(name).letters[sequence]

    def _check_taken(self, target: str, letter: ModelMessage) -> None:
        """Found out by trying, on a copy of everything."""
        before = self.boxes, self.sequences
        self.boxes, self.sequences = copy.deepcopy(before)
        stored = self._arrive(self.box(target), copy.copy(letter), 0)
        self.boxes, self.sequences = before
        if stored == 0:
            raise UsageError(f"no subscription behind {target!r} takes it")

    def remove(self, name: str, sequence: int) -> None:
        self.waiting(name, sequence)
        del self.box(name).letters[sequence]


class ModelStore(ReferenceModel):
    """What can be asked for. Call `tick` before every verb: it does what time has done."""

    # Receiving

    def line(self, name: str, session: str | None) -> list[ModelMessage]:
        """Who waits, in order."""
        box = self.box(name)
        sessions = box.rules.by_session and not box.rules.is_dead
        found = [each for each in box.letters.values() if each.state == "active"]
        if sessions:
            found = [each for each in found if each.session == session]
        by_priority = box.rules.by_priority and not sessions
        return sorted(found, key=lambda each: (each.priority if by_priority else 0, each.sequence))

    def claim(self, name: str, count: int, session: tuple[str, bytes] | None = None) -> list[ModelMessage]:
        """The letters to hand out. The caller says `lock` or `take` for each."""
        self._check_receives(name)
        if session is not None:
            self._holder(name, session)
        elif self.box(name).rules.by_session:
            raise SessionRequired(name)
        return self.line(name, session[0] if session is not None else None)[:count]

    def _check_receives(self, name: str) -> None:
        """A dead-letter queue follows the entity that it belongs to."""
        owner = name.rpartition("/")[0] if self.box(name).rules.is_dead else name
        if not self.box(owner).rules.receives:
            raise EntityDisabled(name)

    def deferred(self, name: str, sequences: list[int], session: tuple[str, bytes] | None = None) -> list[ModelMessage]:
        self._check_receives(name)
        box = self.box(name)
        wanted = None if session is None else session[0]
        if session is not None:
            self._holder(name, session)
        found = [box.letters.get(sequence) for sequence in sequences]
        for letter in found:
            mine = letter is not None and (not box.rules.by_session or letter.session == wanted)
            if letter is None or letter.state != "deferred" or not mine:
                raise MessageNotFound(name)
        return [letter for letter in found if letter is not None]

    def lock(self, name: str, letter: ModelMessage, token: bytes) -> None:
        letter.state, letter.token = "locked", token
        letter.count += 1
        letter.until_ns = self.now_ns + self._lock_ns(name)

    def _lock_ns(self, name: str) -> int:
        """That of a dead-letter queue is that of its entity."""
        return self.box(name.rpartition("/")[0] if self.box(name).rules.is_dead else name).rules.lock_ns

    def take(self, name: str, letter: ModelMessage) -> None:
        del self.box(name).letters[letter.sequence]

    # Settling

    def locked(self, name: str, sequence: int, token: bytes) -> ModelMessage:
        letter = self.box(name).letters.get(sequence)
        if letter is None or letter.state != "locked" or letter.token != token:
            raise LockLost(name)
        return letter

    def complete(self, name: str, sequence: int, token: bytes) -> None:
        self.take(name, self.locked(name, sequence, token))

    def abandon(
        self, name: str, sequence: int, token: bytes, delay_ns: int, headers: Mapping[str, Value] | None = None
    ) -> None:
        self._give_back(self.box(name), self._locked_with(name, sequence, token, headers), delay_ns)

    def defer(self, name: str, sequence: int, token: bytes, headers: Mapping[str, Value] | None = None) -> None:
        letter = self._locked_with(name, sequence, token, headers)
        letter.state, letter.token, letter.deferred = "deferred", b"", True

    def dead_letter(
        self,
        name: str,
        sequence: int,
        token: bytes,
        reason: str = "",
        headers: Mapping[str, Value] | None = None,
    ) -> None:
        self._bury(self.box(name), self._locked_with(name, sequence, token, headers), reason)

    def _locked_with(self, name: str, sequence: int, token: bytes, headers: Mapping[str, Value] | None) -> ModelMessage:
        """The locked letter with what a settlement puts over its headers."""
        letter = self.locked(name, sequence, token)
        letter.headers = {**letter.headers, **(headers or {})}
        return letter

    def renew(self, name: str, sequence: int, token: bytes) -> int:
        letter = self.locked(name, sequence, token)
        letter.until_ns = self.now_ns + self._lock_ns(name)
        return letter.until_ns

    # Sessions

    def free_sessions(self, name: str) -> set[str]:
        """Those that may be the next."""
        box = self.box(name)
        waiting = {each.session for each in box.letters.values() if each.state == "active" and each.session is not None}
        return {session for session in waiting if not box.sessions.get(session, Held()).token}

    def may_accept(self, name: str, session: str | None) -> None:
        """With None: any session that is free."""
        self._check_receives(name)
        if session is None:
            return
        if self.box(name).sessions.get(session, Held()).token:
            raise SessionLocked(name)

    def accept(self, name: str, session: str, token: bytes) -> int:
        box = self.box(name)
        held = box.sessions.setdefault(session, Held())
        held.token, held.until_ns = token, self.now_ns + box.rules.lock_ns
        return held.until_ns

    def _holder(self, name: str, session: tuple[str, bytes]) -> Held:
        held = self.box(name).sessions.get(session[0])
        if held is None or held.token != session[1]:
            raise SessionLockLost(name)
        return held

    def renew_session(self, name: str, session: tuple[str, bytes]) -> int:
        held = self._holder(name, session)
        held.until_ns = self.now_ns + self._lock_ns(name)
        return held.until_ns

    def leave(self, name: str, session: tuple[str, bytes]) -> None:
        self._holder(name, session)
        self._session_over(self.box(name), session[0])

    def set_state(self, name: str, session: tuple[str, bytes], state: bytes | None) -> None:
        self._holder(name, session).state = state

    def state(self, name: str, session: tuple[str, bytes]) -> bytes | None:
        return self._holder(name, session).state
