"""Where a message of the model goes: into an entity, in copies to subscriptions, further on, to the dead letters."""

from dataclasses import dataclass, replace

from unibus.core.flow.deadletter import (
    ATTEMPTS_HEADER,
    FILTER_EVALUATION_FAILED,
    MAX_TRANSFER_HOP_COUNT_EXCEEDED,
    REASON_HEADER,
    SESSION_ID_IS_NULL,
    SOURCE_HEADER,
    TIME_HEADER,
    sub_queue,
)
from unibus.errors import EntityNotFound
from unibus.testing.model.admission import ModelAnswer, Room, answer_of_target
from unibus.testing.model.letters import ModelMessage, Value
from unibus.testing.model.parts import ModelQueue, ModelRules
from unibus.testing.model.rules import ModelRule, NoAnswer

HOPS_MAX = 4
TARGET_MISSING = "ForwardTargetNotFound"


@dataclass
class ModelCopy:
    """What a subscription gets of a message. With `failed` it gets it as a dead letter."""

    box: ModelQueue
    letter: ModelMessage
    failed: bool = False


class Boxes:
    """All of them by name, and what happens to letters once it was asked for."""

    def __init__(self) -> None:
        self.boxes: dict[str, ModelQueue] = {}
        self.sequences: dict[str, int] = {}  # Of boxes that are gone.
        self.now_ns = 0
        self.has_ties = False  # Several deadlines at one instant have stored messages: `ModelMessage.tie`.
        self.is_undecided = False  # One of them took a place or a dedup key that another one wanted.
        self._tie = 0
        self._room: Room | None = None  # Of the batch that is carried out.

    def make(self, name: str, rules: ModelRules) -> None:
        self.boxes[name] = ModelQueue(name, rules, self.sequences.get(name, 0))
        topic, is_subscription, _ = name.partition("/Subscriptions/")
        if is_subscription and "$" not in name:
            self._hand_kept(self.boxes[topic], name)

    def change(self, name: str, rules: ModelRules) -> None:
        self.box(name).rules = rules

    def set_rules(self, name: str, rules: tuple[ModelRule, ...]) -> None:
        self.change(name, replace(self.box(name).rules, rules=rules))

    def drop(self, name: str) -> None:
        gone = [name, *(self.subscriptions(name))]
        for other in [*gone, *map(sub_queue, gone)]:
            if other in self.boxes:
                self.sequences[other] = self.boxes.pop(other).sequence

    def subscriptions(self, topic: str) -> list[str]:
        return [name for name in self.boxes if name.startswith(f"{topic}/Subscriptions/") and "$" not in name]

    def box(self, name: str) -> ModelQueue:
        if name not in self.boxes:
            raise EntityNotFound(name)
        return self.boxes[name]

    def dead_box(self, name: str) -> ModelQueue:
        """The box of the dead letters of a box, made when it is needed."""
        if self.box(name).rules.is_dead:
            return self.box(name)
        if sub_queue(name) not in self.boxes:
            self.make(sub_queue(name), ModelRules(is_dead=True))
        return self.boxes[sub_queue(name)]

    # What becomes of a letter

    def stores(self, box: ModelQueue) -> bool:
        """Whether what arrives at a box stays there."""
        if box.rules.is_topic:
            return box.rules.keeps and not self.subscriptions(box.name)
        return not box.rules.forward_to

    def _store(self, box: ModelQueue, letter: ModelMessage, ttl_ns: int, from_ns: int) -> None:
        letter.sequence = box.next_sequence()
        letter.expires_ns = from_ns + ttl_ns if ttl_ns else 0
        self._place(box, letter)

    def _place(self, box: ModelQueue, letter: ModelMessage) -> None:
        letter.tie, letter.fresh, letter.way = self._tie, False, ()
        self.has_ties = self.has_ties or self._tie > 0
        box.letters[letter.sequence] = letter

    def _arrive(self, box: ModelQueue, letter: ModelMessage, ttl_ns: int) -> int:
        """Where it ends: here, in copies, or further on. Returns how many copies were stored."""
        rules = box.rules
        ttl_ns = shorter(ttl_ns, rules.ttl_ns)
        if self.stores(box) and rules.by_session and letter.session is None:
            self._refuse(box, letter, SESSION_ID_IS_NULL)
        elif self.stores(box):
            self._store(box, letter, ttl_ns, self.now_ns)
        elif rules.is_topic:
            box.next_sequence()
            copies = self.copies(self.subscriptions(box.name), replace(letter, way=(*letter.way, box.name)))
            copies.sort(key=lambda copy: copy.box.rules.forward_to != "")  # Those that store come first.
            return sum([self._enter(copy, ttl_ns) for copy in copies])
        else:
            return self._forward(box, letter, ttl_ns)
        return 1

    def _forward(self, box: ModelQueue, letter: ModelMessage, ttl_ns: int) -> int:
        target = self.boxes.get(box.rules.forward_to)
        if target is None or letter.hops >= HOPS_MAX:
            self._refuse(box, letter, TARGET_MISSING if target is None else MAX_TRANSFER_HOP_COUNT_EXCEEDED)
            return 1
        onward = replace(letter, hops=letter.hops + 1, way=(*letter.way, box.name))
        answer = self._ask(target, onward)
        if answer.reason:
            self._refuse(box, letter, answer.reason)
            return 1
        box.next_sequence()
        return 0 if answer.is_duplicate else self._admit(target, onward, ttl_ns, answer)

    def _ask(self, target: ModelQueue, letter: ModelMessage) -> ModelAnswer:
        """What the target of a forward says to a message."""
        stores = [target]
        if target.rules.is_topic and not self.stores(target):
            copies = self.copies(self.subscriptions(target.name), letter)
            stores = [copy.box for copy in copies if not copy.failed]
        stores = [box for box in stores if self.stores(box)]
        answer = answer_of_target(target, letter, stores, self._room, self.now_ns)
        depends = answer.key is not None or any([box.rules.count_max for box in stores])
        self.is_undecided = self.is_undecided or (depends and self._tie > 0)
        return answer

    def _admit(self, target: ModelQueue, letter: ModelMessage, ttl_ns: int, answer: ModelAnswer) -> int:
        if answer.key is not None:
            target.marks[answer.key] = self.now_ns
        return self._arrive(target, letter, ttl_ns)

    def copies(self, subscriptions: list[str], letter: ModelMessage) -> list[ModelCopy]:
        """One for all rules without an action that take it, one for each of the others; one for all that fail."""
        found: list[ModelCopy] = []
        failed: list[ModelCopy] = []
        for box in [self.boxes[name] for name in subscriptions]:
            whole = False
            for rule in box.rules.rules:
                try:
                    if not rule.takes(letter):
                        continue
                except NoAnswer:
                    failed.append(ModelCopy(box, replace(letter), True))
                    continue
                try:
                    if rule.action or not whole:
                        found.append(ModelCopy(box, rule.changed(letter)))
                except NoAnswer:
                    found.append(ModelCopy(box, replace(letter), True))
                whole = whole or not rule.action
        return first_failures([*found, *failed])

    def _enter(self, copy: ModelCopy, ttl_ns: int) -> int:
        if not copy.failed:
            return self._arrive(copy.box, copy.letter, ttl_ns)
        self._refuse(copy.box, copy.letter, FILTER_EVALUATION_FAILED)
        return 1

    def _refuse(self, box: ModelQueue, letter: ModelMessage, reason: str) -> None:
        """A letter that cannot be stored where it arrived: into the dead letters of that box."""
        box.next_sequence()
        self._store(self.dead_box(box.name), self._dead(box, letter, reason), 0, 0)

    def _hand_kept(self, topic: ModelQueue, subscription: str) -> None:
        """A new subscription gets what its topic has kept."""
        for letter in [each for each in topic.letters.values() if each.state == "active"]:
            ttl_ns = max(1, letter.expires_ns - self.now_ns) if letter.expires_ns else 0
            for copy in self.copies([subscription], replace(letter)):
                self._enter(copy, ttl_ns)
            del topic.letters[letter.sequence]

    def _dead(self, box: ModelQueue, letter: ModelMessage, reason: str) -> ModelMessage:
        """As it is with the record of its death."""
        record: dict[str, Value] = {
            REASON_HEADER: reason,
            SOURCE_HEADER: self._source_of(box, letter),
            ATTEMPTS_HEADER: letter.count,
            TIME_HEADER: self.now_ns,
        }
        dead = ModelMessage(letter.text, letter.priority, letter.session, 0, hops=letter.hops)
        dead.headers, dead.correlation = {**letter.headers, **record}, letter.correlation
        dead.id, dead.key = letter.id, letter.key
        return dead

    def _source_of(self, box: ModelQueue, letter: ModelMessage) -> Value:
        """Where it died. A dead letter did so before."""
        return letter.headers.get(SOURCE_HEADER, box.name.rpartition("/")[0]) if box.rules.is_dead else box.name

    def _bury(self, box: ModelQueue, letter: ModelMessage, reason: str) -> None:
        """Where dead letters are forwarded to; into the dead letters of the box where that takes none."""
        dead = self._dead(box, letter, reason)
        dead.hops += 1
        target = self.boxes.get(box.rules.dead_letters_to)
        stays = target is box or box.rules.is_dead or letter.hops >= HOPS_MAX
        if target is None or stays or not self._forward_dead(target, dead):
            self._store(self.dead_box(box.name), dead, 0, 0)
        del box.letters[letter.sequence]

    def _forward_dead(self, target: ModelQueue, dead: ModelMessage) -> bool:
        """Whether it is stored there. One that the target refuses or knows is not, and stays."""
        answer = self._ask(target, dead)
        return not answer.reason and not answer.is_duplicate and self._admit(target, replace(dead), 0, answer) > 0


def first_failures(copies: list[ModelCopy]) -> list[ModelCopy]:
    """A box gets one dead letter of a message, however many rules fail, and none where it does without them."""
    kept: list[ModelCopy] = []
    for copy in copies:
        again = any([each.failed and each.box is copy.box for each in kept])
        if not copy.failed or (copy.box.rules.buries_unanswered and not again):
            kept.append(copy)
    return kept


def shorter(one_ns: int, other_ns: int) -> int:
    return min(one_ns, other_ns) if one_ns and other_ns else one_ns or other_ns
