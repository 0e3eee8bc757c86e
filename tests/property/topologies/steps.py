"""What can happen to a store: each step draws from a source of chance of its own, so that others can be left out."""

from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

from tests.property.topologies import worlds
from tests.property.topologies.pair import ANSWER_S, REMEMBERED, Lock, Pair, SessionProof, same
from unibus.core.lifecycle.claiming import Claimed
from unibus.core.lifecycle.commands import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    LEAVE_SESSION,
    RENEW_SESSION,
    SET_SESSION_STATE,
    SETTLEMENTS,
    Cancel,
    Command,
    Drop,
    DropRule,
    Move,
    Remove,
    Renew,
    SendResult,
    SessionCommand,
    SetRule,
    Settle,
)
from unibus.core.lifecycle.envelope import message_of, overrides_of
from unibus.errors import BusError
from unibus.stores.seam.store import ClaimRequest
from unibus.testing.model import SECOND, ModelMessage, ModelQueue, ModelSend

Step: TypeAlias = Callable[[Pair, Random, str], None]
Planned: TypeAlias = tuple[Callable[[], object], Command, tuple[str, ModelSend] | None]
"""A step of the model, the same for the store, and what it sends, if it is a send."""

VERBS: Final = (COMPLETE, ABANDON, ABANDON, DEFER, DEAD_LETTER, DEAD_LETTER)


# Sending


def sendable(pair: Pair, chance: Random) -> str:
    """Now and then one that takes no sends."""
    names = pair.names(lambda queue: "/" not in queue.name)
    other = [*pair.model.queues, "missing"]
    return chance.choice(other if not names or chance.random() < 0.05 else names)


def planned_send(pair: Pair, chance: Random, text: str) -> Planned:
    name = sendable(pair, chance)
    sent = worlds.random_send(chance, text, pair.now_ns)
    pair.log.append(f"  send to {name}: {sent}")
    return lambda: pair.model.send(name, sent), worlds.stored_send(name, sent), (name, sent)


def send(pair: Pair, chance: Random, text: str) -> None:
    wanted, command, _ = planned_send(pair, chance, text)
    found = pair.both(wanted, lambda: pair.run(command))
    if found is not None:
        sequence, [result] = found
        same((result.sequence, result.duplicate), (sequence, sequence == 0), "the result of the send")
        pair.scheduled = [*pair.scheduled, (result.entity, sequence)][-REMEMBERED:]


def together(pair: Pair, planned: list[Planned]) -> None:
    """All or nothing. Which of several errors is reported is up to the store."""
    commands = [command for _, command, _ in planned]
    sends = [sent for _, _, sent in planned if sent is not None]
    try:
        expected = pair.model.together([wanted for wanted, _, _ in planned], sends)
    except BusError as error:
        try:
            pair.run(*commands)
        except BusError:
            return
        raise AssertionError(f"the model raises {error!r} for the batch, the store accepts it") from error
    results = pair.run(*commands)
    sent = [(want, got) for want, got in zip(expected, results, strict=True) if isinstance(got, SendResult)]
    same([got.sequence for _, got in sent], [want for want, _ in sent], "the results of the sends")


def send_batch(pair: Pair, chance: Random, text: str) -> None:
    together(pair, [planned_send(pair, chance, f"{text}.{at}") for at in range(chance.randint(2, 5))])


def transaction(pair: Pair, chance: Random, text: str) -> None:
    planned: list[Planned] = []
    if pair.sessions and chance.random() < 0.2:
        planned.append(session_step(pair, chance, LEAVE_SESSION))
    planned += [planned_settle(pair, chance) for _ in range(chance.randint(0, 3)) if pair.locks]
    together(pair, [*planned, *[planned_send(pair, chance, f"{text}.{at}") for at in range(chance.randint(0, 3))]])


def cancel(pair: Pair, chance: Random, text: str) -> None:
    if pair.scheduled:
        name, sequence = chance.choice(pair.scheduled)
        pair.log.append(f"  cancel {name} #{sequence}")
        pair.both(lambda: pair.model.cancel(name, sequence), lambda: pair.run(Cancel(name, sequence)))


# Receiving


def received(pair: Pair, name: str, messages: list[ModelMessage], claims: list[Claimed], lock: bool) -> None:
    same([str(message_of(each).body) for each in claims], [each.text for each in messages], f"received from {name}")
    for message, claimed in zip(messages, claims, strict=True):
        place = (message.count + 1, message.sequence)
        same((claimed.delivery_count, claimed.sequence), place, f"received from {name}")
        if lock:
            pair.model.lock(name, message, claimed.token)
            pair.locks = [*pair.locks, Lock(name, claimed.sequence, claimed.token)][-REMEMBERED:]
        else:
            pair.model.take(name, message)


