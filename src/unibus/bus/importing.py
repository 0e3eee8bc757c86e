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
from typing import BinaryIO, Final

from unibus.bus.export_lines import Contents, EntityLine, MessageLine, SessionLine, bytes_of, overlay_of, steps_of
from unibus.core.codec import decode_json
from unibus.core.life.commands import (
    LEAVE_SESSION,
    SET_SESSION_STATE,
    Advance,
    Command,
    Declare,
    Former,
    Send,
    SessionCommand,
)
from unibus.core.life.entity import KIND_NAMES
from unibus.core.life.envelope import send_of
from unibus.core.life.settings import DEFAULTS, checked_settings, shown
from unibus.core.life.states import DEFERRED, STATE_NAMES
from unibus.errors import DecodeError, EntityExists, SessionLocked
from unibus.stores.store import EntityInfo, SessionLock, Store

BATCH: Final = 500
BATCH_BYTES: Final = 4_000_000
STATUS: Final = "status"
DEFERRED_HEADER: Final = "DeferredSequence"
LOOK_AGAIN_S: Final = 0.1
_CONSUMER: Final = "import"

Progress = Callable[[int, int], None]


class Importing:
    """One run. `done` and `total` count messages and sessions' states; `before` is what earlier runs had done."""

    def __init__(self, store: Store, contents: Contents, progress: Progress, batch: int = BATCH) -> None:
        self.total = contents.total
        self.kept_states: list[tuple[str, str]] = []  # Sessions that had a state of their own, and keep it.
        self._store = store
        self._contents = contents
        self.progress = progress
        self._batch = batch
        self._name = f"import/{contents.digest}"
        self.before = self.done = store.position(self._name)

    @property
    def is_complete(self) -> bool:
        """One more than all steps: an import of entities alone has an end, too."""
        return self.done > self.total

    def run(self, file: BinaryIO) -> None:
        """The file stands at its beginning. What is done already is passed over."""
        if self.is_complete:
            return
        declares = declare_all(self._store, self._contents.entities)
        for steps in self._batches(file):
            if isinstance(steps, SessionLine):
                self._set_state(steps)
            else:
                self._apply(list(steps), len(steps))
            self.progress(self.done, self.total)
        for command in declares:
            self._store.apply([command]).wait()
        self._apply([], 1)

    def _batches(self, file: BinaryIO) -> Iterator[list[Send] | SessionLine]:
        commands: list[Send] = []
        size = 0
        for number, step in enumerate(steps_of(file)):
            if number < self.before:
                continue
            if isinstance(step, SessionLine):
                if commands:
                    yield commands
                    commands, size = [], 0
                yield step
                continue
            commands.append(command_of(step))
            size += commands[-1].size
            if len(commands) >= self._batch or size >= BATCH_BYTES:
                yield commands
                commands, size = [], 0
        if commands:
            yield commands

    def _apply(self, commands: "list[Send] | list[SessionCommand]", steps: int) -> None:
        batch: list[Command] = [*commands, Advance(self._name, self.done, self.done + steps)]
        self._store.apply(batch).wait()
        self.done += steps

    def _set_state(self, line: SessionLine) -> None:
        """A session that has a state here keeps it."""
        lock = _accepted(self._store, line)
        leave = SessionCommand(LEAVE_SESSION, lock.entity, lock.session_id, lock.token)
        state = bytes_of(line.state)
        here = self._store.session_state(lock).wait()
        if here is None:
            write = SessionCommand(SET_SESSION_STATE, lock.entity, lock.session_id, lock.token)
            write.state = state
            self._apply([write, leave], 1)
        else:
            self._apply([leave], 1)
            if here != state:
                self.kept_states.append((line.session, line.id))


def _accepted(store: Store, line: SessionLine) -> SessionLock:
    """An import that was killed may hold the session still: for as long as a lock lasts."""
    infos = [info for info in store.entities().wait() if info.name == line.session]
    lock_s = float(infos[0].settings["lock_duration"] or 0) if infos else 0.0
    ends_s = time.monotonic() + lock_s + 10 * LOOK_AGAIN_S
    while True:
        try:
            lock = store.accept(line.session, line.id, _CONSUMER).wait()
        except SessionLocked as error:
            if time.monotonic() > ends_s:
                raise SessionLocked(error.what, "stop its receiver, and import again: it goes on from here") from error
            time.sleep(LOOK_AGAIN_S)
            continue
        assert lock is not None  # It was asked for by its id.
        return lock


def command_of(line: MessageLine) -> Send:
    """The message as it stood there."""
    message = decode_json(bytes(line.envelope))
    command = send_of(message, line.message)
    overlay = overlay_of(line.overlay)
    if line.state == STATE_NAMES[DEFERRED]:
        overlay = {**(overlay or {}), DEFERRED_HEADER: line.sequence}
    command.priority = line.priority
    command.visible_ns = line.visible_ns
    command.former = Former(line.delivery_count, line.expires_ns, overlay)
    return command


# Entities


def declare_all(store: Store, lines: list[EntityLine]) -> list[Declare]:
    """Make what is missing. EntityExists, before anything is made, names all that is there and is another.

    Gives what is left for the end: those that somebody has disabled would not let the import in.
    """
    infos = {info.name.casefold(): info for info in store.entities().wait()}
    numbers = {name: number for number, name in KIND_NAMES.items()}
    commands: list[Declare] = []
    later: list[Declare] = []
    problems: list[str] = []
    for line in lines:
        if line.kind not in numbers:
            raise DecodeError(f"{line.entity!r} is a {line.kind!r}, which is not known here", "upgrade unibus")
        settings = checked_settings(line.settings)
        if STATUS in settings:
            later.append(Declare(line.entity, numbers[line.kind], {STATUS: settings.pop(STATUS)}, True))
        here = infos.get(line.entity.casefold())
        if here is None:
            commands.append(Declare(line.entity, numbers[line.kind], settings))
        else:
            problems += conflicts(here, line)
    if problems:
        raise EntityExists(
            f"{len(problems)} of the entities are here already, and are others: {'; '.join(problems)}",
            "make them alike with update_entity, or import into another store",
        )
    for command in commands:
        store.apply([command]).wait()
    return later


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
