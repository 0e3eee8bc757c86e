"""Imports an export (export_lines.py) into a store: every message exactly once, also after a crash.

Messages are stored in batches, and each batch also advances the position of the import: both are written, or neither.
The name of the position is the digest of the file, so the same import again continues where it was stopped, and a
complete one is recognised. Nothing is changed before the whole file and every entity has been checked.

    read and verify all ─▶ declare entities ─▶ [ batch + position ]… ─▶ session states ─▶ disable, last position
                                                 └ killed here: the next run skips what the position covers

    exported as         imported as
    active, locked      active, with its delivery count
    scheduled           scheduled for the same time
    deferred            active; the header `DeferredSequence` has its old sequence, because a consumer that stored this
                        number to receive the message could not find it otherwise
    dead-lettered       dead-lettered, with its record
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
from unibus.counting import counted
from unibus.errors import DecodeError, EntityExists, PositionMoved, SessionLocked
from unibus.stores.seam.store import EntityInfo, Store

BATCH: Final = 500
BATCH_BYTES: Final = 4_000_000
STATUS: Final = "status"
DEFERRED_HEADER: Final = "DeferredSequence"
SESSION_POLL_S: Final = 0.1
_CONSUMER: Final = "import"

POSITION: Final = "import/"
"""The prefix of the names of positions of imports."""

LOCK: Final = "lock_duration"
_KINDS: Final = {KIND_NAMES[kind]: kind for kind in (QUEUE, TOPIC, SUBSCRIPTION)}
_STATES: Final = [name for state, name in STATE_NAMES.items() if state != GONE]

Progress = Callable[[int, int], None]


class ImportTarget(Protocol):
    """The target of an import: a store that is open in this process, or a server.

    `name` is the position of the import and `before` its expected value. If it has another value, PositionMoved is
    raised and nothing is changed: another run of the same import is active.
    """

    def position(self, name: str) -> int: ...

    def declare(self, lines: list[EntityLine]) -> None:
        """Create missing entities. EntityExists names all that differ; nothing is created then."""

    def store(self, name: str, before: int, lines: list[MessageLine]) -> None:
        """Store one batch and advance the position, atomically."""

    def set_state(self, name: str, before: int, line: SessionLine) -> bool:
        """The same for the state of a session. False if the session has another state already, which it keeps.
        SessionLocked if a receiver has the session."""

    def finish(self, name: str, before: int, lines: list[EntityLine]) -> None:
        """Disable the entities that were disabled (they would have refused the import), and advance the position to
        its last value."""


class Importing:
    """One run. `done` and `total` count messages and session states; `before` is what earlier runs have done."""

    def __init__(self, target: ImportTarget, contents: Contents, progress: Progress, batch: int = BATCH) -> None:
        self.total = contents.total
        self.kept_states: list[tuple[str, str]] = []  # Sessions that had another state already, and keep it.
        self._target = target
        self._contents = contents
        self.progress = progress
        self._batch = batch
        self._name = f"{POSITION}{contents.digest}"
        # The number of steps that earlier runs have stored. Steps are numbered by their order in the file, which the
        # digest in the name fixes.
        self.before = self.done = self._target.position(self._name)

    @property
    def is_complete(self) -> bool:
        """The last step counts as one more, so that an import of entities alone can be complete, too."""
        return self.done > self.total

    def run(self, file: BinaryIO) -> None:
        """Import from the beginning of the file. Steps of earlier runs are skipped."""
        if self.is_complete:
            return
        # Also in a continued run: an entity that was deleted meanwhile is created again, and a changed one is reported.
        self._target.declare(self._contents.entities)
        for steps in self._batches(file):
            if isinstance(steps, SessionLine):
                self._set_state(steps)
                self.done += 1
            else:
                # A crash after this line repeats nothing: the position was advanced in the same batch.
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
                continue  # An earlier run has stored it: the position says so.
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
        """Wait for the session if it is locked: an import that was killed holds it until its lock expires."""
        ends_s = time.monotonic() + self._lock_s(line.session) + 10 * SESSION_POLL_S
        while True:
            try:
                is_set = self._target.set_state(self._name, self.done, line)
            except SessionLocked as error:
                if time.monotonic() > ends_s:
                    hint = "stop its receiver, and import again: the import continues from here"
                    raise SessionLocked(error.what, hint) from error
                time.sleep(SESSION_POLL_S)
            else:
                if not is_set:
                    self.kept_states.append((line.session, line.id))
                return

    def _lock_s(self, entity: str) -> float:
        """The lock duration of the entity, from the file: the target has the same settings."""
        found = [line.settings.get(LOCK) for line in self._contents.entities if line.entity == entity]
        lock_s = found[0] if found and found[0] is not None else DEFAULTS[LOCK]
        assert isinstance(lock_s, (int, float))
        return float(lock_s)


class StoreTarget:
    """A store that is open in this process. Its methods block: do not call them on an event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def position(self, name: str) -> int:
        return self._store.position(name).wait()

    def declare(self, lines: list[EntityLine]) -> None:
        declare_all(self._store, lines)

    def store(self, name: str, before: int, lines: list[MessageLine]) -> None:
        sends = [command_of(line) for line in lines]
        self._store.apply([*sends, Advance(name, before, before + len(sends))]).wait()

    def set_state(self, name: str, before: int, line: SessionLine) -> bool:
        # Decoded first: a damaged line must not leave the session locked.
        state = bytes_of(line.state)
        # Only the holder of a session's lock may write its state; the lock is released in the batch that advances the
        # position, so a crash leaves either both undone or both done.
        lock = self._store.accept(line.session, line.id, _CONSUMER).wait()
        assert lock is not None  # None is only possible for "any session".
        leave = SessionCommand(LEAVE_SESSION, lock.entity, lock.session_id, lock.token)
        # An existing state wins: it is newer than the export, and a consumer relies on it.
        here = self._store.session_state(lock).wait()
        commands: list[Command] = [leave, Advance(name, before, before + 1)]
        if here is None:
            write = SessionCommand(SET_SESSION_STATE, lock.entity, lock.session_id, lock.token)
            write.state = state
            commands.insert(0, write)
        try:
            self._store.apply(commands).wait()
        except PositionMoved:
            self._store.apply([leave]).wait()  # The batch did not release the session.
            raise
        return here is None or here == state

    def finish(self, name: str, before: int, lines: list[EntityLine]) -> None:
        # Disabling is idempotent: after a crash between these batches, the next run repeats it.
        for command in disabling(lines):
            self._store.apply([command]).wait()
        self._store.apply([Advance(name, before, before + 1)]).wait()


