"""What clients asked of a server over HTTP and what it answered, and the verdict on what is in the store at the end.

Only answers count. A request whose connection died has an unknown outcome: it took place or it did not, both are right,
half of it never is (I10). The rules, by the numbers of the invariants:

    I1  a message whose send was answered is in the store, unless a settlement that ends it was asked for
    I2  a message whose completion was answered is never delivered again, and not in the store
    I3  a message is not delivered while a lock on it holds
    I5  a message that was sent again with the same MessageId, where duplicates are detected, exists once
    I6  a batch, and the copies of a message for the subscriptions of a topic, exist as a whole or not at all
    I7  delivery counts grow
    I8  a scheduled message is not delivered early

Order: sequence numbers of one sender grow, and no message is delivered for the first time after a later one.
"""

import itertools
import threading
from collections import Counter
from dataclasses import dataclass, field

LOCK_S = 5.0
DEAD = "/$DeadLetterQueue"
TOPIC = "topic"
COPIES = ("topic/Subscriptions/one", "topic/Subscriptions/two")
DUPLICATES_DETECTED = "once"
SESSIONS = "sessions"
DESTRUCTIVE = "taken"
"""The queue from which messages are received without a lock: an unknown receive may have taken one."""

OPEN, ACKED, REFUSED = "open", "acked", "refused"
COMPLETE, DEAD_LETTER, ABANDON, DEFER, CANCEL = "complete", "dead-letter", "abandon", "defer", "cancel"


@dataclass
class Receipt:
    """One delivery that a client has seen. Times are of the ledger's own counting, `until_s` of the wall."""

    count: int
    sequence: int
    began: int
    ended: int
    until_s: float


@dataclass
class Copy:
    """A message in one queue or subscription."""

    receipts: list[Receipt] = field(default_factory=list)
    ending: str = ""
    """The settlement that was answered and that took it from here."""
    ended_at: int = 0
    maybe: Counter[str] = field(default_factory=Counter)
    """Settlements that were asked for, less those that were answered: their outcome is unknown."""
    lock_until_s: float = 0.0


@dataclass
class Sent:
    """One message of one request to send. Those of one request have the same `request`."""

    id: str
    entity: str
    request: int
    due_s: float = 0.0
    status: str = OPEN
    sequence: int = 0
    acked_at: int = 0

    def targets(self) -> tuple[str, ...]:
        return COPIES if self.entity == TOPIC else (self.entity,)


@dataclass
class Findings:
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    half: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        return [f"{name}: {text}" for name in ("lost", "doubled", "half", "wrong") for text in getattr(self, name)]


