"""What time does to the messages of the model: locks and sessions end, messages expire or become visible."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from unibus.core.flow.deadletter import MAX_DELIVERY_COUNT_EXCEEDED, TTL_EXPIRED
from unibus.testing.model.boxes import Boxes
from unibus.testing.model.letters import ModelMessage
from unibus.testing.model.parts import ModelQueue


class TimedBoxes(Boxes):
    """The boxes with their deadlines."""

    def tick(self, now_ns: int) -> None:
        """Do everything that is due, in the order of the instants at which it became due."""
        self.now_ns = now_ns
        while due := [each for box in self.boxes.values() for each in self._deadlines(box) if 0 < each[0] <= now_ns]:
            first_ns = min([at_ns for at_ns, _ in due])
            at_once = [action for at_ns, action in due if at_ns == first_ns]
            # The last one of several is still one of them, and so is what follows from one and was due before them.
            if first_ns > self._tie:
                self._tie = first_ns if len(at_once) > 1 else 0
            at_once[0]()
        self._tie = 0

    def _deadlines(self, box: ModelQueue) -> list[tuple[int, Callable[[], None]]]:
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

    def _expire(self, box: ModelQueue, letter: ModelMessage) -> None:
        if box.rules.buries_expired and not box.rules.is_dead:
            self._bury(box, letter, TTL_EXPIRED)
        else:
            del box.letters[letter.sequence]

    def _show(self, box: ModelQueue, letter: ModelMessage) -> None:
        if letter.delayed:
            letter.state, letter.delayed = "active", False
            return
        if box.rules.is_topic or box.rules.forward_to:
            ttl_ns = letter.expires_ns - letter.until_ns if letter.expires_ns else 0
            self._arrive(box, replace(letter, state="active", until_ns=0), ttl_ns)
            del box.letters[letter.sequence]
            return
        del box.letters[letter.sequence]
        letter.state, letter.sequence = "active", box.next_sequence()
        self._place(box, letter)

    def _give_back(self, box: ModelQueue, letter: ModelMessage, delay_ns: int) -> None:
        letter.token = b""
        if letter.count >= box.rules.deliveries_max and not box.rules.is_dead:
            self._bury(box, letter, MAX_DELIVERY_COUNT_EXCEEDED)
        elif letter.deferred:
            letter.state = "deferred"
        elif delay_ns:
            letter.state, letter.delayed, letter.until_ns = "scheduled", True, self.now_ns + delay_ns
        else:
            letter.state = "active"

    def _session_over(self, box: ModelQueue, session: str) -> None:
        box.sessions[session].token = b""
        for letter in list(box.letters.values()):
            if letter.state == "locked" and letter.session == session:
                self._give_back(box, letter, 0)
