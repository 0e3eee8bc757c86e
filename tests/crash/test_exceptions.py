"""An exception at every call of every operation on a store: it continues intact, or it stops; never half."""

import contextlib
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest

from tests.crash.faults_everywhere import Faults, Trial, picture
from unibus.core.codec.codec import encode
from unibus.core.envelope.message import restored
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import SqlFilter, TrueFilter
from unibus.core.flow.deadletter import sub_queue
from unibus.core.lifecycle.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    LEAVE_SESSION,
    SET_SESSION_STATE,
    Cancel,
    Declare,
    Drop,
    Move,
    Renew,
    Send,
    SessionCommand,
    SetRule,
    Settle,
)
from unibus.core.lifecycle.state.changes import MessageRef
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION, subscription_path
from unibus.core.lifecycle.state.rules import Rule, text_of
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.jsonfile.journal import JsonFileJournal
from unibus.stores.memory import MemoryJournal
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.store import ClaimRequest
from unibus.stores.sqlite.journal import SqliteJournal
from unibus.testing.clock.virtual_clock import VirtualClock
from unibus.testing.contracts.rig import SECOND, Rig

ANSWER_S = 20
SAMPLE = {"memory": 120, "sqlite": 8, "jsonfile": 8}
PIECEMEAL = ("time passes", "a lock ends", "a call finds what is due")
"""What comes due is decided one by one: an exception may come between two of them."""


def sending(entity: str, message_id: str, **fields: object) -> Send:
    """The same bytes each time: an envelope has an id and a time of its own otherwise."""
    session_id = fields.pop("session_id", None)
    assert session_id is None or isinstance(session_id, str)
    data = encode(restored(message_id, entity, message_id, 1, None))
    command = Send(entity, MessageRef(message_id, len(data), session_id), data, 50)
    for name, value in fields.items():
        setattr(command, name, value)
    return command


class Ground:
    """A store with something of everything, copied for each trial."""

    def __init__(self, kind: str, folder: Path, every: int) -> None:
        self._kind = kind
        self._folder = folder
        self._every = every
        self._numbers = count()
        self._at = folder
        self.clock = VirtualClock()
        self.rig: Rig
        if kind != "memory":
            store = self._open(folder / "template")
            fill(Rig(store, self.clock))
            store.close()
        self._filled_ns = self.clock.monotonic_ns()

    def _open(self, at: Path) -> EmbeddedStore:
        at.mkdir(exist_ok=True)
        journal: Journal
        if self._kind == "sqlite":
            journal = SqliteJournal(str(at / "bus.db"))
        elif self._kind == "jsonfile":
            journal = JsonFileJournal(str(at / "bus"))
        else:
            journal = MemoryJournal()
        try:
            return EmbeddedStore(journal, self.clock, self.clock.timers(lambda: True), snapshot_every=self._every)
        except BaseException:
            journal.close()
            raise

    def prepare(self) -> EmbeddedStore:
        self.clock = VirtualClock()
        if self._kind == "memory":
            store = self._open(self._folder)
            self.rig = Rig(store, self.clock)
            fill(self.rig)
            return store
        if self._at != self._folder:
            shutil.rmtree(self._at)
        self._at = self._folder / str(next(self._numbers))
        shutil.copytree(self._folder / "template", self._at)
        self.clock.advance(self._filled_ns / SECOND)
        store = self._open(self._at)
        self.rig = Rig(store, self.clock)
        return store

    def reopen(self) -> EmbeddedStore:
        return self._open(self._at)


def fill(rig: Rig) -> None:
    """Something in every state, in entities of every kind."""
    rig.queue("q", dedup_window=600, max_delivery_count=3)
    rig.queue("s", requires_session=True)
    rig.queue("audit")
    rig.topic("t")
    rig.subscription("t", "plain")
    stamp = Rule("stamp", TrueFilter(), SqlRuleAction("SET stamped = TRUE"))
    rig.subscription("t", "changed", rules=text_of([stamp]), forward_to="audit")
    rig.subscription("t", "last")
    rig.queue("in", forward_to="t")
    rig.queue("dying", default_ttl=5, dead_letter_on_expiration=True, forward_dead_letters_to="audit")
    for number in range(6):
        rig.run(sending("q", f"q{number}", dedup_key=f"k{number}"))
    rig.defer(rig.one("q"))
    rig.settle(DEAD_LETTER, rig.one("q"), reason="Broken")
    rig.run(sending("q", "later", visible_ns=rig.now_ns() + 10 * SECOND))
    rig.run(sending("t", "topic later", visible_ns=rig.now_ns() + 10 * SECOND))
    rig.run(sending("dying", "dying"))
    for number in range(3):
        rig.run(sending("s", f"s{number}", session_id="one"))


def locked(act: Callable[[Rig, Settle], object], verb: int = COMPLETE) -> Callable[[Rig], Callable[[], object]]:
    """An operation on a message that was locked before it."""

    def begin(rig: Rig) -> Callable[[], object]:
        claimed = rig.one("q")
        return lambda: act(rig, Settle(verb, claimed.entity, claimed.sequence, claimed.token))

    return begin


def at_once(act: Callable[[Rig], object]) -> Callable[[Rig], Callable[[], object]]:
    return lambda rig: lambda: act(rig)


def apply(rig: Rig, command: object) -> object:
    return rig.run(command)  # type: ignore[arg-type]


def in_session(verb: int) -> Callable[[Rig], Callable[[], object]]:
    def begin(rig: Rig) -> Callable[[], object]:
        lock = rig.accept("s", "one")
        rig.claim_in(lock, 2)
        command = SessionCommand(verb, "s", lock.session_id, lock.token)
        command.state = b"state"
        return lambda: rig.run(command)

    return begin


