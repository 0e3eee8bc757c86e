"""Salvage: from the files of a store to the state that they prove, and to the list of what is wrong with them.

    snapshot ──▶ state ◀── groups of the log, in order ──▶ findings
                  │            └── a group that differs from the file, or is left out: `repaired`, `history_from`
                  └──▶ bodies: each message must have readable data, or it is left out: `unreadable`

A valid record is replayed as recovery does. An invalid one is repaired if the other records of its group prove its
content, and left out otherwise. After a gap in the log changes may refer to missing ones: they are replayed as far as
what they refer to exists.
"""

from unibus.core.lifecycle.events import kind_of
from unibus.core.lifecycle.invariants import differences, sequence_problem, violations
from unibus.core.lifecycle.state.apply import replay
from unibus.core.lifecycle.state.changes import Change, Copied, Declared, Passed, Sent
from unibus.core.lifecycle.state.deadlines import NEVER
from unibus.core.lifecycle.state.entity import SUBSCRIPTION, TOPIC, StoredMessage
from unibus.core.lifecycle.state.state import StoreState, owner_name
from unibus.errors import BusError, StoreDamaged, StoreVersion
from unibus.stores.inspection.fan_out import half_sends
from unibus.stores.inspection.findings import Finding, Inspection
from unibus.stores.seam.store_files import LoggedGroup, StoreFiles

_BODIES_AT_ONCE = 500
_LEFT_OUT = "it is left out"
_LOST = "messages that were stored there are lost, and messages that were settled there are redelivered"


