"""LIKE takes steps in proportion to the text, whatever the pattern."""

import itertools
import re

import pytest

from unibus.core.filters.like import Likeness


def plainly(pattern: str, text: str) -> bool:
    expression = "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
    return re.fullmatch(expression, text, re.DOTALL) is not None


def test_all_short_patterns_on_all_short_texts() -> None:
    texts = ["".join(letters) for size in range(5) for letters in itertools.product("ab", repeat=size)]
    for size in range(5):
        for letters in itertools.product("ab%_", repeat=size):
            likeness = Likeness("".join(letters))
            for text in texts:
                assert likeness.matches(text) == plainly("".join(letters), text), (letters, text)


HOSTILE = [
    ("%a" * 200 + "%b", "a" * 20_000),
    ("%_a" * 150 + "%b%", "a" * 20_000),
    ("%" + "a" * 500 + "b%", "a" * 20_000),
    ("%" + "a_" * 250 + "b%", "a" * 20_000),
    ("_" * 500 + "%" + "_" * 500, "a" * 20_000),
    ("%a_b%" * 100, "ab" * 10_000),
    ("a%" * 300, "a" * 20_000),
]


@pytest.mark.parametrize(("pattern", "text"), HOSTILE)
def test_no_pattern_takes_more_steps_than_characters(pattern: str, text: str) -> None:
    steps = abs(Likeness(pattern).walk(text))
    assert 0 < steps <= len(text) + 3 * len(pattern) + 8


def test_a_line_break_is_a_character() -> None:
    assert Likeness("a_b%").matches("a\nb\nc")
    assert Likeness("%").matches("\n")


def test_an_escaped_sign_stands_for_itself() -> None:
    assert Likeness("50!%", "!").matches("50%")
    assert not Likeness("50!%", "!").matches("500")
    assert Likeness("a!!_", "!").matches("a!x")
    assert Likeness("a!bc", "!").matches("abc")
    with pytest.raises(ValueError, match="escape"):
        Likeness("abc!", "!")
