"""The lives of messages, drawn many at once by the rules of `core/lifecycle`: what may follow on what, and what is
counted.

    stored ──▶ delivered ──▶ completed                       most of them
        │          ├──▶ returned (now, or activated later) ──▶ delivered again, until it is completed or buried
        │          ├──▶ deferred ──▶ delivered, by its sequence
        │          └──▶ dead_lettered, with a copy in the dead letters: read, sent again, thrown away, or left
        └──▶ expired, or never received

Events that would come after the end of history are not told, so that some messages are open in every state.
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
"""A bound for the drawing; every entity allows fewer deliveries."""
RENEWALS_MAX: Final = 12
REASON: Final = {name: number for number, name in enumerate(REASONS)}


@dataclass(eq=False)
class Lives:
    """Messages that are stored, each from the instant at which it can be received."""

    life: Ints
    chan: Ints
    msg: Ints
    size: Ints
    since: Ints

    def __len__(self) -> int:
        return len(self.life)

    def at(self, places: Ints | Flags) -> "Lives":
        return Lives(self.life[places], self.chan[places], self.msg[places], self.size[places], self.since[places])

    def who(self, **more: Values) -> dict[str, Values]:
        """What every event of these messages tells about them."""
        return {"life": self.life, "chan": self.chan, "msg": self.msg, "size": self.size, **more}


class Fates:
    """Draws what becomes of messages of one domain. `buried` collects their dead letters."""

    def __init__(self, domain: Domain, rows: GeneratedRows, chance: np.random.Generator, numbers: "Numbers") -> None:
        self._domain = domain
        self._habits: Habits = domain.habits
        self._rows = rows
        self._chance = chance
        self._numbers = numbers
        self._dead = np.array(domain.dead)

    def live(self, lives: Lives, unread: float = 0.0) -> Lives:
        """All events after they were stored. Gives their dead letters, which have lives of their own."""
        buried: list[Lives] = []
        if unread:
            lives = lives.at(self._chance.random(len(lives)) >= unread)
        lives, letters = self._first_look(lives)
        buried.append(letters)
        counts = np.zeros(len(lives), np.int64)
        first = np.zeros(len(lives), np.int64)
        enqueued = lives.since
        for attempt in range(ATTEMPTS_MAX):
            if not len(lives):
                break
            going = _Going(lives, enqueued, counts, first)
            again, letters = self._attempt(going, attempt)
            buried.append(letters)
            lives, enqueued, counts, first = going.lives.at(again), going.enqueued[again], going.counts, going.first
            counts, first = counts[again], first[again]
        return joined(buried)

    def _drawn(self, median: Floats, spread: Floats | float) -> Ints:
        drawn = np.exp(median + spread * self._chance.standard_normal(len(median)))
        return np.maximum(1, drawn).astype(np.int64)

    def _first_look(self, lives: Lives) -> tuple[Lives, Lives]:
        """Before the first delivery: those that expire, and those that are taken without a lock."""
        habits, chan = self._habits, lives.chan
        wait = self._drawn(habits.wait[chan], habits.wait_spread[chan])
        late = wait > habits.ttl_us[chan]
        letters = self._expire(lives.at(late), lives.since[late] + habits.ttl_us[chan][late])
        for_good = habits.takes_for_good[chan] & ~late
        taken, at = lives.at(for_good), (lives.since + wait)[for_good]
        consumers = self._consumers(taken.chan)
        self._rows.add("completed", at, taken.who(count=1, enqueued=taken.since, first=at, consumer=consumers))
        return lives.at(~late & ~for_good), letters

    def _expire(self, lives: Lives, at: Ints) -> Lives:
        kept = self._habits.keeps_expired[lives.chan]
        gone = lives.at(~kept)
        self._rows.add("expired", at[~kept], gone.who(count=0, enqueued=gone.since))
        return self.dead_letter(lives.at(kept), at[kept], REASON["TTLExpiredException"], {"count": 0})

    def _attempt(self, going: "_Going", attempt: int) -> tuple[Ints, Lives]:
        """One delivery each. Gives the places of those that come back, and the dead letters."""
        self._deliver(going)
        chan, at = going.lives.chan, going.ends
        failed, rejected, deferred = self._outcomes(going, attempt)
        last = failed & (going.counts >= self._habits.deliveries_max[chan])
        letters = [
            self._give_up(going.at(last), REASON["MaxDeliveryCountExceeded"], 0.7),
            self._give_up(going.at(rejected), self._reasons(int(rejected.sum())), 1.0),
        ]
        self._defer(going.at(deferred))
        done = going.at(~(failed | rejected | deferred))
        self._complete(done.lives, at[~(failed | rejected | deferred)], done)
        again = np.flatnonzero(failed & ~last)
        self._return(going, again)
        return again, joined(letters)

    def _deliver(self, going: "_Going") -> None:
        habits, lives = self._habits, going.lives
        wait = self._drawn(habits.wait[lives.chan], habits.wait_spread[lives.chan])
        at = lives.since + wait
        there = at < habits.stops_us[lives.chan]
        going.keep(there)
        lives, at = going.lives, at[there]
        going.counts = going.counts + 1
        going.first = np.where(going.first == 0, at, going.first)
        going.consumers = self._consumers(lives.chan)
        lock = habits.lock_us[lives.chan]
        self._rows.add("delivered", at, lives.who(**going.told(), attr=ATTR["until_us"], value=at + lock))
        free = self._chance.random(len(at)) >= habits.hangs[lives.chan]
        if not free.all():
            self._hang(lives.at(~free), at[~free])
            going.keep(free)
            lives, at, lock = going.lives, at[free], lock[free]
        work = self._drawn(habits.work[lives.chan], habits.work_spread[lives.chan])
        going.overdue = habits.released_by_lock[lives.chan] & (work >= lock)
        work = np.minimum(work, np.where(going.overdue, lock, lock // 3 * RENEWALS_MAX))
        going.ends = at + work
        self._renew(lives, at, work, lock)

    def _renew(self, lives: Lives, at: Ints, work: Ints, lock: Ints) -> None:
        """The bus renews a lock at a third of its time, as long as somebody works."""
        busy = np.flatnonzero((work > lock // 3) & ~self._habits.released_by_lock[lives.chan])
        for number in range(1, RENEWALS_MAX):
            busy = busy[work[busy] > number * (lock[busy] // 3)]
            if not len(busy):
                return
            then = at[busy] + number * (lock[busy] // 3)
            more: dict[str, Values] = {"attr": ATTR["until_us"], "value": then + lock[busy]}
            self._rows.add("renewed", then, {"life": lives.life[busy], "chan": lives.chan[busy], **more})

    def _hang(self, lives: Lives, at: Ints) -> None:
        """Locked until history ends: somebody works on it and never comes to an end."""
        for place, begun in enumerate(at.tolist()):
            lock = int(self._habits.lock_us[lives.chan[place]])
            then = np.arange(begun + lock // 3, self._domain.end_us, lock // 3)
            about = {"life": int(lives.life[place]), "chan": int(lives.chan[place])}
            self._rows.add("renewed", then, {**about, "attr": ATTR["until_us"], "value": then + lock})

    def _outcomes(self, going: "_Going", attempt: int) -> tuple[Flags, Flags, Flags]:
        habits, chan, at = self._habits, going.lives.chan, going.ends
        bad = (at >= habits.bad_from_us[chan]) & (at < habits.bad_to_us[chan])
        chance = self._chance.random(len(chan))
        # What failed once is likely to fail again.
        rate = np.minimum(0.9, np.where(bad, 0.6, habits.fails[chan]) * (1 + 4 * (attempt > 0)))
        failed = going.overdue | (chance < rate)
        if attempt == ATTEMPTS_MAX - 1:
            failed[:] = False
        rejected = ~failed & (chance > 1 - habits.rejects[chan])
        deferred = ~failed & ~rejected & (chance > 1 - habits.rejects[chan] - habits.defers[chan])
        return failed, rejected, deferred if attempt == 0 else np.zeros(len(chan), np.bool_)

    def _return(self, going: "_Going", again: Ints) -> None:
        back = going.lives.at(again)
        chance = self._chance.random(len(again))
        overdue = going.overdue[again]
        released = ~overdue & (chance < 0.05)
        going.counts[again] -= released
        reason = np.select([overdue, released], [REASON["lock_expired"], REASON["released"]], REASON["abandoned"])
        at = going.ends[again]
        later = ~overdue & ~released & (self._chance.random(len(again)) < self._habits.delays[back.chan])
        backoff = (1_000_000 * 2 ** np.minimum(going.counts[again], 8)).astype(np.int64)
        visible = np.where(later, at + backoff, at)
        attr = np.where(later, ATTR["visible_us"], 0)
        more: dict[str, Values] = {"count": going.counts[again], "reason": reason, "attr": attr, "value": visible}
        self._rows.add("returned", at, back.who(**more))
        self._rows.add("activated", visible[later], back.at(later).who(attr=ATTR["new_sequence"]))
        going.lives.since[again] = visible

    def _defer(self, going: "_Going") -> None:
        """Put aside, and mostly asked for again by its sequence some minutes later."""
        lives = going.lives
        self._rows.add("deferred", going.ends, lives.who(count=going.counts))
        asked = self._chance.random(len(lives)) < 0.9
        going = going.at(asked)
        lives = going.lives
        at = going.ends + self._drawn(np.full(len(lives), np.log(10 * MINUTE_US)), 0.8)
        going.counts = going.counts + 1
        lock = self._habits.lock_us[lives.chan]
        self._rows.add("delivered", at, lives.who(**going.told(), attr=ATTR["until_us"], value=at + lock))
        self._complete(lives, at + np.minimum(self._drawn(self._habits.work[lives.chan], 0.5), lock - 1), going)

    def _complete(self, lives: Lives, at: Ints, going: "_Going") -> None:
        done = filled("completed", at, lives.who(**going.told(), enqueued=going.enqueued, first=going.first))
        marked = self._habits.idempotent[lives.chan]
        key: dict[str, Values] = {"life": lives.life, "chan": lives.chan, "attr": ATTR["key"], "value": lives.msg}
        keep = np.stack((marked, np.ones(len(lives), np.bool_)), axis=1)
        self._rows.add_together(filled("processed", at, key), done, keep=keep)

    def _give_up(self, going: "_Going", reason: Values, signed: float) -> Lives:
        count = len(going.lives)
        usual = self._habits.signature[going.lives.chan]
        rare = np.minimum(self._chance.zipf(1.8, count), len(SIGNATURES) - 1)
        signature = np.where(self._chance.random(count) < 0.7, usual, rare)
        signature = np.where(self._chance.random(count) < signed, signature, 0)
        told = {**going.told(), "first": going.first, "signature": signature}
        return self.dead_letter(going.lives, going.ends, reason, told, going.enqueued)

    def _reasons(self, count: int) -> Ints:
        reasons = np.array([REASON[name] for name in ("HandlerRejected", "PayloadMismatch", "NotFound")])
        drawn: Ints = reasons[np.minimum(self._chance.geometric(0.6, count), 3) - 1]
        return drawn

    def dead_letter(
        self, lives: Lives, at: Ints, reason: Values, told: dict[str, Values], enqueued: Ints | None = None
    ) -> Lives:
        """Gone from here, and in the same instant a letter in the dead letters. `enqueued` where it is not `since`."""
        dead = self._dead[lives.chan]
        letters = Lives(self._numbers.lives(len(lives)), dead, lives.msg, lives.size, at)
        since = lives.since if enqueued is None else enqueued
        gone = filled("dead_lettered", at, lives.who(enqueued=since, reason=reason, **told))
        self._rows.add_together(copy_of(lives, letters, at), gone)
        return letters

    def after_death(self, letters: Lives) -> None:
        """Some dead letters are read, some go back to where they failed, some are thrown away; most are left."""
        chance = self._chance.random(len(letters))
        at = letters.since + self._drawn(np.full(len(letters), np.log(40 * MINUTE_US)), 1.2)
        self._read(letters.at(chance < 0.2), at[chance < 0.2])
        thrown = (chance >= 0.2) & (chance < 0.25)
        self._rows.add("purged", at[thrown], letters.at(thrown).who(reason=REASON["by hand"]))
        moved = (chance >= 0.25) & (chance < 0.4) & ~self._habits.by_session[self._owners(letters.chan)]
        self._redrive(letters.at(moved), at[moved])

    def _owners(self, dead: Ints) -> Ints:
        owner = np.zeros(len(self._dead), np.int64)
        owner[self._dead] = np.arange(len(self._dead))
        return owner[dead]

    def _read(self, letters: Lives, at: Ints) -> None:
        lock = self._habits.lock_us[letters.chan]
        consumers = self._consumers(letters.chan)
        more: dict[str, Values] = {"count": 1, "consumer": consumers}
        self._rows.add("delivered", at, letters.who(attr=ATTR["until_us"], value=at + lock, **more))
        end = at + np.minimum(self._drawn(self._habits.work[letters.chan], 1.0), lock - 1)
        self._rows.add("completed", end, letters.who(enqueued=letters.since, first=at, **more))

    def _redrive(self, letters: Lives, at: Ints) -> None:
        home = self._owners(letters.chan)
        again = Lives(self._numbers.lives(len(letters)), home, letters.msg, letters.size, at)
        moved = letters.who(count=0, enqueued=letters.since, attr=ATTR["moved"], other_chan=home)
        self._rows.add_together(copy_of(letters, again, at), filled("moved", at, moved))
        self.live(again)  # What fails again stays a dead letter: nobody looks twice.

    def _consumers(self, chan: Ints) -> Ints:
        habits = self._habits
        return habits.consumer[chan] + (self._chance.random(len(chan)) * habits.consumers[chan]).astype(np.int64)


class _Going:
    """Messages in somebody's hands, for one delivery."""

    def __init__(self, lives: Lives, enqueued: Ints, counts: Ints, first: Ints) -> None:
        self.lives = lives
        self.enqueued = enqueued
        self.counts = counts
        self.first = first
        self.consumers = self.ends = np.zeros(len(lives), np.int64)
        self.overdue = np.zeros(len(lives), np.bool_)

    def told(self) -> dict[str, Values]:
        return {"count": self.counts, "consumer": self.consumers}

    def keep(self, places: Flags) -> None:
        self.lives, self.enqueued = self.lives.at(places), self.enqueued[places]
        self.counts, self.first, self.consumers = self.counts[places], self.first[places], self.consumers[places]

    def at(self, places: Flags) -> "_Going":
        part = _Going(self.lives.at(places), self.enqueued[places], self.counts[places], self.first[places])
        part.consumers, part.ends, part.overdue = self.consumers[places], self.ends[places], self.overdue[places]
        return part


class Numbers:
    """Names for lives that only this generator knows; never 0."""

    def __init__(self) -> None:
        self._next = 1

    def lives(self, count: int) -> Ints:
        first, self._next = self._next, self._next + count
        return np.arange(first, self._next)


def copy_of(source: Lives, copies: Lives, at: Ints) -> Row:
    """A message whose data is that of another one that is stored."""
    told = copies.who(born=copies.life, attr=ATTR["source"], other=source.life, other_chan=source.chan)
    return filled("copied", at, told)


def joined(parts: list[Lives]) -> Lives:
    columns = [[getattr(part, name) for part in parts] for name in ("life", "chan", "msg", "size", "since")]
    return Lives(*[np.concatenate(column) for column in columns])
