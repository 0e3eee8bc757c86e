"""Reading an export (export_lines.py) into a store: every message once, whatever happens on the way.

Messages go in as batches, and each batch carries the position up to which the import has come: both are written, or
neither. The position has the name of the file's content, so the same import again goes on where it was stopped, and one
that is complete says so. Nothing is changed before the whole file and every entity has been looked at.

    active, locked      waits, with its count of deliveries
    scheduled           keeps its time
    deferred            waits, and the header `DeferredSequence` tells the sequence it had: it could only be received
                        by that, and it has another one now
    dead letters        stand among the dead letters, with their record
"""

import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, Protocol

from unibus.bus.history.export_lines import (
    Contents,
    EntityLine,
    MessageLine,
    SessionLine,
    bytes_of,
    overlay_of,
    steps_of,
)
from unibus.bus.names import checked_name
from unibus.core.codec.codec import decode_json
from unibus.core.lifecycle.commands import (
    LEAVE_SESSION,
    SET_SESSION_STATE,
    Advance,
    Command,
    Declare,
    ImportedState,
    Send,
    SessionCommand,
)
from unibus.core.lifecycle.envelope import send_of
from unibus.core.lifecycle.state.entity import KIND_NAMES, QUEUE, SUBSCRIPTION, SUBSCRIPTIONS, TOPIC
from unibus.core.lifecycle.state.settings import DEFAULTS, checked_settings, shown
from unibus.core.lifecycle.state.states import DEFERRED, GONE, STATE_NAMES
from unibus.errors import DecodeError, EntityExists, PositionMoved, SessionLocked
from unibus.stores.seam.store import EntityInfo, Store

BATCH: Final = 500
BATCH_BYTES: Final = 4_000_000
STATUS: Final = "status"
DEFERRED_HEADER: Final = "DeferredSequence"
LOOK_AGAIN_S: Final = 0.1
_CONSUMER: Final = "import"

POSITION: Final = "import/"
"""What the names of positions of imports begin with."""

LOCK: Final = "lock_duration"
_KINDS: Final = {KIND_NAMES[kind]: kind for kind in (QUEUE, TOPIC, SUBSCRIPTION)}
_STATES: Final = [name for state, name in STATE_NAMES.items() if state != GONE]

Progress = Callable[[int, int], None]


class ImportTarget(Protocol):
    """Where an import goes: a store that is open in this process, or a server.

    `name` is the position of the import and `before` where it is: PositionMoved, and nothing changed, if it is not.
    """

    def position(self, name: str) -> int: ...

    def declare(self, lines: list[EntityLine]) -> None:
        """Create what is missing. EntityExists, before anything is created, names all that differs."""

    def store(self, name: str, before: int, lines: list[MessageLine]) -> None:
        """One batch with its position: all of it or nothing."""

    def set_state(self, name: str, before: int, line: SessionLine) -> bool:
        """The same for the state of a session. False: it has another state, and keeps it. SessionLocked at once."""

    def finish(self, name: str, before: int, lines: list[EntityLine]) -> None:
        """Disable what was disabled, which would not have let the import in, and make the last step."""


class Importing:
    """One run. `done` and `total` count messages and sessions' states; `before` is what earlier runs had done."""

    def __init__(self, target: ImportTarget, contents: Contents, progress: Progress, batch: int = BATCH) -> None:
        self.total = contents.total
        self.kept_states: list[tuple[str, str]] = []  # Sessions that had a state of their own, and keep it.
        self._target = target
        self._contents = contents
        self.progress = progress
        self._batch = batch
        self._name = f"{POSITION}{contents.digest}"
        self.before = self.done = self._target.position(self._name)

    @property
    def is_complete(self) -> bool:
        """One more than all steps: an import of entities alone has an end, too."""
        return self.done > self.total

    def run(self, file: BinaryIO) -> None:
        """The file stands at its beginning. What is done already is passed over."""
        if self.is_complete:
            return
        self._target.declare(self._contents.entities)
        for steps in self._batches(file):
            if isinstance(steps, SessionLine):
                self._set_state(steps)
                self.done += 1
            else:
                self._target.store(self._name, self.done, steps)
                self.done += len(steps)
            self.progress(self.done, self.total)
        self._target.finish(self._name, self.done, self._contents.entities)
        self.done += 1

    def _batches(self, file: BinaryIO) -> Iterator[list[MessageLine] | SessionLine]:
        lines: list[MessageLine] = []
        size = 0
        for number, step in enumerate(steps_of(file)):
            if number < self.before:
                continue
            if isinstance(step, SessionLine):
                if lines:
                    yield lines
                    lines, size = [], 0
                yield step
                continue
            lines.append(step)
            size += len(bytes(step.envelope))
            if len(lines) >= self._batch or size >= BATCH_BYTES:
                yield lines
                lines, size = [], 0
        if lines:
            yield lines

    def _set_state(self, line: SessionLine) -> None:
        """An import that was killed may hold the session still: for as long as a lock lasts."""
        ends_s = time.monotonic() + self._lock_s(line.session) + 10 * LOOK_AGAIN_S
        while True:
            try:
                is_set = self._target.set_state(self._name, self.done, line)
            except SessionLocked as error:
                if time.monotonic() > ends_s:
                    hint = "stop its receiver, and import again: it goes on from here"
                    raise SessionLocked(error.what, hint) from error
                time.sleep(LOOK_AGAIN_S)
            else:
                if not is_set:
                    self.kept_states.append((line.session, line.id))
                return

    def _lock_s(self, entity: str) -> float:
        """Of the entity in the file: where the import goes it has the same settings."""
        found = [line.settings.get(LOCK) for line in self._contents.entities if line.entity == entity]
        lock_s = found[0] if found and found[0] is not None else DEFAULTS[LOCK]
        assert isinstance(lock_s, (int, float))
        return float(lock_s)


