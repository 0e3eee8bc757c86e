"""The decision: what is granted, what is refused, and what a refused caller learns."""

import hmac
from collections.abc import Callable, Sequence

import pytest

from tests.unit.core.access.parts import (
    ALL,
    HOST,
    LATER_S,
    LISTENER,
    NOW_NS,
    NOW_S,
    OFF,
    ON_Q1,
    ON_TOPIC,
    ROOT,
    SENDER,
    access,
    rule,
    signed_raw,
    token,
)
from unibus.core.access.connection import Credentials
from unibus.core.access.decide import Access, Claims
from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule, key_of
from unibus.core.access.token import make_token
from unibus.errors import AccessRefused, ConfigInvalid, EntityNotFound, Forbidden, Unauthorised

SECOND_NS = 1_000_000_000
STRANGER = rule("stranger", ALL, 99)
FORGED = AuthorizationRule(ROOT.name, ROOT.rights, STRANGER.primary_key, STRANGER.secondary_key)


def refusal(credential: str | Credentials | None, right: Right = Right.SEND, target: str = "q1") -> AccessRefused:
    with pytest.raises(AccessRefused) as refused:
        access().check(credential, right, target, NOW_NS)
    return refused.value


# Granted


def test_who_was_let_in_and_why() -> None:
    granted = access().check(token("q1"), Right.SEND, "Q1", NOW_NS)
    assert granted == (
        Claims(ROOT.name, (), ("q1",), frozenset(Right), LATER_S, "primary"),
        Right.SEND,
        "Q1",
    )


TABLE = [
    (ROOT, {Right.SEND, Right.LISTEN, Right.MANAGE}),
    (SENDER, {Right.SEND}),
    (LISTENER, {Right.LISTEN}),
]


@pytest.mark.parametrize(("by", "rights"), TABLE, ids=lambda value: getattr(value, "name", None))
@pytest.mark.parametrize("right", Right)
def test_rights(by: AuthorizationRule, rights: set[Right], right: Right) -> None:
    if right in rights:
        assert access().check(token("q1", by), right, "q1", NOW_NS).claims.rule == by.name
    else:
        error = refusal(token("q1", by), right)
        assert isinstance(error, Forbidden)
        assert right.value in error.what


@pytest.mark.parametrize("target", ["q1", "q10", "topic/Subscriptions/x", "no/such/entity", "$Resources/queues", ""])
def test_a_token_for_the_namespace_opens_everything(target: str) -> None:
    assert access().check(token(""), Right.MANAGE, target, NOW_NS).target == target


@pytest.mark.parametrize(
    ("by", "path", "target"),
    [
        (ON_Q1, "q1", "q1"),
        (ON_Q1, "Q1", "q1/$DeadLetterQueue"),
        (ON_Q1, "q1/$DeadLetterQueue", "q1/$deadletterqueue"),
        (ON_TOPIC, "topic", "topic"),
        (ON_TOPIC, "topic", "topic/Subscriptions/x"),
        (ON_TOPIC, "TOPIC/subscriptions/X", "topic/Subscriptions/x/$DeadLetterQueue"),
        (ROOT, "topic", "topic/Subscriptions/x"),
        (ROOT, "orders", "orders/eu"),
    ],
)
def test_a_token_opens_what_belongs_to_its_entity(by: AuthorizationRule, path: str, target: str) -> None:
    assert access().check(token(path, by), Right.LISTEN, target, NOW_NS).claims.rights == by.rights


def test_the_entitys_rule_and_the_namespaces_rule_of_one_name_both_hold() -> None:
    above, below = rule("same", ("Listen",), 11), rule("same", ("Send",), 12)
    both = Access([above], lambda name: [below] if name == "q1" else [])
    assert both.check(token("q1", below), Right.SEND, "q1", NOW_NS).claims.home == ("q1",)
    assert both.check(token("q1", above), Right.LISTEN, "q1", NOW_NS).claims.home == ()
    with pytest.raises(Forbidden):
        both.check(token("q1", above), Right.SEND, "q1", NOW_NS)


def test_either_key_vouches_and_the_claims_tell_which() -> None:
    for key, value in (("primary", ROOT.primary_key), ("secondary", ROOT.secondary_key)):
        assert access().check(token("q1", key=value), Right.SEND, "q1", NOW_NS).claims.key == key


