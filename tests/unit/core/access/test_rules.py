"""Authorization rules are checked data that never reveals its keys."""

import base64
import dataclasses

import pytest

from tests.unit.core.access.parts import ALL, ROOT, rule
from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule, checked_rules, key_of
from unibus.errors import ConfigInvalid

KEY = key_of(bytes(range(32)))
OTHER = key_of(bytes(range(1, 33)))


def made(**fields: object) -> AuthorizationRule:
    given = {"name": "r", "rights": ["Send"], "primary_key": KEY, "secondary_key": OTHER, **fields}
    return AuthorizationRule.from_dict(given)


def test_a_rule_goes_into_a_dict_and_comes_back() -> None:
    data = ROOT.as_dict()
    assert data["rights"] == ["Listen", "Manage", "Send"]
    assert AuthorizationRule.from_dict(data) == ROOT
    off = ROOT.switched(False)
    assert AuthorizationRule.from_dict(off.as_dict()) == off != ROOT
    assert made().enabled


@pytest.mark.parametrize("name", ["r", "RootManageSharedAccessKey", "a.b-c_d", "0", "x" * 256])
def test_names_that_may_be(name: str) -> None:
    assert made(name=name).name == name


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "-a", "a-", ".a", "a_", "a/b", "a%20b", "a+b", "ä", "a\n", "x" * 257, None, 7], ids=repr
)
def test_names_that_may_not(name: object) -> None:
    with pytest.raises(ConfigInvalid):
        made(name=name)


BAD_KEYS = [
    "",
    "short",
    KEY[:-1],
    KEY + "=",
    " " + KEY[1:],
    KEY[:-2] + "\n=",
    base64.b64encode(bytes(31)).decode(),
    base64.b64encode(bytes(33)).decode(),
    base64.urlsafe_b64encode(b"\xff" * 32).decode(),
    "é" * 44,
    None,
    KEY.encode(),
]


@pytest.mark.parametrize("field", ["primary_key", "secondary_key"])
@pytest.mark.parametrize("key", BAD_KEYS, ids=repr)
def test_keys_that_are_none(field: str, key: object) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        made(**{field: key})
    assert not key or str(key) not in str(refused.value)


@pytest.mark.parametrize(
    "change", [{"rights": []}, {"rights": ["Manage"]}, {"rights": 5}, {"enabled": 1}, {"enabled": "yes"}, {"sort": 1}]
)
def test_other_fields_are_looked_at_too(change: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid):
        made(**change)


@pytest.mark.parametrize("field", ["name", "rights", "primary_key", "secondary_key"])
def test_no_field_but_enabled_may_be_missing(field: str) -> None:
    data = ROOT.as_dict()
    del data[field]
    with pytest.raises(ConfigInvalid, match=field):
        AuthorizationRule.from_dict(data)


def test_the_constructor_checks_what_a_dict_would() -> None:
    with pytest.raises(ConfigInvalid):
        AuthorizationRule("r", frozenset({Right.MANAGE}), KEY, OTHER)
    with pytest.raises(ConfigInvalid):
        AuthorizationRule("r", frozenset({Right.SEND}), KEY, "")
    with pytest.raises(ConfigInvalid):
        AuthorizationRule("r", frozenset({Right.SEND}), KEY, OTHER, 1)  # type: ignore[arg-type]


def test_a_rule_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ROOT.enabled = False  # type: ignore[misc]


def test_at_most_twelve_rules_and_no_name_twice() -> None:
    twelve = [rule(f"r{number}", ALL, number) for number in range(12)]
    assert checked_rules(twelve) == tuple(twelve)
    with pytest.raises(ConfigInvalid, match="13"):
        checked_rules([*twelve, rule("one-more", ALL, 99)])
    with pytest.raises(ConfigInvalid, match="the same name"):
        checked_rules([rule("same", ALL, 1), rule("SAME", ALL, 2)])


def test_keys_are_made_of_given_chance() -> None:
    fresh = AuthorizationRule.generated("r", ["Send"], bytes(range(64)))
    assert base64.b64decode(fresh.primary_key) + base64.b64decode(fresh.secondary_key) == bytes(range(64))
    for random in (b"", bytes(32), bytes(65)):
        with pytest.raises(ConfigInvalid):
            AuthorizationRule.generated("r", ["Send"], random)
    with pytest.raises(ConfigInvalid):
        key_of(bytes(31))


def test_rotation_keeps_the_old_key_for_one_turn() -> None:
    turned = ROOT.rotated(b"\x07" * 32)
    assert (turned.primary_key, turned.secondary_key) == (key_of(b"\x07" * 32), ROOT.primary_key)
    assert turned.rotated(b"\x08" * 32).secondary_key == turned.primary_key


@pytest.mark.parametrize("shown", [repr(ROOT), str(ROOT), f"{ROOT}", repr([ROOT])])
def test_keys_are_not_shown(shown: str) -> None:
    assert ROOT.name in shown
    assert ROOT.primary_key not in shown
    assert ROOT.secondary_key not in shown


def test_mixed_up_arguments_do_not_show_a_key() -> None:
    with pytest.raises(ConfigInvalid) as refused:
        AuthorizationRule(KEY, frozenset({Right.SEND}), "r", OTHER)
    assert KEY not in str(refused.value)