def receive(pair: Pair, chance: Random, text: str) -> None:
    full = pair.names(
        lambda queue: not queue.rules.is_topic and any(each.state == "active" for each in queue.messages.values())
    )
    names = full or pair.names(lambda queue: not queue.rules.is_topic)
    if names:
        name, count, lock = chance.choice(names), chance.randint(1, 3), chance.random() < 0.8
        pair.log.append(f"  receive {count} from {name}, lock={lock}")
        request = ClaimRequest(name, count, lock)
        found = pair.both(lambda: pair.model.claim(name, count), lambda: pair.store.claim(request).wait(ANSWER_S))
        if found is not None:
            received(pair, name, *found, lock)


def deferred_of(queue: ModelQueue) -> list[int]:
    return [message.sequence for message in queue.messages.values() if message.state == "deferred"]


def receive_deferred(pair: Pair, chance: Random, text: str) -> None:
    names = pair.names(lambda queue: bool(deferred_of(queue)))
    if names:
        name = chance.choice(names)
        proof = next((each.pair for each in pair.sessions[::-1] if each.entity == name), None)
        sequences = deferred_of(pair.model.queues[name])[: chance.randint(1, 2)]
        pair.log.append(f"  receive deferred {sequences} from {name}, session {proof}")
        request = ClaimRequest(name, session=proof, sequences=tuple(sequences))
        found = pair.both(
            lambda: pair.model.deferred(name, sequences, proof), lambda: pair.store.claim(request).wait(ANSWER_S)
        )
        if found is not None:
            received(pair, name, *found, True)


# Settling


def planned_settle(pair: Pair, chance: Random) -> Planned:
    lock, verb = chance.choice(pair.locks[-3:] if chance.random() < 0.8 else pair.locks), chance.choice(VERBS)
    delay_ns = chance.choice((0, 0, 5)) * SECOND
    headers = {"color": chance.choice(worlds.COLORS)} if chance.random() < 0.3 else None
    pair.log.append(f"  {SETTLEMENTS[verb]} {lock.entity} #{lock.sequence}, delay {delay_ns}, headers {headers}")
    command = Settle(verb, lock.entity, lock.sequence, lock.token)
    command.delay_ns, command.overlay = delay_ns, overrides_of(dict(headers or {}))
    command.reason = "broken"
    where, model = (lock.entity, lock.sequence, lock.token), pair.model
    wanted: dict[int, Callable[[], object]] = {
        COMPLETE: lambda: model.complete(*where),
        ABANDON: lambda: model.abandon(*where, delay_ns, headers),
        DEFER: lambda: model.defer(*where, headers),
        DEAD_LETTER: lambda: model.dead_letter(*where, "broken", headers),
    }
    return wanted[verb], command, None


def settle(pair: Pair, chance: Random, text: str) -> None:
    if pair.locks:
        wanted, command, _ = planned_settle(pair, chance)
        pair.both(wanted, lambda: pair.run(command))


def renew(pair: Pair, chance: Random, text: str) -> None:
    locks = [each for each in pair.locks if not any(each.entity == held.entity for held in pair.sessions)]
    if locks:
        lock = chance.choice(locks)
        pair.log.append(f"  renew {lock.entity} #{lock.sequence}")
        found = pair.both(
            lambda: pair.model.renew(lock.entity, lock.sequence, lock.token),
            lambda: pair.run(Renew(lock.entity, lock.sequence, lock.token)),
        )
        same(found and found[1], found and [found[0]], "the end of the lock")


def move_or_remove(pair: Pair, chance: Random, text: str) -> None:
    names = pair.names(lambda queue: bool(queue.messages))
    if names:
        name, target = chance.choice(names), chance.choice([*pair.model.queues, ""])
        sequence = chance.choice(sorted(pair.model.queues[name].messages))
        pair.log.append(f"  move {name} #{sequence} to {target!r}")
        if target:
            pair.both(lambda: pair.model.move(name, sequence, target), lambda: pair.run(Move(name, sequence, target)))
        else:
            pair.both(lambda: pair.model.remove(name, sequence), lambda: pair.run(Remove(name, sequence, "by hand")))


# Sessions


def accept(pair: Pair, chance: Random, text: str) -> None:
    names = pair.names(lambda queue: queue.rules.by_session and not queue.rules.is_dead)
    if not names:
        return
    name, session = chance.choice(names), chance.choice((None, "x", "y"))
    pair.log.append(f"  accept {session} of {name}")
    found = pair.both(
        lambda: pair.model.may_accept(name, session), lambda: pair.store.accept(name, session, "").wait(ANSWER_S)
    )
    lock = None if found is None else found[1]
    if session is None and found is not None:
        free = pair.model.free_sessions(name)
        same(lock.session_id in free if lock is not None else not free, True, f"{lock} is one of the free {free}")
    if lock is not None:
        same(lock.until_ns, pair.model.accept(name, lock.session_id, lock.token), "the end of the session's lock")
        pair.sessions = [*pair.sessions, SessionProof(name, lock.session_id, lock.token)][-REMEMBERED:]