def test_rotation_ends_a_key_after_two_turns() -> None:
    old = token("q1")
    once = ROOT.rotated(b"\x01" * 32)
    twice = once.rotated(b"\x02" * 32)
    assert Access([once]).check(old, Right.SEND, "q1", NOW_NS).claims.key == "secondary"
    with pytest.raises(Unauthorised):
        Access([twice]).check(old, Right.SEND, "q1", NOW_NS)
    with pytest.raises(Unauthorised):
        Access([once]).check(token("q1", key=ROOT.secondary_key), Right.SEND, "q1", NOW_NS)


def test_swapped_keys_change_nothing() -> None:
    swapped = AuthorizationRule(ROOT.name, ROOT.rights, ROOT.secondary_key, ROOT.primary_key)
    assert Access([swapped]).check(token("q1"), Right.SEND, "q1", NOW_NS).claims.key == "secondary"


def test_the_name_of_a_rule_has_no_case() -> None:
    text = token("q1").replace(ROOT.name, ROOT.name.upper())
    assert access().check(text, Right.SEND, "q1", NOW_NS).claims.rule == ROOT.name


# Unauthorised


def test_nothing_is_open_by_itself() -> None:
    with pytest.raises(Unauthorised):
        Access().check(token("q1"), Right.SEND, "q1", NOW_NS)


UNKNOWN = {
    "forged": token("q1", FORGED),
    "a rule that is not there": token("q1", STRANGER),
    "a disabled rule": token("q1", OFF),
    "another entity's rule": token("q10", ON_Q1),
    "an entity's rule for the namespace": token("", ON_Q1),
    "an entity's rule for something above": token("topic/x", ON_TOPIC),
    "the key of another rule": token("q1", key=SENDER.primary_key),
    "the name of another rule": token("q1", SENDER).replace("=sender", f"={ROOT.name}"),
    "no name that a rule could have": token("q1").replace(ROOT.name, "%20"),
    "the key of nobody": token("q1", key=key_of(bytes(32))),
    "the key and name of nobody": token(
        "q1", AuthorizationRule("nobody", ROOT.rights, key_of(bytes(32)), ROOT.primary_key)
    ),
    "an altered sr": token("q1").replace("q1", "q2"),
    "an sr written otherwise": token("q1").replace("%3A%2F%2F", "%3a%2f%2f"),
    "an altered se": token("q1").replace(str(LATER_S), str(LATER_S + 1)),
    "an se with a zero before": token("q1").replace(str(LATER_S), f"0{LATER_S}"),
    "an expired one that is forged": token("q1", FORGED, NOW_S - 1),
    "a signature over the decoded sr": make_token(f"sb://{HOST}/q1", ROOT.name, ROOT.primary_key, LATER_S).replace(
        "sb%3A%2F%2F", "sb://"
    ),
}


