"""The hint names what was probably meant."""

import pytest

from unibus.near_names import hint_for_name, near_name

KNOWN = ("retry_attempts", "concurrency", "group")


@pytest.mark.parametrize(
    ("name", "near"), [("retry_attempt", "retry_attempts"), ("concurency", "concurrency"), ("zebra", "")]
)
def test_the_nearest_name_is_found(name: str, near: str) -> None:
    assert near_name(name, KNOWN) == near


def test_a_word_of_other_systems_comes_before_what_is_spelt_alike() -> None:
    assert near_name("groups", KNOWN, {"groups": "concurrency"}) == "concurrency"


def test_without_a_near_name_the_hint_lists_all_of_them_or_says_what_the_caller_says() -> None:
    assert hint_for_name("zebra", KNOWN) == "known are concurrency, group, retry_attempts"
    assert hint_for_name("zebra", KNOWN, "see Message") == "see Message"
    assert hint_for_name("grop", KNOWN, "see Message") == "did you mean 'group'?"
