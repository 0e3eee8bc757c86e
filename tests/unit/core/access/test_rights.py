"""Three rights, and Manage is all of them."""

import pytest

from unibus.core.access.rights import Right, checked_rights, grants, words
from unibus.errors import ConfigInvalid


@pytest.mark.parametrize("given", [["Send"], ["Listen"], ["Send", "Listen"], ["Manage", "Send", "Listen"]])
def test_rights_are_words_or_themselves(given: list[str]) -> None:
    rights = checked_rights(given)
    assert words(rights) == sorted(given)
    assert checked_rights(rights) == checked_rights(words(rights)) == rights


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["Send", "Send"],
        ["send"],
        ["Manage"],
        ["Manage", "Send"],
        ["Manage", "Listen"],
        "Send",
        [1],
        [None],
        ["All"],
    ],
    ids=str,
)
def test_what_azure_refuses_is_refused(given: list[object]) -> None:
    with pytest.raises(ConfigInvalid):
        checked_rights(given)


def test_manage_implies_the_others_and_they_imply_nothing() -> None:
    table = {right: {other for other in Right if grants(frozenset({right}), other)} for right in Right}
    assert table == {Right.SEND: {Right.SEND}, Right.LISTEN: {Right.LISTEN}, Right.MANAGE: set(Right)}