class StoreTarget:
    """A store that is open in this process. It waits for the store: not for an event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def position(self, name: str) -> int:
        return self._store.position(name)

    def declare(self, lines: list[EntityLine]) -> None:
        declare_all(self._store, lines)

    def store(self, name: str, before: int, lines: list[MessageLine]) -> None:
        sends = [command_of(line) for line in lines]
        self._store.apply([*sends, Advance(name, before, before + len(sends))]).wait()

    def set_state(self, name: str, before: int, line: SessionLine) -> bool:
        state = bytes_of(line.state)
        lock = self._store.accept(line.session, line.id, _CONSUMER).wait()
        assert lock is not None  # It was asked for by its id.
        leave = SessionCommand(LEAVE_SESSION, lock.entity, lock.session_id, lock.token)
        here = self._store.session_state(lock).wait()
        commands: list[Command] = [leave, Advance(name, before, before + 1)]
        if here is None:
            write = SessionCommand(SET_SESSION_STATE, lock.entity, lock.session_id, lock.token)
            write.state = state
            commands.insert(0, write)
        try:
            self._store.apply(commands).wait()
        except PositionMoved:
            self._store.apply([leave]).wait()
            raise
        return here is None or here == state

    def finish(self, name: str, before: int, lines: list[EntityLine]) -> None:
        for command in disabling(lines):
            self._store.apply([command]).wait()
        self._store.apply([Advance(name, before, before + 1)]).wait()


def command_of(line: MessageLine) -> Send:
    """The message as it was there."""
    if line.state not in _STATES:
        raise DecodeError(f"{line.state!r:.40} is no state of a message", f"one of {', '.join(_STATES)}")
    message = decode_json(bytes(line.envelope))
    command = send_of(message, line.message)
    overlay = overlay_of(line.overlay)
    if line.state == STATE_NAMES[DEFERRED]:
        overlay = {**(overlay or {}), DEFERRED_HEADER: line.sequence}
    command.priority = line.priority
    command.visible_ns = line.visible_ns
    command.former = ImportedState(line.delivery_count, line.expires_ns, overlay)
    return command


# Entities


def declare_all(store: Store, lines: list[EntityLine]) -> None:
    """Create what is missing, enabled. EntityExists, before anything is created, names all that differs."""
    infos = {info.name.casefold(): info for info in store.entities().wait()}
    commands: list[Declare] = []
    problems: list[str] = []
    for line in lines:
        command = _declare(line)
        here = infos.get(line.entity.casefold())
        if here is None:
            commands.append(command)
        else:
            problems += conflicts(here, line)
    if problems:
        raise EntityExists(
            f"{len(problems)} of the entities are here already, and are others: {'; '.join(problems)}",
            "make them alike with update_entity, or import into another store",
        )
    for command in commands:
        store.apply([command]).wait()


def _declare(line: EntityLine) -> Declare:
    """Without its status: an entity that is disabled would not let the import in."""
    settings = checked_settings(line.settings)
    settings.pop(STATUS, None)
    kind = _kind(line)
    return Declare(_name(line), kind, settings)


def _name(line: EntityLine) -> str:
    """As channels may be called. The dead-letter queues and the namespace have no lines."""
    topic, mark, own = line.entity.rpartition(f"/{SUBSCRIPTIONS}/")
    if bool(mark) != (line.kind == KIND_NAMES[SUBSCRIPTION]):
        raise DecodeError(f"{line.entity!r:.80} is no name of a {line.kind}", "the file was changed")
    return f"{checked_name(topic)}{mark}{checked_name(own)}" if mark else checked_name(own)


def _kind(line: EntityLine) -> int:
    if line.kind not in _KINDS:
        raise DecodeError(f"{line.entity!r:.80} is a {line.kind!r:.40}, which is not known here", "upgrade unibus")
    return _KINDS[line.kind]


def disabling(lines: list[EntityLine]) -> list[Declare]:
    """What is left for the end: the status of entities that were disabled."""
    found = [(line, checked_settings(line.settings)) for line in lines]
    return [
        Declare(line.entity, _kind(line), {STATUS: settings[STATUS]}, True)
        for line, settings in found
        if STATUS in settings
    ]


def conflicts(here: EntityInfo, line: EntityLine) -> list[str]:
    if here.kind != line.kind or here.name != line.entity:
        return [f"{line.entity!r} is a {line.kind} in the file, and {here.name!r} a {here.kind} here"]
    there = {**DEFAULTS, **line.settings}
    told, told_there = shown(here.settings), shown(there)
    return [
        f"{name} of {here.name!r} is {told[name]!r} here and {told_there[name]!r} in the file"
        for name in DEFAULTS
        if here.settings[name] != there[name] and name != STATUS
    ]