def receive_in_session(pair: Pair, chance: Random, text: str) -> None:
    if pair.sessions:
        held, count = pair.sessions[-1 - chance.randrange(min(3, len(pair.sessions)))], chance.randint(1, 3)
        pair.log.append(f"  receive {count} from session {held.id} of {held.entity}")
        request = ClaimRequest(held.entity, count, session=held.pair)
        found = pair.both(
            lambda: pair.model.claim(held.entity, count, held.pair), lambda: pair.store.claim(request).wait(ANSWER_S)
        )
        if found is not None:
            received(pair, held.entity, *found, True)


def session_step(pair: Pair, chance: Random, verb: int) -> Planned:
    held = chance.choice(pair.sessions)
    pair.log.append(f"  session command {verb} on {held.id} of {held.entity}")
    command = SessionCommand(verb, held.entity, held.id, held.token)
    command.state = chance.choice((b"one", b"two", None))
    model = pair.model
    wanted: dict[int, Callable[[], object]] = {
        RENEW_SESSION: lambda: model.renew_session(held.entity, held.pair),
        LEAVE_SESSION: lambda: model.leave(held.entity, held.pair),
        SET_SESSION_STATE: lambda: model.set_state(held.entity, held.pair, command.state),
    }
    return wanted[verb], command, None


def change_session(pair: Pair, chance: Random, text: str) -> None:
    if pair.sessions:
        verb = chance.choice((RENEW_SESSION, LEAVE_SESSION, SET_SESSION_STATE))
        wanted, command, _ = session_step(pair, chance, verb)
        found = pair.both(wanted, lambda: pair.run(command))
        if found is not None and verb == RENEW_SESSION:
            same(found[1], [found[0]], "the end of the session's lock")


# Entities and their rules


def delete(pair: Pair, chance: Random, text: str) -> None:
    names = pair.names(lambda queue: not queue.rules.is_dead)
    if names:
        name = chance.choice(names)
        pair.log.append(f"  delete {name}")
        pair.model.drop(name)
        pair.run(Drop(name))


def create(pair: Pair, chance: Random, text: str) -> None:
    missing = [name for name in worlds.NAMES if name not in pair.model.queues]
    names = [name for name in missing if name not in worlds.SUBSCRIPTIONS or worlds.topic_of(name) in pair.model.queues]
    if names:
        name = chance.choice(names)
        rules = worlds.entity(chance, name)
        pair.log.append(f"  create {name}: {rules}")
        pair.make(name, rules)


def delete_and_create(pair: Pair, chance: Random, text: str) -> None:
    delete(pair, chance, text)
    create(pair, chance, text)


def update(pair: Pair, chance: Random, text: str) -> None:
    names = pair.names(lambda queue: not queue.rules.is_dead)
    if names:
        name = chance.choice(names)
        rules = worlds.changed(chance, name, pair.model.queues[name].rules)
        pair.log.append(f"  update {name}: {rules}")
        pair.change(name, rules)


def change_rule(pair: Pair, chance: Random, text: str) -> None:
    names = pair.names(lambda queue: queue.name in worlds.SUBSCRIPTIONS)
    if not names:
        return
    queue = pair.model.queues[chance.choice(names)]
    rule = worlds.rule(chance, chance.choice(worlds.RULE_NAMES))
    kept = {each.name: each for each in queue.rules.rules}
    is_dropped = rule.name in kept and chance.random() < 0.3
    pair.log.append(f"  {'drop' if is_dropped else 'set'} rule of {queue.name}: {rule}")
    command: Command = SetRule(queue.name, worlds.stored_rule(rule), rule.name in kept)
    if is_dropped:
        command = DropRule(queue.name, rule.name)
        del kept[rule.name]
    else:
        kept[rule.name] = rule
    pair.model.set_rules(queue.name, tuple(kept.values()))
    pair.run(command)


# Time and accidents


def time_passes(pair: Pair, chance: Random, text: str) -> None:
    seconds = chance.choice((0, 1, 5, 10, 15, 20, 41, 700))
    pair.log.append(f"  {seconds} s pass")
    pair.tick(seconds)


def restart(pair: Pair, chance: Random, text: str) -> None:
    crash = chance.random() < 0.5
    pair.log.append(f"  {'crash' if crash else 'restart'}")
    pair.restart(crash)


STEPS: Final[tuple[tuple[int, Step], ...]] = (
    (12, send),
    (4, send_batch),
    (4, transaction),
    (1, cancel),
    (7, receive),
    (2, receive_deferred),
    (9, settle),
    (1, renew),
    (2, move_or_remove),
    (2, accept),
    (3, receive_in_session),
    (1, change_session),
    (1, delete),
    (2, create),
    (1, delete_and_create),
    (2, update),
    (2, change_rule),
    (5, time_passes),
    (4, restart),
)


def step(pair: Pair, chance: Random, index: int) -> None:
    [chosen] = chance.choices([each for _, each in STEPS], [weight for weight, _ in STEPS])
    pair.tick()
    pair.log.append(f"{index}: {chosen.__name__}")
    chosen(pair, chance, f"m{index}")
    pair.compare()