@pytest.mark.parametrize("text", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_all_who_are_unknown_hear_the_same(text: str) -> None:
    error = refusal(text)
    assert type(error) is Unauthorised
    assert (error.what, error.hint) == (
        "the token is not valid here",
        "check the rule's name, its key, and what the token is for",
    )
    assert error.__context__ is None


@pytest.mark.parametrize("nothing", ["", None])
def test_no_token(nothing: str | None) -> None:
    assert type(refusal(nothing)) is Unauthorised


@pytest.mark.parametrize(
    ("left_s", "skew_s", "holds"),
    [(1, 0, True), (0, 0, False), (-1, 0, False), (-4, 5, True), (-5, 5, False), (-3600, 5, False)],
)
def test_expiry_and_skew(left_s: int, skew_s: int, holds: bool) -> None:
    text = token("q1", expires_s=NOW_S + left_s)
    checked = access(skew_s=skew_s)
    if holds:
        assert checked.check(text, Right.SEND, "q1", NOW_NS)
    else:
        with pytest.raises(Unauthorised, match="expired"):
            checked.check(text, Right.SEND, "q1", NOW_NS)


def test_a_token_ends_at_its_second_and_not_before() -> None:
    text = token("q1")
    end_ns = LATER_S * SECOND_NS
    assert access().check(text, Right.SEND, "q1", end_ns - 1)
    with pytest.raises(Unauthorised):
        access().check(text, Right.SEND, "q1", end_ns)


def test_a_future_that_is_too_far() -> None:
    ages = token("q1", expires_s=NOW_S + 10 * 365 * 24 * 3600)
    assert access().check(ages, Right.SEND, "q1", NOW_NS)
    strict = access(lifetime_max_s=24 * 3600, skew_s=5)
    with pytest.raises(Unauthorised, match="longer"):
        strict.check(ages, Right.SEND, "q1", NOW_NS)
    assert strict.check(token("q1", expires_s=NOW_S + 24 * 3600 + 5), Right.SEND, "q1", NOW_NS)
    with pytest.raises(Unauthorised):
        strict.check(token("q1", expires_s=NOW_S + 24 * 3600 + 6), Right.SEND, "q1", NOW_NS)
    beyond = signed_raw(f"sb%3A%2F%2F{HOST}%2Fq1", "999999999999", ROOT.name, ROOT.primary_key)
    assert type(refusal(beyond)) is Unauthorised


@pytest.mark.parametrize("options", [{"skew_s": -1}, {"lifetime_max_s": 0}, {"lifetime_max_s": -5}])
def test_times_that_make_no_sense(options: dict[str, int]) -> None:
    with pytest.raises(ConfigInvalid):
        access(**options)


def test_hosts_are_looked_at_where_they_are_given() -> None:
    other = make_token("sb://other.example:5671/q1", ROOT.name, ROOT.primary_key, LATER_S)
    assert access().check(other, Right.SEND, "q1", NOW_NS)
    assert access(hosts=["OTHER.example"]).check(other, Right.SEND, "q1", NOW_NS)
    with pytest.raises(Unauthorised, match="not valid here"):
        access(hosts=[HOST]).check(other, Right.SEND, "q1", NOW_NS)
    with pytest.raises(Unauthorised, match="not valid here"):
        access(hosts=[]).check(other, Right.SEND, "q1", NOW_NS)


def test_a_lone_name_is_never_taken_for_a_host() -> None:
    lone = signed_raw("q1", str(LATER_S), ROOT.name, ROOT.primary_key)
    bare = signed_raw(HOST, str(LATER_S), ROOT.name, ROOT.primary_key)
    for options in ({}, {"hosts": [HOST]}):
        with pytest.raises(Unauthorised):
            access(**options).check(lone, Right.SEND, "q2", NOW_NS)
    assert access(hosts=[HOST]).check(bare, Right.SEND, "q2", NOW_NS)
    with pytest.raises(Unauthorised):
        access().check(bare, Right.SEND, "q2", NOW_NS)


# Forbidden


@pytest.mark.parametrize(
    ("by", "path", "target"),
    [
        (ROOT, "q1", "q10"),
        (ROOT, "q10", "q1"),
        (ROOT, "q1", "q2"),
        (ROOT, "q1", ""),
        (ROOT, "q1", "other/q1"),
        (ROOT, "q1/../q2", "q2"),
        (ROOT, "topic/Subscriptions/x", "topic"),
        (ROOT, "topic/Subscriptions/x", "topic/Subscriptions/y"),
        (ROOT, "q1/$DeadLetterQueue", "q1"),
        (ON_Q1, "q1", "q2"),
        (ON_Q1, "orders", "orders/eu"),
        (ON_Q1, "orders", "orders/"),
        (ON_TOPIC, "topic", "topic2/Subscriptions/x"),
    ],
)
def test_what_a_token_is_not_for(by: AuthorizationRule, path: str, target: str) -> None:
    error = refusal(token(path, by), Right.LISTEN, target)
    assert type(error) is Forbidden
    assert error.what == "the token is not for this entity"


def test_whether_an_entity_exists_is_not_told() -> None:
    text = token("q1")
    assert str(refusal(text, target="topic")) == str(refusal(text, target="no-such-entity"))
    assert str(refusal(token("topic", STRANGER))) == str(refusal(token("no-such-entity", STRANGER)))


def test_a_lookup_may_say_that_there_is_no_entity() -> None:
    def rules_of(name: str) -> Sequence[AuthorizationRule]:
        raise EntityNotFound(f"no {name}")

    checked = Access([ROOT], rules_of)
    assert checked.check(token("q1"), Right.SEND, "q1", NOW_NS)
    with pytest.raises(Unauthorised) as refused:
        checked.check(token("q1", ON_Q1), Right.SEND, "q1", NOW_NS)
    assert refused.value.__context__ is None


def test_a_lookup_is_asked_without_case() -> None:
    asked: list[str] = []
    checked = Access([ROOT], lambda name: asked.append(name) or ())
    checked.check(token("Topic/Subscriptions/X"), Right.LISTEN, "topic/Subscriptions/x", NOW_NS)
    checked.check(token(""), Right.LISTEN, "q1", NOW_NS)
    assert asked == ["topic"]


# Name and key


def test_a_name_and_its_key_are_as_good_as_a_token() -> None:
    for key in (ROOT.primary_key, ROOT.secondary_key):
        assert access().check(Credentials(ROOT.name, key), Right.MANAGE, "q1", NOW_NS).claims.expires_s is None
    own = Credentials(ON_Q1.name, ON_Q1.primary_key, "q1")
    assert access().check(own, Right.SEND, "q1/$DeadLetterQueue", NOW_NS).claims.home == ("q1",)
    with pytest.raises(Forbidden):
        access().check(own, Right.MANAGE, "q1", NOW_NS)
    with pytest.raises(Forbidden):
        access().check(own, Right.SEND, "q10", NOW_NS)


@pytest.mark.parametrize(
    "given",
    [
        Credentials(ROOT.name, ""),
        Credentials(ROOT.name, ROOT.primary_key[:-1]),
        Credentials(ROOT.name, ROOT.primary_key + " "),
        Credentials(ROOT.name, ROOT.primary_key.swapcase()),
        Credentials(ROOT.name, SENDER.primary_key),
        Credentials(STRANGER.name, STRANGER.primary_key),
        Credentials("", ROOT.primary_key),
        Credentials("nobody", key_of(bytes(32))),
        Credentials(OFF.name, OFF.primary_key),
        Credentials(ON_Q1.name, ON_Q1.primary_key),
        Credentials(ON_Q1.name, ON_Q1.primary_key, "q10"),
        Credentials(ROOT.name, "k" * 10_000_000),
        Credentials(ROOT.name, "\ud800ü"),
    ],
    ids=range(13),
)
def test_a_wrong_name_or_key_is_refused_like_a_wrong_token(given: Credentials) -> None:
    assert str(refusal(given)) == str(refusal(token("q1", STRANGER)))


# The same work for every caller


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], tuple[int, int]]:
    calls = {"digest": 0, "compare_digest": 0}

    def counted(name: str) -> Callable[..., object]:
        real = getattr(hmac, name)

        def call(*arguments: object) -> object:
            calls[name] += 1
            return real(*arguments)

        return call

    for name in calls:
        monkeypatch.setattr(hmac, name, counted(name))

    def run(action: Callable[[], object]) -> tuple[int, int]:
        calls.update(digest=0, compare_digest=0)
        try:
            action()
        except AccessRefused:
            pass
        return calls["digest"], calls["compare_digest"]

    return run


