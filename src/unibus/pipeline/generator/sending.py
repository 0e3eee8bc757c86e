"""Generates sends: workflows whose messages go from channel to channel and from domain to domain.

A message is identified by `flow * HOPS_MAX + hop`: its id, its correlation id and its trace id are computed from that
number, so a trace leads through several domains although each domain is written separately.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from unibus.core.lifecycle.state.entity import TOPIC
from unibus.pipeline.generator.lifecycles import GeneratedMessages, Lifecycles, Numbers, joined
from unibus.pipeline.generator.rows import ATTR, GeneratedRows, Row, Values, filled
from unibus.pipeline.generator.world import (
    MINUTE_US,
    REASONS,
    SECOND_US,
    SUBSCRIPTIONS_MAX,
    Domain,
    Flags,
    Floats,
    Ints,
    WorldPlan,
)

HOPS_MAX: Final = 8
SESSION_GAP_US: Final = 10 * SECOND_US
SESSION_MESSAGES_MAX: Final = 6
LISTENS: Final = 0.8
"""The share of the messages of a topic that a subscription matches."""


@dataclass(eq=False)
class Arrivals:
    """The sends of one slice of time, in all domains."""

    msg: Ints
    domain: Ints
    at: Ints


def arrivals(plan: WorldPlan, chance: np.random.Generator, flows_from: int, count: int, starts: Ints) -> Arrivals:
    """`count` messages of new flows. `starts` are sorted times, at least one for each flow."""
    hops = np.minimum(chance.geometric(0.45, count), HOPS_MAX)
    flow = np.repeat(np.arange(count), hops)[:count]
    hop = (np.arange(len(flow)) - np.concatenate(([0], np.cumsum(hops)))[flow]).astype(np.int64)
    # Each hop is some time after the one before, and sometimes in the next domain.
    gaps = np.where(hop == 0, 0, np.exp(np.log(400_000) + 1.3 * chance.standard_normal(len(flow)))).astype(np.int64)
    moves = np.where(hop == 0, chance.integers(0, plan.domains, len(flow)), chance.random(len(flow)) < 0.35)
    used = int(flow[-1]) + 1
    first = np.searchsorted(flow, np.arange(used))
    waited = np.cumsum(gaps)
    moved = np.cumsum(moves)
    # Flows start all over the slice; each takes the start of its first message.
    at = starts[first][flow] + waited - waited[first][flow]
    before = np.concatenate(([0], moved))[first][flow]
    late = at >= plan.end_us
    at[late] = (starts[first][flow] + (plan.end_us - starts[first][flow]) * chance.random(len(at)))[late]
    return Arrivals((flow + flows_from) * HOPS_MAX + hop, (moved - before) % plan.domains, at)


class Sending:
    """Generates the sends of one domain in one slice of time, and all events that follow from them."""

    def __init__(self, domain: Domain, plan: WorldPlan, rows: GeneratedRows, numbers: Numbers) -> None:
        self._domain = domain
        self._plan = plan
        self._rows = rows
        self._numbers = numbers
        self._is_topic = np.array([kind == TOPIC for kind in domain.kinds])
        self._listeners = np.full((len(domain.names), SUBSCRIPTIONS_MAX), -1)
        for topic, listeners in domain.listeners.items():
            self._listeners[topic, : len(listeners)] = listeners
        self._up_to = np.cumsum(domain.share)
        self._sessions = 0

    def send(self, msg: Ints, at: Ints, chance: np.random.Generator) -> None:
        habits = self._domain.habits
        chan = np.minimum(np.searchsorted(self._up_to, chance.random(len(msg))), len(self._up_to) - 1)
        size = np.exp(habits.size[chan] + 0.5 * chance.standard_normal(len(msg))).astype(np.int64) + 60
        sent = GeneratedMessages(self._numbers.uids(len(msg)), chan, msg, size, at)
        later = chance.random(len(msg)) < habits.schedules[chan]
        in_session, to_topic = habits.by_session[chan], self._is_topic[chan]
        plain = ~in_session & ~to_topic
        lifecycles = Lifecycles(self._domain, self._rows, chance, self._numbers)
        stored = [
            self._send_now(sent.at(plain & ~later), chance),
            self._send_later(sent.at(plain & later), chance),
            self._publish(sent.at(to_topic & ~later), None, chance),
            self._publish(*self._publish_later(sent.at(to_topic & later), chance), chance),
        ]
        self._send_in_sessions(sent.at(in_session), chance)
        lifecycles.process_dead_letters(lifecycles.generate(joined(stored), self._plan.unread))

    def _send_now(self, sent: GeneratedMessages, chance: np.random.Generator) -> GeneratedMessages:
        self._rows.add("sent", sent.since, sent.who(born=sent.uid))
        again = chance.random(len(sent)) < self._domain.habits.repeats[sent.chan]
        twice = sent.at(again)
        columns = twice.who(uid=0, attr=ATTR["dedup_key"], value=twice.msg)
        self._rows.add("duplicate", twice.since + chance.integers(1, 20 * SECOND_US, len(twice)), columns)
        return sent

    def _delays(self, count: int, chance: np.random.Generator) -> Ints:
        delays: Floats = np.exp(np.log(5 * MINUTE_US) + chance.standard_normal(count))
        return delays.astype(np.int64) + 1

    def _schedule(self, sent: GeneratedMessages, visible: Ints) -> None:
        columns = sent.who(born=sent.uid, attr=ATTR["visible_us"], value=visible)
        self._rows.add("scheduled", sent.since, columns)

    def _send_later(self, sent: GeneratedMessages, chance: np.random.Generator) -> GeneratedMessages:
        """Scheduled: at its time it gets a new sequence, unless it was cancelled before."""
        visible = sent.since + self._delays(len(sent), chance)
        self._schedule(sent, visible)
        cancelled = chance.random(len(sent)) < 0.05
        gone = sent.at(cancelled)
        self._rows.add("cancelled", (gone.since + visible[cancelled]) // 2, gone.who())
        came = sent.at(~cancelled)
        renamed = GeneratedMessages(self._numbers.uids(len(came)), came.chan, came.msg, came.size, visible[~cancelled])
        self._rows.add("activated", renamed.since, came.who(born=renamed.uid, attr=ATTR["new_sequence"]))
        return renamed

    def _publish_later(
        self, sent: GeneratedMessages, chance: np.random.Generator
    ) -> tuple[GeneratedMessages, GeneratedMessages]:
        visible = sent.since + self._delays(len(sent), chance)
        self._schedule(sent, visible)
        return GeneratedMessages(self._numbers.uids(len(sent)), sent.chan, sent.msg, sent.size, visible), sent

    def _publish(
        self, sent: GeneratedMessages, kept: GeneratedMessages | None, chance: np.random.Generator
    ) -> GeneratedMessages:
        """One batch: a `published`, a copy for each matching subscription, and the end of a scheduled message."""
        targets = self._listeners[sent.chan]
        wanted: Flags = (targets >= 0) & (chance.random(targets.shape) < LISTENS)
        columns = sent.who(born=sent.uid, attr=ATTR["copies"], value=wanted.sum(axis=1))
        parts: list[Row] = [filled("published", sent.since, columns)]
        back: Ints = np.cumsum(wanted, axis=1, dtype=np.int64)
        copies = []
        for column in range(SUBSCRIPTIONS_MAX):
            copy = GeneratedMessages(self._numbers.uids(len(sent)), targets[:, column], sent.msg, sent.size, sent.since)
            source: dict[str, Values] = {"attr": ATTR["source_seq"], "value": back[:, column]}
            if kept is not None:
                source = {"attr": ATTR["source"], "other": kept.uid, "other_chan": kept.chan}
            parts.append(filled("copied", sent.since, copy.who(born=copy.uid, **source)))
            copies.append(copy.at(wanted[:, column]))
        there = np.ones((len(sent), 1), np.bool_)
        if kept is not None:
            parts.append(filled("routed", sent.since, kept.who()))
        keep = np.concatenate([there, wanted] + ([there] if kept is not None else []), axis=1)
        self._rows.add_together(*parts, keep=keep)
        return joined(copies)

    def _send_in_sessions(self, sent: GeneratedMessages, chance: np.random.Generator) -> None:
        """Messages that were sent shortly after each other are one session: one consumer receives them in order."""
        if not len(sent):
            return
        sent = sent.at(np.lexsort((sent.since, sent.chan)))
        session, place = self._grouped(sent)
        number = self._sessions + 1 + session
        self._sessions += int(session[-1]) + 1
        who = {"session": number}
        self._rows.add("sent", sent.since, sent.who(born=sent.uid, **who))
        habits = self._domain.habits
        first, last = np.flatnonzero(place == 0), np.append(np.flatnonzero(place == 0)[1:], len(sent)) - 1
        chan = sent.chan[first]
        taken = sent.since[last] + np.exp(habits.wait[chan] + chance.standard_normal(len(first))).astype(np.int64) + 1
        lock = habits.lock_us[chan]
        consumer = habits.consumer[chan] + chance.integers(0, habits.consumers[chan])
        # A session is completed before its lock ends: each message has its share of the time.
        share = (lock // (2 * SESSION_MESSAGES_MAX + 2))[session]
        drawn = np.exp(habits.work[sent.chan] + 0.4 * chance.standard_normal(len(sent))).astype(np.int64) + 1
        work = np.minimum(drawn, share)
        begun = taken[session] + 1 + _sum_before(work + 1, first, session)
        about: dict[str, Values] = {"chan": chan, "session": number[first]}
        until: dict[str, Values] = {"attr": ATTR["until_us"], "value": taken + lock}
        self._rows.add("session_taken", taken, {**about, "consumer": consumer, **until})
        columns: dict[str, Values] = {"count": 1, "consumer": consumer[session], **who}
        locked: dict[str, Values] = {"attr": ATTR["until_us"], "value": (taken + lock)[session]}
        self._rows.add("delivered", begun, sent.who(**columns, **locked))
        self._rows.add("completed", begun + work, sent.who(**columns, enqueued=sent.since, first=begun))
        end = (begun + work)[last]
        stated = chance.random(len(first)) < 0.3
        self._rows.add("session_stated", end[stated], {"chan": chan[stated], "session": number[first][stated]})
        self._rows.add("session_left", end + 1, {**about, "reason": REASONS.index("closed")})

    @staticmethod
    def _grouped(sent: GeneratedMessages) -> tuple[Ints, Ints]:
        """The number of the session of each message, from 0, and its index in the session."""
        apart = np.ones(len(sent), np.bool_)
        apart[1:] = (np.diff(sent.chan) != 0) | (np.diff(sent.since) > SESSION_GAP_US)
        run = np.cumsum(apart) - 1
        place = np.arange(len(sent)) - np.flatnonzero(apart)[run]
        begins = place % SESSION_MESSAGES_MAX == 0
        session = np.cumsum(begins) - 1
        return session, place % SESSION_MESSAGES_MAX


def _sum_before(values: Ints, first: Ints, group: Ints) -> Ints:
    """The sum of the values before each one in its group."""
    total = np.concatenate(([0], np.cumsum(values)[:-1]))
    return total - total[first][group]
