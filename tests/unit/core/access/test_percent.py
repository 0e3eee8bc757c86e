"""Escaping agrees with the standard library; unescaping is stricter."""

from urllib.parse import quote_plus, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unibus.core.access.percent import escaped, unescaped

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts)
def test_escaping_is_what_the_standard_library_does(text: str) -> None:
    assert escaped(text) == quote_plus(text)
    assert unescaped(escaped(text)) == unquote_plus(escaped(text)) == text
    assert unescaped(escaped(text).lower()) == unquote_plus(escaped(text).lower())


@pytest.mark.parametrize("text", ["%", "%4", "%zz", "a%", "%4g", "%%41", "%+1", "% 1", "%u0041", "ä"])
def test_half_an_escape_is_none(text: str) -> None:
    assert unescaped(text) is None


@pytest.mark.parametrize("text", ["%ff", "%c0%af", "%ed%a0%80", "%e2%82", "%f4%90%80%80"])
def test_bytes_that_are_no_text_are_none(text: str) -> None:
    assert unescaped(text) is None


def test_a_plus_is_a_space_where_it_may_be_one() -> None:
    assert unescaped("a+b%2Bc%20d") == "a b+c d"
    assert unescaped("a+b%2Bc", b"+") == "a+b+c"


def test_escapes_are_read_once() -> None:
    assert unescaped("a%252Fb") == "a%2Fb"