def command_of(line: MessageLine) -> Send:
    """The send that stores the message with its exported state."""
    if line.state not in _STATES:
        raise DecodeError(f"{line.state!r:.40} is not a state of a message", f"use one of {', '.join(_STATES)}")
    message = decode_json(bytes(line.envelope))
    command = send_of(message, line.message)
    overlay = overlay_of(line.overlay)
    if line.state == STATE_NAMES[DEFERRED]:
        overlay = {**(overlay or {}), DEFERRED_HEADER: line.sequence}
    command.priority = line.priority
    command.visible_ns = line.visible_ns
    command.imported = ImportedState(line.delivery_count, line.expires_ns, overlay)
    return command


# Entities


def declare_all(store: Store, lines: list[EntityLine]) -> None:
    """Create missing entities, enabled. EntityExists names all that differ; nothing is created then."""
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
            f"the file has {counted(len(problems), 'conflict')} with existing entities: {'; '.join(problems)}",
            "make them equal with update_entity, or import into another store",
        )
    # One by one: a crash in between leaves some entities created, which the next run finds equal and skips.
    for command in commands:
        store.apply([command]).wait()


def _declare(line: EntityLine) -> Declare:
    """Without its status: a disabled entity would refuse the import. `disabling` sets it at the end."""
    settings = checked_settings(line.settings)
    settings.pop(STATUS, None)
    kind = _kind(line)
    return Declare(_name(line), kind, settings)


def _name(line: EntityLine) -> str:
    """The checked name. Dead-letter queues and the namespace have no lines of their own."""
    topic, mark, own = line.entity.rpartition(f"/{SUBSCRIPTIONS}/")
    if bool(mark) != (line.kind == KIND_NAMES[SUBSCRIPTION]):
        raise DecodeError(
            f"{line.entity!r:.80} cannot be the name of a {line.kind}", "the file was changed: export again"
        )
    return f"{checked_name(topic)}{mark}{checked_name(own)}" if mark else checked_name(own)


def _kind(line: EntityLine) -> int:
    if line.kind not in _KINDS:
        raise DecodeError(f"{line.entity!r:.80} has the unknown kind {line.kind!r:.40}", "upgrade unibus")
    return _KINDS[line.kind]


def disabling(lines: list[EntityLine]) -> list[Declare]:
    """The commands that set the status of disabled entities, after all messages are stored."""
    found = [(line, checked_settings(line.settings)) for line in lines]
    return [
        Declare(line.entity, _kind(line), {STATUS: settings[STATUS]}, True)
        for line, settings in found
        if STATUS in settings
    ]


def conflicts(here: EntityInfo, line: EntityLine) -> list[str]:
    if here.kind != line.kind or here.name != line.entity:
        return [f"{line.entity!r} is a {line.kind} in the file and {here.name!r} is a {here.kind} in the store"]
    there = {**DEFAULTS, **line.settings}
    # Compared are the real values; shown are those without secrets.
    shown_here, shown_there = shown(here.settings), shown(there)
    return [
        f"{name} of {here.name!r} is {shown_here[name]!r} in the store and {shown_there[name]!r} in the file"
        for name in DEFAULTS
        if here.settings[name] != there[name] and name != STATUS
    ]