class HttpLedger:
    """Written by many threads. What contradicts an earlier answer is found at once, the rest by `judge`."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.counts: Counter[str] = Counter()
        self.sent: dict[str, Sent] = {}
        self.copies: dict[tuple[str, str], Copy] = {}
        self.states: dict[str, list[str]] = {}
        """By session: the state that was answered last, then those whose outcome is unknown."""
        self._deliveries: dict[str, list[tuple[int, int, int]]] = {}
        """By entity: (began, ended, highest sequence) of every receive that was answered."""
        self._lock = threading.Lock()
        self._ticks = itertools.count(1)
        self._requests = itertools.count(1)

    def tick(self) -> int:
        return next(self._ticks)

    # Sends

    def asks_send(self, entity: str, ids: list[str], due_s: float = 0.0) -> list[Sent]:
        with self._lock:
            request = next(self._requests)
            asked = [Sent(each, entity, request, due_s) for each in ids]
            self.sent.update({each.id: each for each in asked})
            self.counts["asked sends"] += 1
            return asked

    def acked_send(self, asked: list[Sent], sequences: list[int]) -> None:
        with self._lock:
            self.counts["acknowledged sends"] += len(asked)
            for each, sequence in zip(asked, sequences, strict=True):
                each.status, each.sequence, each.acked_at = ACKED, sequence, self.tick()

    def refused_send(self, asked: list[Sent]) -> None:
        with self._lock:
            for each in asked:
                each.status = REFUSED

    # Deliveries

    def received(self, entity: str, message_id: str, receipt: Receipt, now_s: float) -> None:
        with self._lock:
            self.counts["deliveries"] += 1
            place = (entity, message_id)
            sent = self.sent.get(message_id)
            if sent is None or sent.status == REFUSED or entity.removesuffix(DEAD) not in sent.targets():
                self.findings.wrong.append(f"{place} was never sent: {sent}")
                return
            copy = self.copies.setdefault(place, Copy())
            self._check(place, copy, receipt, sent, now_s)
            copy.receipts.append(receipt)
            copy.lock_until_s = receipt.until_s

    def _check(self, place: tuple[str, str], copy: Copy, receipt: Receipt, sent: Sent, now_s: float) -> None:
        highest = max([each.count for each in copy.receipts], default=0)
        if copy.ending and (receipt.began > copy.ended_at or receipt.count > highest):
            self.findings.doubled.append(f"{place} was delivered after it was answered with {copy.ending}: {receipt}")
        # Two answers may come in another order than the deliveries they are of.
        if receipt.count in [each.count for each in copy.receipts]:
            self.findings.wrong.append(f"{place}: a second delivery {receipt.count}: {copy.receipts} {receipt}")
        if receipt.until_s and place[0] != SESSIONS and receipt.count > highest:
            # Ends of locks are whole seconds in headers.
            if receipt.until_s - LOCK_S + 1.0 < copy.lock_until_s:
                self.findings.doubled.append(f"{place} was delivered while it was locked: {copy} {receipt}")
        if sent.due_s > now_s:
            self.findings.wrong.append(f"{place} was delivered {sent.due_s - now_s} s early")

    def answered_receive(self, entity: str, began: int, ended: int, sequences: list[int]) -> None:
        """A receive that gave these, in this order."""
        with self._lock:
            if sequences != sorted(sequences) and len({*sequences}) == len(sequences):
                self.counts["unsorted answers"] += 1
            if sequences:
                self._deliveries.setdefault(entity, []).append((began, ended, max(sequences)))

    # Settlements

    def asks_settle(self, entity: str, message_id: str, verb: str) -> None:
        with self._lock:
            copy = self.copies[entity, message_id]
            copy.maybe[verb] += 1
            copy.lock_until_s = 0.0

    def acked_settle(self, entity: str, message_id: str, verb: str) -> None:
        with self._lock:
            self.counts[f"acknowledged {verb}"] += 1
            copy = self.copies[entity, message_id]
            copy.maybe[verb] -= 1
            if verb in (COMPLETE, DEAD_LETTER, CANCEL):
                copy.ending, copy.ended_at = verb, self.tick()

    def asks_cancel(self, entity: str, message_id: str) -> None:
        with self._lock:
            self.copies.setdefault((entity, message_id), Copy()).maybe[CANCEL] += 1

    def refused_settle(self, entity: str, message_id: str, verb: str) -> None:
        """The lock had ended: this did nothing, but an earlier try with an unknown outcome may have."""
        with self._lock:
            self.counts["lost locks"] += 1
            self.copies[entity, message_id].maybe[verb] -= 1

    def renewed(self, entity: str, message_id: str, until_s: float) -> None:
        with self._lock:
            self.counts["acknowledged renew"] += 1
            copy = self.copies[entity, message_id]
            copy.lock_until_s = max(copy.lock_until_s, until_s)

    # Sessions

    def asks_state(self, session: str, state: str) -> None:
        with self._lock:
            self.states.setdefault(session, [""]).append(state)

    def acked_state(self, session: str, state: str) -> None:
        with self._lock:
            self.counts["acknowledged states"] += 1
            self.states[session] = [state]

    def read_state(self, session: str, state: str) -> None:
        with self._lock:
            possible = self.states.get(session, [""])
            if state not in possible:
                self.findings.lost.append(f"session {session} has the state {state!r}, possible were {possible}")
            self.states[session] = [state]

    def wrong(self, text: str) -> None:
        with self._lock:
            self.findings.wrong.append(text)

    # The verdict

    def judge(self, found: dict[str, list[tuple[str, int]]]) -> None:
        """`found` has every message of every entity, in the order in which it was drained at the end."""
        places = Counter((entity, each) for entity, messages in found.items() for each, _ in messages)
        self.findings.doubled += [f"{place} is there {count} times" for place, count in places.items() if count > 1]
        known = {(name + end, each.id) for each in self.sent.values() for name in each.targets() for end in ("", DEAD)}
        self.findings.wrong += [f"{place} was never sent" for place in places if place not in known]
        happened: dict[int, set[bool]] = {}
        for sent in self.sent.values():
            for target in sent.targets():
                is_there = self._judge_copy(sent, target, places)
                if target != DESTRUCTIVE:
                    happened.setdefault(sent.request, set()).add(is_there)
        self.findings.half += [f"request {number}" for number, outcomes in happened.items() if len(outcomes) > 1]
        if self.counts["destroyed"] > self.counts["unknown receives without a lock"]:
            self.findings.lost.append(f"of {DESTRUCTIVE}: {self.counts}")
        self._judge_order(found)

    def _judge_copy(self, sent: Sent, target: str, places: "Counter[tuple[str, str]]") -> bool:
        """Whether the send took place for this target."""
        here, dead = self.copies.get((target, sent.id), Copy()), self.copies.get((target + DEAD, sent.id), Copy())
        in_queue, in_dead = places[target, sent.id], places[target + DEAD, sent.id]
        text = f"{target} {sent} {here} {dead}: {in_queue} there, {in_dead} dead-lettered"
        if in_queue and here.ending:
            self.findings.doubled.append(f"it is back: {text}")
        if in_dead and dead.ending:
            self.findings.doubled.append(f"it is back: {text}")
        if in_queue and in_dead:
            self.findings.doubled.append(f"both: {text}")
        if in_dead and not (here.ending == DEAD_LETTER or here.maybe[DEAD_LETTER]):
            self.findings.wrong.append(f"it was not dead-lettered: {text}")
        is_ended = here.ending in (COMPLETE, CANCEL) or dead.ending == COMPLETE
        may_be_ended = bool(here.maybe[COMPLETE] or here.maybe[CANCEL] or dead.maybe[COMPLETE])
        was_stored = sent.status == ACKED or bool(here.receipts or dead.receipts)
        if target == DESTRUCTIVE:
            may_be_ended = True  # Counted below: one for each receive whose answer was lost.
            self.counts["destroyed"] += was_stored and not is_ended and not in_queue
        if was_stored and not is_ended and not may_be_ended and not (in_queue or in_dead):
            self.findings.lost.append(text)
        if sent.status == REFUSED and (in_queue or in_dead or was_stored):
            self.findings.wrong.append(f"it was refused: {text}")
        return was_stored or bool(in_queue or in_dead)

    def _judge_order(self, found: dict[str, list[tuple[str, int]]]) -> None:
        for entity, messages in found.items():
            sequences = [sequence for _, sequence in messages]
            if sequences != sorted(sequences):
                self.findings.wrong.append(f"{entity} was drained out of order: {sequences}")
        for (entity, message_id), copy in self.copies.items():
            sent = self.sent[message_id]
            first = copy.receipts[0] if copy.receipts else None
            if first is None or first.count != 1 or sent.due_s or sent.status != ACKED or sent.entity != entity:
                continue
            for began, ended, sequence in self._deliveries.get(entity, ()):
                if sent.acked_at < began and ended < first.began and sequence > first.sequence and entity != SESSIONS:
                    self.findings.wrong.append(f"{entity}: #{sequence} was delivered before {message_id} {first}")
                    break
