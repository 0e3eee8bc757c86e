"""The emulator's well-known key: exactly one constant besides the generated keys, and always marked as not secret."""

import pytest

from tests.unit.core.access.parts import HOST, LATER_S, NOW_NS, ROOT, rule
from unibus.core.access.connection import ConnectionString, Credentials
from unibus.core.access.decide import Access
from unibus.core.access.rights import Right
from unibus.core.access.rules import (
    WELL_KNOWN_KEY,
    WELL_KNOWN_NAME,
    AuthorizationRule,
    rules_of_text,
    rules_text,
    well_known_rule,
)
from unibus.core.access.token import make_token
from unibus.errors import ConfigInvalid, Unauthorised

EMULATOR = (
    "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;"
    "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
)


def test_the_connection_string_of_the_emulators_manual_is_granted_everything() -> None:
    access = Access([well_known_rule()])
    token = ConnectionString.parse(EMULATOR).token(LATER_S)
    for right in Right:
        assert access.check(token, right, "any/queue", NOW_NS).claims.is_well_known


def test_a_token_of_a_secret_key_is_not_well_known() -> None:
    access = Access([ROOT])
    token = make_token(f"sb://{HOST}/", ROOT.name, ROOT.primary_key, LATER_S)
    assert not access.identify(token, NOW_NS).is_well_known
    assert not access.identify(Credentials(ROOT.name, ROOT.secondary_key), NOW_NS).is_well_known


def test_the_key_is_marked_whichever_rule_and_place_has_it() -> None:
    mixed = AuthorizationRule("mixed", frozenset({Right.SEND}), ROOT.primary_key, WELL_KNOWN_KEY)
    access = Access([mixed])
    assert access.identify(Credentials("mixed", WELL_KNOWN_KEY), NOW_NS).is_well_known
    assert not access.identify(Credentials("mixed", ROOT.primary_key), NOW_NS).is_well_known


@pytest.mark.parametrize(
    "near", ["sas_key_value", "SAS_KEY_VALUE ", "SAS_KEY_VALUE=", "SAS_KEY_VALU", "SAS_KEY_VALUE\n"]
)
def test_only_exactly_this_text_counts_as_a_key(near: str) -> None:
    with pytest.raises(ConfigInvalid):
        AuthorizationRule("r", frozenset({Right.SEND}), near, ROOT.primary_key)
    with pytest.raises(Unauthorised):
        Access([well_known_rule()]).identify(Credentials(WELL_KNOWN_NAME, near), NOW_NS)


def test_without_the_rule_the_key_opens_nothing() -> None:
    with pytest.raises(Unauthorised):
        Access([rule(WELL_KNOWN_NAME, ("Send",), 9)]).identify(Credentials(WELL_KNOWN_NAME, WELL_KNOWN_KEY), NOW_NS)


def test_it_is_stored_like_any_rule() -> None:
    assert rules_of_text(rules_text([well_known_rule()])) == (well_known_rule(),)