WORK = {
    **UNKNOWN,
    "granted by the first key": token("q1"),
    "granted by the last key": token("q1", key=ROOT.secondary_key),
    "granted by the entity's rule": token("q1", ON_Q1),
    "for an entity that is not there": token("none"),
    "for the namespace": token(""),
    "for a subscription": token("topic/Subscriptions/x"),
    "expired": token("q1", expires_s=1),
    "without the right": token("q1", LISTENER),
}


@pytest.mark.parametrize("text", WORK.values(), ids=WORK.keys())
def test_every_token_costs_four_signatures(text: str, count: Callable[[Callable[[], object]], tuple[int, int]]) -> None:
    for checked in (access(), access(hosts=["elsewhere"]), Access()):
        assert count(lambda checked=checked: checked.check(text, Right.SEND, "q1", NOW_NS)) == (4, 4)


@pytest.mark.parametrize("name", [ROOT.name, OFF.name, "stranger", ""])
def test_every_key_is_compared_four_times(name: str, count: Callable[[Callable[[], object]], tuple[int, int]]) -> None:
    given = Credentials(name, ROOT.primary_key)
    assert count(lambda: access().check(given, Right.SEND, "q1", NOW_NS)) == (0, 4)


# Asking again


def test_claims_are_asked_often_and_expire() -> None:
    door = access()
    claims = door.identify(token("topic", ON_TOPIC), NOW_NS)
    assert door.permit(claims, Right.LISTEN, "topic/Subscriptions/x", NOW_NS).claims is claims
    with pytest.raises(Forbidden):
        door.permit(claims, Right.LISTEN, "q1", NOW_NS)
    with pytest.raises(Unauthorised, match="expired"):
        door.permit(claims, Right.LISTEN, "topic", LATER_S * SECOND_NS)


def test_who_has_expired_is_not_identified() -> None:
    with pytest.raises(Unauthorised, match="expired"):
        access().identify(token("q1"), LATER_S * SECOND_NS)


def test_no_secret_is_shown() -> None:
    secrets = [one.primary_key for one in (ROOT, ON_Q1)] + [ROOT.secondary_key, token("q1").split("sig=")[1][:40]]
    shown = [
        repr(access()),
        repr(access().identify(token("q1"), NOW_NS)),
    ]
    shown += [repr(access().check(token("q1", ON_Q1), Right.SEND, "q1", NOW_NS))]
    shown += [repr(refusal(text)) + str(refusal(text)) for text in UNKNOWN.values()]
    assert not [secret for secret in secrets for text in shown if secret in text]
