"""A store in the fewest words: what queues, topics and sessions promise, without any thought of speed.

Random tests run a real store beside this one and compare the two after every step. So it shares no rule with
core/life: it looks through everything it has for every question, and works out what is due by trying all of it.
Locks get the tokens that the real store drew, and a message is known by its text.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from unibus.core.deadletter import sub_queue
from unibus.errors import EntityNotFound, LockLost, MessageNotFound, SessionLocked, SessionLockLost, SessionRequired

SECOND = 1_000_000_000
HOPS_MAX = 4


@dataclass(frozen=True)
class Rules:
    """The settings of a box, in nanoseconds where they are times; 0 is "none"."""

    lock_ns: int = 60 * SECOND
    deliveries_max: int = 10
    ttl_ns: int = 0
    window_ns: int = 600 * SECOND
    knows_ids: bool = False
    by_priority: bool = True
    by_session: bool = False
    buries_expired: bool = False
    is_topic: bool = False
    is_dead: bool = False
    forward_to: str = ""
    dead_letters_to: str = ""


@dataclass
class Letter:
    """One message in one box. `until_ns` is when it becomes visible or when its lock ends."""

    text: str
    priority: int
    session: str | None
    sequence: int
    state: str = "active"
    count: int = 0
    expires_ns: int = 0
    until_ns: int = 0
    token: bytes = b""
    deferred: bool = False
    delayed: bool = False
    hops: int = 0


@dataclass
class Held:
    """A session: who has it, until when, and its state."""

    token: bytes = b""
    until_ns: int = 0
    state: bytes | None = None


@dataclass
class Box:
    name: str
    rules: Rules
    sequence: int = 0
    letters: dict[int, Letter] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    sessions: dict[str, Held] = field(default_factory=dict)

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence


@dataclass(frozen=True)
class Post:
    """What is sent: the arguments of a send."""

    text: str
    priority: int = 50
    session: str | None = None
    ttl_ns: int = 0
    visible_ns: int = 0
    key: str | None = None


class Boxes:
    """All of them by name, and what happens to letters once it was asked for."""

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}
        self.sequences: dict[str, int] = {}  # Of boxes that are gone.
        self.now_ns = 0

    def make(self, name: str, rules: Rules) -> None:
        self.boxes[name] = Box(name, rules, self.sequences.get(name, 0))

    def drop(self, name: str) -> None:
        for other in [name, *self.subscriptions(name), sub_queue(name)]:
            if other in self.boxes:
                self.sequences[other] = self.boxes.pop(other).sequence

    def subscriptions(self, topic: str) -> list[str]:
        return [name for name in self.boxes if name.startswith(f"{topic}/Subscriptions/") and "$" not in name]

    def box(self, name: str) -> Box:
        if name not in self.boxes:
            raise EntityNotFound(name)
        return self.boxes[name]

    def dead_box(self, name: str) -> Box:
        """The box of the dead letters of a box, made when it is needed."""
        if self.box(name).rules.is_dead:
            return self.box(name)
        if sub_queue(name) not in self.boxes:
            self.make(sub_queue(name), Rules(is_dead=True))
        return self.boxes[sub_queue(name)]

    # What becomes of a letter

    def _store(self, box: Box, letter: Letter, ttl_ns: int, from_ns: int) -> None:
        letter.sequence = box.next_sequence()
        letter.expires_ns = from_ns + ttl_ns if ttl_ns else 0
        box.letters[letter.sequence] = letter

    def _arrive(self, box: Box, letter: Letter, ttl_ns: int, key: str | None = None, way: tuple[str, ...] = ()) -> int:
        """Where it ends: here, in copies, or further on. Returns how many copies were stored.

        `key` is the sender's dedup key, `way` the boxes that have forwarded it.
        """
        rules = box.rules
        ttl_ns = shorter(ttl_ns, rules.ttl_ns)
        if rules.is_topic:
            box.next_sequence()
            names = self.subscriptions(box.name)
            names.sort(key=lambda name: self.boxes[name].rules.forward_to != "")  # Those that store come first.
            return sum([self._arrive(self.boxes[name], replace(letter), ttl_ns, key, way) for name in names])
        if rules.forward_to:
            box.next_sequence()
            if rules.forward_to in self.boxes and letter.hops < HOPS_MAX:
                target, onward = self.boxes[rules.forward_to], replace(letter, hops=letter.hops + 1)
                way = (*way, box.name)
                if not self._is_new(target, key or (letter.text if target.rules.knows_ids else None), way):
                    return 0
                return self._arrive(target, onward, ttl_ns, key, way)
            self._store(self.dead_box(box.name), letter, 0, 0)
        elif rules.by_session and letter.session is None:
            box.next_sequence()
            self._store(self.dead_box(box.name), letter, 0, 0)
        else:
            self._store(box, letter, ttl_ns, self.now_ns)
        return 1

    def _is_new(self, box: Box, key: str | None, way: tuple[str, ...]) -> bool:
        """Whether duplicate detection does not know it; it does from now on. A message is no duplicate of itself."""
        if key is None:
            return True
        if box.marks.get(key, -(10**30)) + box.rules.window_ns > self.now_ns:
            return box.name in way
        box.marks[key] = self.now_ns
        return True

    def _give_back(self, box: Box, letter: Letter, delay_ns: int) -> None:
        letter.token = b""
        if letter.count >= box.rules.deliveries_max and not box.rules.is_dead:
            self._bury(box, letter)
        elif letter.deferred:
            letter.state = "deferred"
        elif delay_ns:
            letter.state, letter.delayed, letter.until_ns = "scheduled", True, self.now_ns + delay_ns
        else:
            letter.state = "active"

    def _bury(self, box: Box, letter: Letter) -> None:
        del box.letters[letter.sequence]
        dead = Letter(letter.text, letter.priority, letter.session, 0, hops=letter.hops + 1)
        target = self.boxes.get(box.rules.dead_letters_to)
        stays = target is None or target is box or box.rules.is_dead or letter.hops >= HOPS_MAX
        if stays or target is None or self._arrive(target, dead, 0) == 0:
            self._store(self.dead_box(box.name), dead, 0, 0)

    def _session_over(self, box: Box, session: str) -> None:
        box.sessions[session].token = b""
        for letter in list(box.letters.values()):
            if letter.state == "locked" and letter.session == session:
                self._give_back(box, letter, 0)

    # Time

    def tick(self, now_ns: int) -> None:
        """Do everything that is due, in the order of the instants at which it became due."""
        self.now_ns = now_ns
        while True:
            due = [each for box in self.boxes.values() for each in self._deadlines(box) if 0 < each[0] <= now_ns]
            if not due:
                return
            min(due, key=lambda each: each[0])[1]()

    def _deadlines(self, box: Box) -> list[tuple[int, Callable[[], None]]]:
        found: list[tuple[int, Callable[[], None]]] = []
        for letter in box.letters.values():
            by_session = box.rules.by_session and letter.session is not None and not box.rules.is_dead
            if letter.state == "active":
                found.append((letter.expires_ns, partial(self._expire, box, letter)))
            elif letter.state == "scheduled":
                found.append((letter.until_ns, partial(self._show, box, letter)))
            elif letter.state == "locked" and not by_session:
                found.append((letter.until_ns, partial(self._give_back, box, letter, 0)))
        for session, held in box.sessions.items():
            if held.token:
                found.append((held.until_ns, partial(self._session_over, box, session)))
        return found

    def _expire(self, box: Box, letter: Letter) -> None:
        if box.rules.buries_expired and not box.rules.is_dead:
            self._bury(box, letter)
        else:
            del box.letters[letter.sequence]

    def _show(self, box: Box, letter: Letter) -> None:
        if letter.delayed:
            letter.state, letter.delayed = "active", False
            return
        del box.letters[letter.sequence]
        if box.rules.is_topic or box.rules.forward_to:
            ttl_ns = letter.expires_ns - letter.until_ns if letter.expires_ns else 0
            self._arrive(box, replace(letter, state="active", until_ns=0), ttl_ns)
            return
        letter.state, letter.sequence = "active", box.next_sequence()
        box.letters[letter.sequence] = letter


class Desk(Boxes):
    """What goes in, and what operators do with what is there."""

    # All or nothing

    def together(self, steps: list[Callable[[], object]]) -> list[object]:
        before = copy.deepcopy((self.boxes, self.sequences))
        try:
            return [step() for step in steps]
        except Exception:
            self.boxes, self.sequences = before
            raise

    # Sending

    def send(self, name: str, post: Post) -> int:
        """The sequence that the message got; 0 for a duplicate."""
        box = self.box(name)
        if box.rules.by_session and post.session is None and not box.rules.forward_to:
            raise SessionRequired(name)
        key = post.key or (post.text if box.rules.knows_ids else None)
        if not self._is_new(box, key, ()):
            return 0
        sequence = box.sequence + 1
        letter = Letter(post.text, post.priority, post.session, 0)
        if post.visible_ns > self.now_ns:
            letter.state, letter.until_ns = "scheduled", post.visible_ns
            self._store(box, letter, shorter(post.ttl_ns, box.rules.ttl_ns), post.visible_ns)
        else:
            self._arrive(box, letter, post.ttl_ns, post.key)
        return sequence

    def cancel(self, name: str, sequence: int) -> None:
        letter = self.box(name).letters.get(sequence)
        if letter is None or letter.state != "scheduled" or letter.delayed:
            raise MessageNotFound(name)
        del self.box(name).letters[sequence]

    # By hand

    def waiting(self, name: str, sequence: int) -> Letter:
        letter = self.box(name).letters.get(sequence)
        if letter is None or letter.state == "locked":
            raise MessageNotFound(name)
        return letter

    def move(self, name: str, sequence: int, target: str) -> None:
        letter = self.waiting(name, sequence)
        rules = self.box(target).rules
        if rules.by_session and letter.session is None and not rules.forward_to:
            raise SessionRequired(target)
        self._arrive(self.box(target), Letter(letter.text, letter.priority, letter.session, 0), 0)
        del self.box(name).letters[sequence]

    def remove(self, name: str, sequence: int) -> None:
        self.waiting(name, sequence)
        del self.box(name).letters[sequence]


class ModelStore(Desk):
    """What can be asked for. Call `tick` before every verb: it does what time has done."""

    # Receiving

    def line(self, name: str, session: str | None) -> list[Letter]:
        """Who waits, in order."""
        box = self.box(name)
        sessions = box.rules.by_session and not box.rules.is_dead
        found = [each for each in box.letters.values() if each.state == "active"]
        if sessions:
            found = [each for each in found if each.session == session]
        by_priority = box.rules.by_priority and not sessions
        return sorted(found, key=lambda each: (each.priority if by_priority else 0, each.sequence))

    def claim(self, name: str, count: int, session: tuple[str, bytes] | None = None) -> list[Letter]:
        """The letters to hand out. The caller says `lock` or `take` for each."""
        if session is not None:
            self._holder(name, session)
        elif self.box(name).rules.by_session:
            raise SessionRequired(name)
        return self.line(name, session[0] if session is not None else None)[:count]

    def deferred(self, name: str, sequences: list[int], session: tuple[str, bytes] | None = None) -> list[Letter]:
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

    def lock(self, name: str, letter: Letter, token: bytes) -> None:
        letter.state, letter.token = "locked", token
        letter.count += 1
        letter.until_ns = self.now_ns + self.box(name).rules.lock_ns

    def take(self, name: str, letter: Letter) -> None:
        del self.box(name).letters[letter.sequence]

    # Settling

    def locked(self, name: str, sequence: int, token: bytes) -> Letter:
        letter = self.box(name).letters.get(sequence)
        if letter is None or letter.state != "locked" or letter.token != token:
            raise LockLost(name)
        return letter

    def complete(self, name: str, sequence: int, token: bytes) -> None:
        self.take(name, self.locked(name, sequence, token))

    def abandon(self, name: str, sequence: int, token: bytes, delay_ns: int) -> None:
        self._give_back(self.box(name), self.locked(name, sequence, token), delay_ns)

    def defer(self, name: str, sequence: int, token: bytes) -> None:
        letter = self.locked(name, sequence, token)
        letter.state, letter.token, letter.deferred = "deferred", b"", True

    def bury(self, name: str, sequence: int, token: bytes) -> None:
        self._bury(self.box(name), self.locked(name, sequence, token))

    def renew(self, name: str, sequence: int, token: bytes) -> int:
        letter = self.locked(name, sequence, token)
        letter.until_ns = self.now_ns + self.box(name).rules.lock_ns
        return letter.until_ns

    # Sessions

    def free_sessions(self, name: str) -> set[str]:
        """Those that may be the next."""
        box = self.box(name)
        waiting = {each.session for each in box.letters.values() if each.state == "active" and each.session is not None}
        return {session for session in waiting if not box.sessions.get(session, Held()).token}

    def may_accept(self, name: str, session: str) -> None:
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
        held.until_ns = self.now_ns + self.box(name).rules.lock_ns
        return held.until_ns

    def leave(self, name: str, session: tuple[str, bytes]) -> None:
        self._holder(name, session)
        self._session_over(self.box(name), session[0])

    def set_state(self, name: str, session: tuple[str, bytes], state: bytes | None) -> None:
        self._holder(name, session).state = state

    def state(self, name: str, session: tuple[str, bytes]) -> bytes | None:
        return self._holder(name, session).state


def shorter(one_ns: int, other_ns: int) -> int:
    return min(one_ns, other_ns) if one_ns and other_ns else one_ns or other_ns