def claim(rig: Rig, **request: object) -> object:
    return rig.store.claim(ClaimRequest("q", **request)).wait(ANSWER_S)  # type: ignore[arg-type]


def changed_batch(rig: Rig, settle: Settle) -> object:
    return rig.run(
        sending("audit", "new"),
        settle,
        Move(sub_queue("q"), 1, "t"),
        sending("in", "through"),
        sending("made", "x", creates=QUEUE),
    )


def late(rig: Rig) -> Callable[[], object]:
    """Time has passed and no timer has called: the next operation does what is due."""
    for timers in rig.clock._agenda.owners():
        timers.stop()
    rig.advance(11)
    return lambda: rig.peek("q")


OPERATIONS: dict[str, Callable[[Rig], Callable[[], object]]] = {
    "a call finds what is due": late,
    "send": at_once(lambda rig: rig.run(sending("q", "new", dedup_key="new"))),
    "send to a topic": at_once(lambda rig: rig.run(sending("t", "new"))),
    "a batch": locked(changed_batch),
    "complete": locked(apply),
    "abandon": locked(apply, ABANDON),
    "defer": locked(apply, DEFER),
    "dead-letter": locked(apply, DEAD_LETTER),
    "renew": locked(lambda rig, settle: rig.run(Renew(settle.entity, settle.sequence, settle.token))),
    "claim": at_once(lambda rig: claim(rig, count=3)),
    "claim for good": at_once(lambda rig: claim(rig, count=3, lock=False)),
    "claim deferred": at_once(lambda rig: claim(rig, sequences=(1,))),
    "claim dead letters": at_once(lambda rig: rig.claim(sub_queue("audit"))),
    "accept": at_once(lambda rig: rig.accept("s")),
    "set session state": in_session(SET_SESSION_STATE),
    "leave session": in_session(LEAVE_SESSION),
    "cancel": at_once(lambda rig: rig.run(Cancel("q", 7))),
    "declare": at_once(lambda rig: rig.run(Declare("new", QUEUE, {}))),
    "drop": at_once(lambda rig: rig.run(Drop("t"))),
    "set a rule": at_once(
        lambda rig: rig.run(SetRule(subscription_path("t", "plain"), Rule("more", SqlFilter("a = 1"))))
    ),
    "subscribe from the past": at_once(
        lambda rig: rig.store.subscribe_from(Declare(subscription_path("t", "late"), SUBSCRIPTION, {}), 0, 0).wait(
            ANSWER_S
        )
    ),
    "time passes": at_once(lambda rig: (rig.advance(11), rig.store.entities().wait(ANSWER_S))),
    "a lock ends": locked(lambda rig, _: (rig.advance(100), rig.store.entities().wait(ANSWER_S))),
    "peek": at_once(lambda rig: rig.peek("q")),
    "watch": at_once(lambda rig: rig.store.watch(sub_queue("s"), lambda: None)),
    "history": at_once(lambda rig: rig.events()),
}


def trial_of(ground: Ground, name: str, kind: str) -> Trial:
    steps: list[Callable[[], object]] = []

    def prepare() -> EmbeddedStore:
        store = ground.prepare()
        steps[:] = [OPERATIONS[name](ground.rig)]
        return store

    return Trial(prepare, lambda _: steps[0](), None if kind == "memory" else ground.reopen, name not in PIECEMEAL)


KINDS = (("memory", 500_000), ("sqlite", 500_000), ("sqlite", 3), ("jsonfile", 3))
"""The kind of a store, and after how many changes it takes a snapshot."""


def problems_at(name: str, kind: str, every: int, folder: Path, chosen: Callable[[int], list[int]]) -> list[str]:
    """What is wrong after an exception at the chosen points of an operation."""
    trial = trial_of(Ground(kind, folder, every), name, kind)
    points, before, after = trial.points(False)
    assert points > 3
    errors = (MemoryError, KeyboardInterrupt)
    found = [trial.run(at, errors[at % 2], False, before, after) for at in chosen(points)]
    return [each for each in found if each]


# A generator that is closed while the exception is raised in it can only report it as unraisable.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("kind", "every"), KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_exception_at_any_call_leaves_a_store_whole_or_stops_it(
    name: str, kind: str, every: int, folder: Path
) -> None:
    """A sample of the calls; all of them are in tests/soak."""
    chance = Random(f"{name} {kind} {every}")

    def some(points: int) -> list[int]:
        return chance.sample(range(1, points + 1), min(SAMPLE[kind], points))

    assert problems_at(name, kind, every, folder, some) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("kind", "every"), [each for each in KINDS if each[0] != "memory"])
def test_an_exception_at_any_call_of_a_recovery_leaves_the_files_as_they_are(
    kind: str, every: int, folder: Path
) -> None:
    ground = Ground(kind, folder, every)
    store = ground.prepare()
    held = picture(store)
    store.close()
    counting = Faults()
    with counting.active():
        opened = ground.reopen()
    opened.close()
    chance = Random(f"recovery {kind} {every}")
    for at in chance.sample(range(1, counting.seen + 1), min(4 * SAMPLE[kind], counting.seen)):
        faults = Faults(at, (MemoryError, KeyboardInterrupt)[at % 2])
        opened_at_last: list[EmbeddedStore] = []
        with contextlib.suppress(MemoryError, KeyboardInterrupt), faults.active():
            opened_at_last.append(ground.reopen())
        for opened in opened_at_last:
            opened.close()
        again = ground.reopen()
        assert (picture(again), again.check()) == (held, []), faults.where
        again.close()
