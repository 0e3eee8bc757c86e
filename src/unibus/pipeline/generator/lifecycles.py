"""Generates the lifecycles of many messages at once, by the rules of `core/lifecycle`: which event may follow which.

    stored ──▶ delivered ──▶ completed                       most of them
        │          ├──▶ returned (now, or activated later) ──▶ delivered again, until completed or dead-lettered
        │          ├──▶ deferred ──▶ delivered, by its sequence
        │          └──▶ dead_lettered, with a copy in the dead-letter queue: received, sent again, purged, or left
        └──▶ expired, or never received

Events after the end of history are left out, so there are open messages in every state.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from unibus.pipeline.generator.rows import ATTR, GeneratedRows, Row, Values, filled
from unibus.pipeline.generator.world import (
    MINUTE_US,
    REASONS,
    SIGNATURES,
    Domain,
    Flags,
    Floats,
    Habits,
    Ints,
)

ATTEMPTS_MAX: Final = 14
"""A bound for the loop; every entity allows fewer deliveries."""
RENEWALS_MAX: Final = 12
REASON: Final = {name: number for number, name in enumerate(REASONS)}


@dataclass(eq=False)
class GeneratedMessages:
    """Stored messages as columns; `since` is the time from which each can be received."""

    uid: Ints
    chan: Ints
    msg: Ints
    size: Ints
    since: Ints

    def __len__(self) -> int:
        return len(self.uid)

    def at(self, places: Ints | Flags) -> "GeneratedMessages":
        return GeneratedMessages(
            self.uid[places], self.chan[places], self.msg[places], self.size[places], self.since[places]
        )

    def who(self, **more: Values) -> dict[str, Values]:
        """The columns that every event of these messages has."""
        return {"uid": self.uid, "chan": self.chan, "msg": self.msg, "size": self.size, **more}


class Lifecycles:
    """Generates the events of the messages of one domain."""

    def __init__(self, domain: Domain, rows: GeneratedRows, chance: np.random.Generator, numbers: "Numbers") -> None:
        self._domain = domain
        self._habits: Habits = domain.habits
        self._rows = rows
        self._chance = chance
        self._numbers = numbers
        self._dead = np.array(domain.dead)

    def generate(self, messages: GeneratedMessages, unread: float = 0.0) -> GeneratedMessages:
        """Generate all events after the messages were stored. Returns their dead-lettered copies."""
        dead: list[GeneratedMessages] = []
        if unread:
            messages = messages.at(self._chance.random(len(messages)) >= unread)
        messages, dead_letters = self._first_look(messages)
        dead.append(dead_letters)
        counts = np.zeros(len(messages), np.int64)
        first = np.zeros(len(messages), np.int64)
        enqueued = messages.since
        for attempt in range(ATTEMPTS_MAX):
            if not len(messages):
                break
            in_flight = _InFlight(messages, enqueued, counts, first)
            again, dead_letters = self._attempt(in_flight, attempt)
            dead.append(dead_letters)
            messages, enqueued, counts, first = (
                in_flight.messages.at(again),
                in_flight.enqueued[again],
                in_flight.counts,
                in_flight.first,
            )
            counts, first = counts[again], first[again]
        return joined(dead)

    def _drawn(self, median: Floats, spread: Floats | float) -> Ints:
        drawn = np.exp(median + spread * self._chance.standard_normal(len(median)))
        return np.maximum(1, drawn).astype(np.int64)

    def _first_look(self, messages: GeneratedMessages) -> tuple[GeneratedMessages, GeneratedMessages]:
        """Before the first delivery: messages that expire, and messages that are received without a lock."""
        habits, chan = self._habits, messages.chan
        wait = self._drawn(habits.wait[chan], habits.wait_spread[chan])
        late = wait > habits.ttl_us[chan]
        dead_letters = self._expire(messages.at(late), messages.since[late] + habits.ttl_us[chan][late])
        for_good = habits.takes_for_good[chan] & ~late
        taken, at = messages.at(for_good), (messages.since + wait)[for_good]
        consumers = self._consumers(taken.chan)
        self._rows.add("completed", at, taken.who(count=1, enqueued=taken.since, first=at, consumer=consumers))
        return messages.at(~late & ~for_good), dead_letters

    def _expire(self, messages: GeneratedMessages, at: Ints) -> GeneratedMessages:
        kept = self._habits.keeps_expired[messages.chan]
        gone = messages.at(~kept)
        self._rows.add("expired", at[~kept], gone.who(count=0, enqueued=gone.since))
        return self.dead_letter(messages.at(kept), at[kept], REASON["TTLExpiredException"], {"count": 0})

    def _attempt(self, in_flight: "_InFlight", attempt: int) -> tuple[Ints, GeneratedMessages]:
        """One delivery of each. Returns the indexes of those that are redelivered, and the dead-lettered copies."""
        self._deliver(in_flight)
        chan, at = in_flight.messages.chan, in_flight.ends
        failed, rejected, deferred = self._outcomes(in_flight, attempt)
        last = failed & (in_flight.counts >= self._habits.deliveries_max[chan])
        dead_letters = [
            self._dead_letter_failed(in_flight.at(last), REASON["MaxDeliveryCountExceeded"], 0.7),
            self._dead_letter_failed(in_flight.at(rejected), self._reasons(int(rejected.sum())), 1.0),
        ]
        self._defer(in_flight.at(deferred))
        done = in_flight.at(~(failed | rejected | deferred))
        self._complete(done.messages, at[~(failed | rejected | deferred)], done)
        again = np.flatnonzero(failed & ~last)
        self._return(in_flight, again)
        return again, joined(dead_letters)

    def _deliver(self, in_flight: "_InFlight") -> None:
        habits, messages = self._habits, in_flight.messages
        wait = self._drawn(habits.wait[messages.chan], habits.wait_spread[messages.chan])
        at = messages.since + wait
        there = at < habits.stops_us[messages.chan]
        in_flight.keep(there)
        messages, at = in_flight.messages, at[there]
        in_flight.counts = in_flight.counts + 1
        in_flight.first = np.where(in_flight.first == 0, at, in_flight.first)
        in_flight.consumers = self._consumers(messages.chan)
        lock = habits.lock_us[messages.chan]
        self._rows.add("delivered", at, messages.who(**in_flight.columns(), attr=ATTR["until_us"], value=at + lock))
        free = self._chance.random(len(at)) >= habits.hangs[messages.chan]
        if not free.all():
            self._hang(messages.at(~free), at[~free])
            in_flight.keep(free)
            messages, at, lock = in_flight.messages, at[free], lock[free]
        work = self._drawn(habits.work[messages.chan], habits.work_spread[messages.chan])
        in_flight.overdue = habits.released_by_lock[messages.chan] & (work >= lock)
        work = np.minimum(work, np.where(in_flight.overdue, lock, lock // 3 * RENEWALS_MAX))
        in_flight.ends = at + work
        self._renew(messages, at, work, lock)

    def _renew(self, messages: GeneratedMessages, at: Ints, work: Ints, lock: Ints) -> None:
        """The bus renews a lock at a third of its time, as long as the handler runs."""
        busy = np.flatnonzero((work > lock // 3) & ~self._habits.released_by_lock[messages.chan])
        for number in range(1, RENEWALS_MAX):
            busy = busy[work[busy] > number * (lock[busy] // 3)]
            if not len(busy):
                return
            then = at[busy] + number * (lock[busy] // 3)
            more: dict[str, Values] = {"attr": ATTR["until_us"], "value": then + lock[busy]}
            self._rows.add("renewed", then, {"uid": messages.uid[busy], "chan": messages.chan[busy], **more})

    def _hang(self, messages: GeneratedMessages, at: Ints) -> None:
        """Locked until history ends: the handler never returns."""
        for place, begun in enumerate(at.tolist()):
            lock = int(self._habits.lock_us[messages.chan[place]])
            then = np.arange(begun + lock // 3, self._domain.end_us, lock // 3)
            about = {"uid": int(messages.uid[place]), "chan": int(messages.chan[place])}
            self._rows.add("renewed", then, {**about, "attr": ATTR["until_us"], "value": then + lock})

    def _outcomes(self, in_flight: "_InFlight", attempt: int) -> tuple[Flags, Flags, Flags]:
        habits, chan, at = self._habits, in_flight.messages.chan, in_flight.ends
        bad = (at >= habits.bad_from_us[chan]) & (at < habits.bad_to_us[chan])
        chance = self._chance.random(len(chan))
        # A message that failed once is likely to fail again.
        rate = np.minimum(0.9, np.where(bad, 0.6, habits.fails[chan]) * (1 + 4 * (attempt > 0)))
        failed = in_flight.overdue | (chance < rate)
        if attempt == ATTEMPTS_MAX - 1:
            failed[:] = False
        rejected = ~failed & (chance > 1 - habits.rejects[chan])
        deferred = ~failed & ~rejected & (chance > 1 - habits.rejects[chan] - habits.defers[chan])
        return failed, rejected, deferred if attempt == 0 else np.zeros(len(chan), np.bool_)

    def _return(self, in_flight: "_InFlight", again: Ints) -> None:
        back = in_flight.messages.at(again)
        chance = self._chance.random(len(again))
        overdue = in_flight.overdue[again]
        released = ~overdue & (chance < 0.05)
        in_flight.counts[again] -= released
        reason = np.select([overdue, released], [REASON["lock_expired"], REASON["released"]], REASON["abandoned"])
        at = in_flight.ends[again]
        later = ~overdue & ~released & (self._chance.random(len(again)) < self._habits.delays[back.chan])
        backoff = (1_000_000 * 2 ** np.minimum(in_flight.counts[again], 8)).astype(np.int64)
        visible = np.where(later, at + backoff, at)
        attr = np.where(later, ATTR["visible_us"], 0)
        more: dict[str, Values] = {"count": in_flight.counts[again], "reason": reason, "attr": attr, "value": visible}
        self._rows.add("returned", at, back.who(**more))
        self._rows.add("activated", visible[later], back.at(later).who(attr=ATTR["new_sequence"]))
        in_flight.messages.since[again] = visible

    def _defer(self, in_flight: "_InFlight") -> None:
        """Deferred, and mostly received by its sequence some minutes later."""
        messages = in_flight.messages
        self._rows.add("deferred", in_flight.ends, messages.who(count=in_flight.counts))
        asked = self._chance.random(len(messages)) < 0.9
        in_flight = in_flight.at(asked)
        messages = in_flight.messages
        at = in_flight.ends + self._drawn(np.full(len(messages), np.log(10 * MINUTE_US)), 0.8)
        in_flight.counts = in_flight.counts + 1
        lock = self._habits.lock_us[messages.chan]
        self._rows.add("delivered", at, messages.who(**in_flight.columns(), attr=ATTR["until_us"], value=at + lock))
        self._complete(
            messages, at + np.minimum(self._drawn(self._habits.work[messages.chan], 0.5), lock - 1), in_flight
        )

    def _complete(self, messages: GeneratedMessages, at: Ints, in_flight: "_InFlight") -> None:
        done = filled(
            "completed", at, messages.who(**in_flight.columns(), enqueued=in_flight.enqueued, first=in_flight.first)
        )
        marked = self._habits.idempotent[messages.chan]
        key: dict[str, Values] = {
            "uid": messages.uid,
            "chan": messages.chan,
            "attr": ATTR["key"],
            "value": messages.msg,
        }
        keep = np.stack((marked, np.ones(len(messages), np.bool_)), axis=1)
        self._rows.add_together(filled("processed", at, key), done, keep=keep)

    def _dead_letter_failed(self, in_flight: "_InFlight", reason: Values, signed: float) -> GeneratedMessages:
        count = len(in_flight.messages)
        usual = self._habits.signature[in_flight.messages.chan]
        rare = np.minimum(self._chance.zipf(1.8, count), len(SIGNATURES) - 1)
        signature = np.where(self._chance.random(count) < 0.7, usual, rare)
        signature = np.where(self._chance.random(count) < signed, signature, 0)
        columns = {**in_flight.columns(), "first": in_flight.first, "signature": signature}
        return self.dead_letter(in_flight.messages, in_flight.ends, reason, columns, in_flight.enqueued)

    def _reasons(self, count: int) -> Ints:
        reasons = np.array([REASON[name] for name in ("HandlerRejected", "PayloadMismatch", "NotFound")])
        drawn: Ints = reasons[np.minimum(self._chance.geometric(0.6, count), 3) - 1]
        return drawn

    def dead_letter(
        self,
        messages: GeneratedMessages,
        at: Ints,
        reason: Values,
        columns: dict[str, Values],
        enqueued: Ints | None = None,
    ) -> GeneratedMessages:
        """Dead-letter messages: the copy and the end have the same time. `enqueued` if it is not `since`."""
        dead = self._dead[messages.chan]
        dead_letters = GeneratedMessages(self._numbers.uids(len(messages)), dead, messages.msg, messages.size, at)
        since = messages.since if enqueued is None else enqueued
        gone = filled("dead_lettered", at, messages.who(enqueued=since, reason=reason, **columns))
        self._rows.add_together(copy_of(messages, dead_letters, at), gone)
        return dead_letters

    def process_dead_letters(self, dead_letters: GeneratedMessages) -> None:
        """Some dead-lettered messages are received, some are sent again, some are purged; most are left."""
        chance = self._chance.random(len(dead_letters))
        at = dead_letters.since + self._drawn(np.full(len(dead_letters), np.log(40 * MINUTE_US)), 1.2)
        self._read(dead_letters.at(chance < 0.2), at[chance < 0.2])
        thrown = (chance >= 0.2) & (chance < 0.25)
        self._rows.add("purged", at[thrown], dead_letters.at(thrown).who(reason=REASON["by hand"]))
        moved = (chance >= 0.25) & (chance < 0.4) & ~self._habits.by_session[self._owners(dead_letters.chan)]
        self._redrive(dead_letters.at(moved), at[moved])

    def _owners(self, dead: Ints) -> Ints:
        owner = np.zeros(len(self._dead), np.int64)
        owner[self._dead] = np.arange(len(self._dead))
        return owner[dead]

    def _read(self, dead_letters: GeneratedMessages, at: Ints) -> None:
        lock = self._habits.lock_us[dead_letters.chan]
        consumers = self._consumers(dead_letters.chan)
        more: dict[str, Values] = {"count": 1, "consumer": consumers}
        self._rows.add("delivered", at, dead_letters.who(attr=ATTR["until_us"], value=at + lock, **more))
        end = at + np.minimum(self._drawn(self._habits.work[dead_letters.chan], 1.0), lock - 1)
        self._rows.add("completed", end, dead_letters.who(enqueued=dead_letters.since, first=at, **more))

    def _redrive(self, dead_letters: GeneratedMessages, at: Ints) -> None:
        home = self._owners(dead_letters.chan)
        again = GeneratedMessages(self._numbers.uids(len(dead_letters)), home, dead_letters.msg, dead_letters.size, at)
        moved = dead_letters.who(count=0, enqueued=dead_letters.since, attr=ATTR["moved"], other_chan=home)
        self._rows.add_together(copy_of(dead_letters, again, at), filled("moved", at, moved))
        self.generate(again)  # A message that fails again stays in the dead-letter queue.

    def _consumers(self, chan: Ints) -> Ints:
        habits = self._habits
        return habits.consumer[chan] + (self._chance.random(len(chan)) * habits.consumers[chan]).astype(np.int64)


class _InFlight:
    """The messages of one delivery, with their counts and times."""

    def __init__(self, messages: GeneratedMessages, enqueued: Ints, counts: Ints, first: Ints) -> None:
        self.messages = messages
        self.enqueued = enqueued
        self.counts = counts
        self.first = first
        self.consumers = self.ends = np.zeros(len(messages), np.int64)
        self.overdue = np.zeros(len(messages), np.bool_)

    def columns(self) -> dict[str, Values]:
        return {"count": self.counts, "consumer": self.consumers}

    def keep(self, places: Flags) -> None:
        self.messages, self.enqueued = self.messages.at(places), self.enqueued[places]
        self.counts, self.first, self.consumers = self.counts[places], self.first[places], self.consumers[places]

    def at(self, places: Flags) -> "_InFlight":
        part = _InFlight(self.messages.at(places), self.enqueued[places], self.counts[places], self.first[places])
        part.consumers, part.ends, part.overdue = self.consumers[places], self.ends[places], self.overdue[places]
        return part


class Numbers:
    """Unique numbers of messages, used only inside of the generator; never 0."""

    def __init__(self) -> None:
        self._next = 1

    def uids(self, count: int) -> Ints:
        first, self._next = self._next, self._next + count
        return np.arange(first, self._next)


def copy_of(source: GeneratedMessages, copies: GeneratedMessages, at: Ints) -> Row:
    """The event of a copy, whose data is that of another stored message."""
    columns = copies.who(born=copies.uid, attr=ATTR["source"], other=source.uid, other_chan=source.chan)
    return filled("copied", at, columns)


def joined(parts: list[GeneratedMessages]) -> GeneratedMessages:
    columns = [[getattr(part, name) for part in parts] for name in ("uid", "chan", "msg", "size", "since")]
    return GeneratedMessages(*[np.concatenate(column) for column in columns])