class Salvage:
    """One pass over the files. `state` and `inspection` are the result.

    `repaired` has the groups of the log that differ from the files, by their first change. `bodies` has the data of
    messages without a record of their own. `unreadable` are messages without readable data. History can be copied from
    change `history_from` on: after the last gap.
    """

    def __init__(self, files: StoreFiles) -> None:
        self.state = StoreState(0)  # Keeps no data in memory: a store may be larger than memory.
        self.inspection = Inspection(files.url)
        self.repaired: dict[int, list[Change]] = {}
        self.bodies: dict[StoredMessage, bytes] = {}
        self.unreadable: set[StoredMessage] = set()
        self.history_from = 1
        self._files = files
        self._covered = 0

    def run(self) -> "Salvage":
        # As in recovery: data beyond the memory budget, which is 0 here, is released at once, since the files have it.
        self.state.replaying = True
        # Raises if the snapshot itself cannot be read: without it the log alone proves nothing about older messages.
        self._covered, overlap = self._files.load_snapshot(self.state)
        self.state.seq = self._covered
        gap = False
        for group in self._files.groups(self._covered):
            # A gap stays a gap: from there on a change may refer to one that is missing, so nothing is strict any more.
            gap = self._take(group, gap, overlap) or gap
        self._check_end(overlap)
        self.state.strict = True
        self.state.replaying = False
        for entity in self.state.entities.values():
            # As recovery does after an overlap; here also after a gap.
            entity.entries = dict(sorted(entity.entries.items()))
        # The order matters: the sequences are corrected before the invariants are checked, and both before the data is
        # read, which is the slow part.
        self._raise_sequences()
        self._check_state()
        self._check_bodies()
        self._find_history()
        self._check_history()
        inspection, entities = self.inspection, self.state.visible()
        inspection.changes = self.state.seq
        inspection.entities = len(entities)
        inspection.messages = sum(len(entity.entries) for entity in entities)
        return self

    def _find(self, what: str, effect: str) -> None:
        self.inspection.findings.append(Finding(what, effect))

    # The log

    def _take(self, group: LoggedGroup, gap: bool, overlap: int) -> bool:
        """Replay one group. True if the log has a gap here."""
        state = self.state
        self.inspection.groups += 1
        # The numbers of an unreadable group are not known for certain. The next group shows by its number what is
        # missing.
        if group.problem:
            self._find(group.problem, _LOST)
            return True
        if group.first != state.seq + 1:
            self._find(f"{_span(state.seq + 1, group.first - 1)} missing from the log", _LOST)
            # Continue with the numbers of the log: positions, cursors and the index of history refer to them.
            state.seq = group.first - 1
            gap = True
        self._report_half_sends(group)
        changes = list(group.changes)
        for index, change in enumerate(changes):
            # Before `overlap` a row may be newer than the change, after a gap a change may lack what it refers to. Both
            # are no damage of this change.
            state.strict = not gap and state.seq >= overlap
            changes[index] = self._apply(changes, index, change)
        state.end_group()
        # Only groups that differ are kept in memory; the writer reads all others from the files again.
        if changes != group.changes:
            self.repaired[group.first] = changes
        return gap

    def _apply(self, changes: list[Change], index: int, change: Change) -> Change:
        """Replay one change. Returns it, or the one that replaces it."""
        state = self.state
        # A copy has no data of its own: it refers to an earlier record of the same group. Recovery accepts only the
        # last record with data, salvage any that has the same message.
        carried = _carried(changes, index, change)
        if carried is not None and isinstance(change, Copied) and state.seq + 1 - change.back != state.carrier:
            # A record with its own data: recovery of the new store then accepts it.
            sent = _with_data(change, carried)
            what = f"change {state.seq + 1}: the copy of {change.who.message_id!r} in {self._name(change.entity)}"
            self._find(f"{what} does not follow its data", "its data is in the same group, and the copy is kept")
            self._replay(sent)
            entry = state.entry(change.entity, change.sequence)
            if entry is not None:
                self.bodies[entry] = carried
            return sent
        self._replay(change)
        return change

    def _replay(self, change: Change) -> None:
        seq = self.state.seq + 1
        try:
            replay(self.state, change)
        # Left out, and replay continues: later changes may be about other messages.
        except StoreDamaged as error:
            self._find(f"change {seq} ({kind_of(change)}): {error.what}", _LEFT_OUT)

    def _report_half_sends(self, group: LoggedGroup) -> None:
        for half in half_sends(group.changes, self._topics(group.changes)):
            topic = self.state.entities.get(half.passed.entity)
            subscriptions = [] if topic is None else topic.subscriptions
            lacking = [each.name for each in subscriptions if each.number not in half.stored]
            self._find(
                f"change {group.first + half.index}: the send of {half.passed.who.message_id!r} to "
                f"{self._name(half.passed.entity)} stored {len(half.stored)} of {half.passed.copies} copies; "
                "the send was not acknowledged",
                f"the copies that were stored are kept; without one: {', '.join(lacking) or 'unknown'}",
            )

    def _topics(self, changes: list[Change]) -> dict[int, set[int]]:
        """The subscriptions of each topic, by number: existing ones, and those that the group itself declares."""
        # The group is not replayed yet, so a topic or subscription that it creates itself is not in the state.
        topics = {
            number: {each.number for each in entity.subscriptions}
            for number, entity in self.state.entities.items()
            if entity.kind == TOPIC
        }
        numbers = {entity.name: number for number, entity in self.state.entities.items()}
        for change in changes:
            if isinstance(change, Declared):
                numbers[change.name] = change.entity
                if change.kind == TOPIC:
                    topics.setdefault(change.entity, set())
                elif change.kind == SUBSCRIPTION:
                    topic = numbers.get(owner_name(change.name, SUBSCRIPTION), 0)
                    topics.setdefault(topic, set()).add(change.entity)
        return topics

    def _name(self, number: int) -> str:
        return repr(self.state.known.get(number, number))

    def _check_end(self, overlap: int) -> None:
        """A log that was cut between two groups looks complete; two numbers say how far it must reach (log_end.py)."""
        # `overlap` is the last change that the snapshot has a part of: the log was synced up to it first.
        missing = max(self._files.reached, overlap) - self.state.seq
        if missing > 0:
            what = f"the log ends with change {self.state.seq}, but it had change {self.state.seq + missing}"
            self._find(what, _LOST)

    # The result

    def _raise_sequences(self) -> None:
        """A new message must not get the sequence of one that exists."""
        problem = sequence_problem(self.state)
        # Ends after one round: every entity is corrected in it. The loop repeats the check, so that a defect here
        # cannot pass.
        while problem:
            self._find(problem, "new messages get higher sequences")
            for entity in self.state.entities.values():
                if entity.entries:
                    entity.sequence = max(entity.sequence, max(entity.entries))
            problem = sequence_problem(self.state)

    def _check_state(self) -> None:
        for each in violations(self.state):
            # `repair` raises for these: a state that breaks an invariant is not written.
            self._find(each, "the store cannot be repaired")

    def _check_bodies(self) -> None:
        for entity in self.state.entities.values():
            # Those in `bodies` were read with their group.
            entries = [entry for entry in entity.entries.values() if entry not in self.bodies]
            for start in range(0, len(entries), _BODIES_AT_ONCE):
                self._read(entries[start : start + _BODIES_AT_ONCE])

    def _read(self, entries: list[StoredMessage]) -> None:
        try:
            self._files.bodies(entries)
        # Written by a newer version: not damage, and nothing may be left out because of it.
        except StoreVersion:
            raise
        except BusError as error:
            # One by one, to find which of them it was: a page of 500 is read in one piece as long as nothing is wrong.
            if len(entries) > 1:
                for entry in entries:
                    self._read([entry])
                return
            self.unreadable.add(entries[0])
            where = f"{entries[0].entity.name!r} #{entries[0].sequence} ({entries[0].who.message_id})"
            self._find(f"the message {where} cannot be read: {error}", _LEFT_OUT)

    def _find_history(self) -> None:
        """The change after which the log has no gap. Damage before the snapshot affects history only, and no
        message."""
        # A second pass, from the oldest group on: `_take` has seen only those after the snapshot.
        expected, is_whole = 0, True
        for group in self._files.groups(0):
            if group.problem or (expected and group.first != expected):
                is_whole = False
                # A gap after the snapshot was reported by `_take`, with its effect on messages.
                if expected <= self._covered:
                    what = group.problem or f"{_span(expected, group.first - 1)} missing from the log"
                    self._find(what, "history before it is left out; no message is affected")
            if not group.problem:
                if not is_whole or not expected:
                    self.history_from, is_whole = group.first, True
                expected = group.last + 1
        if not is_whole or not expected:
            # No usable history at all: the new log begins after the snapshot.
            self.history_from = self.state.seq + 1

    def _check_history(self) -> None:
        """If the log still has all changes, replaying it must lead to the state of the snapshot."""
        # Only for an otherwise intact store: after damage the two states differ for a known reason.
        if not self._covered or self.inspection.findings:
            return
        # A second state from the whole log. It finds a defect that no checksum shows: a snapshot that was written
        # wrongly.
        rebuilt = StoreState(NEVER)
        rebuilt.replaying = True
        for group in self._files.groups(0):
            if group.problem or group.first != rebuilt.seq + 1:
                return  # The oldest changes are pruned: there is nothing to compare.
            try:
                for change in group.changes:
                    replay(rebuilt, change)
            except StoreDamaged as error:
                self._find(
                    f"history does not lead to the snapshot: change {rebuilt.seq}: {error.what}",
                    "none: it is only reported",
                )
                return
            rebuilt.end_group()
        latest = max([entity.updated_ns for entity in self.state.entities.values()], default=0)
        for each in differences(self.state, rebuilt, latest):
            self._find(f"history does not lead to the snapshot: {each}", "none: the snapshot is valid")
        # As in repair.py: compiled objects with cycles are not found by the garbage collector.
        rebuilt.release()


def _span(first: int, last: int) -> str:
    return f"change {first} is" if first == last else f"changes {first} to {last} are"


def _carried(changes: list[Change], index: int, change: Change) -> bytes | None:
    """The data of a copy, from the record of its group that it refers to."""
    if not isinstance(change, Copied) or not 0 < change.back <= index:
        return None
    # `back` counts records, and is checked to stay inside of the group: it comes from a damaged file.
    carrier = changes[index - change.back]
    same = isinstance(carrier, (Passed, Sent)) and carrier.who.message_id == change.who.message_id
    return carrier.data or None if same and isinstance(carrier, (Passed, Sent)) else None


def _with_data(copy: Copied, data: bytes) -> Sent:
    return Sent(
        at_ns=copy.at_ns,
        entity=copy.entity,
        sequence=copy.sequence,
        who=copy.who,
        priority=copy.priority,
        expires_ns=copy.expires_ns,
        visible_ns=copy.visible_ns,
        dedup_key=copy.dedup_key,
        data=data,
        overlay=copy.overlay,
        hops=copy.hops,
    )
