"""Rules decide what becomes of dead letters: the first that applies, in order of death; all four are counted."""

import json
from typing import Any

import pytest

from tests.unit.bus.graveyard import Desk, dead_letter, kill
from tests.unit.bus.probes import HandClock
from tests.unit.bus.rigs import Rig
from unibus.bus.dead_letters.rules import DEFAULT_RULES, RecoveryAction, RecoveryRule
from unibus.errors import ConfigInvalid, UsageError

RETRY, REDIRECT, DISCARD, REVIEW = RecoveryAction


@pytest.fixture
def desk(rig: Rig) -> Desk:
    return Desk(rig)


def counts(result: Any) -> tuple[int, int, int, int]:
    return result.retried, result.redirected, result.discarded, result.manual_review


def test_the_default_rules_are_the_table(rig: Rig, desk: Desk) -> None:
    # S3-037, X-37
    rig.create_queue("tired", max_delivery_count=3)
    dead_letter(rig, "q", 1, "target_unavailable: nobody")
    dead_letter(rig, "q", 2, "network: max_retries_exceeded")
    dead_letter(rig, "q", 3, "Validation failed")
    odd = dead_letter(rig, "q", 4, "odd")
    tired = rig.send("tired", 5).id
    for _ in range(2):
        rig.do(rig.one("tired").abandon)
    kill(rig, "tired", "network")
    result = desk.process_dead_letters()
    assert counts(result) == (2, 0, 1, 2)
    assert desk.ids() == [odd, tired]
    assert sorted(message.body for message in rig.take("q", 9)) == [1, 2]


def test_an_unavailable_target_is_left_for_review(rig: Rig, desk: Desk) -> None:
    dead_letter(rig, "q", 1, "target_unavailable")
    asked: list[str] = []

    def is_available(name: str) -> bool:
        asked.append(name)
        return False

    assert counts(desk.process_dead_letters(is_available=is_available)) == (0, 0, 0, 1)
    assert asked == ["q"]
    assert counts(desk.process_dead_letters()) == (1, 0, 0, 0)
    assert desk.is_agent_available("q")
    assert not desk.is_agent_available("unknown")


def test_the_first_rule_that_applies_decides(rig: Rig, desk: Desk) -> None:
    rig.create_queue("review")
    for body in range(4):
        dead_letter(rig, "q", body, "network" if body else "network, odd")
    rules = [
        RecoveryRule(REVIEW, reason="odd"),
        RecoveryRule(REDIRECT, reason="network", target="review"),
        RecoveryRule(DISCARD),
    ]
    assert desk.try_rules(rules) == [1, 3, 0, 0]
    assert counts(desk.process_dead_letters(rules=rules, dry_run=True)) == (0, 3, 0, 1)
    assert counts(desk.process_dead_letters(rules=rules)) == (0, 3, 0, 1)
    assert rig.counts("review")[0] == 3
    assert desk.try_rules([]) == [1]


CONDITIONS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"reason": "BROKEN"}, True),
    ({"reason": "other"}, False),
    ({"signature": "valueerror"}, True),
    ({"signature": "OSError"}, False),
    ({"description": "bent"}, True),
    ({"description": "straight"}, False),
    ({"queue": "ord*"}, True),
    ({"queue": "billing"}, False),
    ({"older_than": 50}, True),
    ({"older_than": 150}, False),
    ({"attempts_below": 2}, True),
    ({"attempts_below": 1}, False),
    ({"target_available": True}, True),
    ({"target_available": False}, False),
    ({"reason": "broken", "queue": "billing"}, False),
]


def test_every_condition_has_to_be_true(timed_rig: Rig, hand_clock: HandClock) -> None:
    timed_rig.send("orders", 1)
    message = timed_rig.one("orders")
    timed_rig.do(lambda: message.dead_letter("Broken", "bent", {"DeadLetterErrorType": "ValueError"}))
    hand_clock.advance(100)
    desk = Desk(timed_rig)
    for given, applies in CONDITIONS:
        rule = RecoveryRule(DISCARD, **given)
        assert desk.try_rules([rule]) == ([1, 0] if applies else [0, 1]), given


def test_a_letter_that_keeps_dying_does_not_circle(rig: Rig, desk: Desk) -> None:
    message_id = dead_letter(rig, "q", 1, "network")
    for _ in range(3):
        assert counts(desk.process_dead_letters()) == (1, 0, 0, 0)
        kill(rig, "q", "network")
    assert counts(desk.process_dead_letters()) == (0, 0, 0, 1)
    assert desk.ids() == [message_id]


def test_the_first_to_die_are_decided_about_first(timed_rig: Rig, hand_clock: HandClock) -> None:
    desk, ids = Desk(timed_rig), []
    for number in range(5):
        ids.append(dead_letter(timed_rig, "ba"[number % 2], number))
        hand_clock.advance(1)
    assert counts(desk.process_dead_letters(1, [RecoveryRule(DISCARD)], limit=2)) == (0, 0, 2, 0)
    assert desk.ids() == ids[2:]
    assert counts(desk.process_dead_letters(rules=[{"action": "discard"}], filter={"queue": "a"})) == (0, 0, 1, 0)
    assert desk.ids() == [ids[2], ids[4]]


# As data


def test_rules_go_to_json_and_come_back() -> None:
    rules = (
        *DEFAULT_RULES,
        RecoveryRule(REDIRECT, signature="é", description="d", queue="a*", older_than=1.5, target="t"),
        RecoveryRule(REVIEW),
    )
    text = RecoveryRule.dump(rules)
    assert RecoveryRule.load(text) == RecoveryRule.load(text.encode()) == rules
    assert json.loads(text)[1] == {"action": "retry", "reason": "network", "attempts_below": 3}
    assert [rule.as_dict() for rule in rules] == json.loads(text)
    assert RecoveryRule.load(RecoveryRule.dump([])) == ()
    assert RecoveryRule.defaults() == DEFAULT_RULES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "[{}]",
        '[{"action": "explode"}]',
        '[{"action": "retry", "raeson": "x"}]',
        '[{"action": "retry", "older_than": "2h"}]',
        '[{"action": "retry", "older_than": -1}]',
        '[{"action": "retry", "attempts_below": -1}]',
        '[{"action": "redirect"}]',
        '[{"action": "discard", "target": "q"}]',
    ],
)
def test_what_is_no_list_of_rules_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        RecoveryRule.load(text)


def test_a_rule_that_cannot_be_is_refused_when_it_is_made() -> None:
    with pytest.raises(ConfigInvalid):
        RecoveryRule("explode")  # type: ignore[arg-type]
    with pytest.raises(ConfigInvalid):
        RecoveryRule(RETRY, older_than=-1)
    with pytest.raises(ConfigInvalid):
        RecoveryRule(REDIRECT)
    assert RecoveryRule("retry").action is RETRY  # type: ignore[arg-type]


def test_rules_may_be_dictionaries_but_no_text(rig: Rig, desk: Desk) -> None:
    dead_letter(rig, "q", 1)
    assert counts(desk.process_dead_letters(rules=[{"action": "discard", "reason": "broken"}])) == (0, 0, 1, 0)
    with pytest.raises(UsageError):
        desk.process_dead_letters(rules="[]")
    with pytest.raises(ConfigInvalid):
        desk.process_dead_letters(rules=[{"reason": "x"}])
    with pytest.raises(UsageError):
        desk.process_dead_letters(limit=0)
