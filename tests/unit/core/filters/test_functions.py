"""The table of functions: a row is all that parsing, printing, evaluating and explaining need to know."""

from pathlib import Path
from typing import cast

import pytest

from unibus.core.envelope.message import Message
from unibus.core.filters.expressions import Draw
from unibus.core.filters.filters import SqlFilter
from unibus.core.filters.functions import FUNCTIONS, FilterFunction
from unibus.core.filters.parser import parse
from unibus.core.filters.printing import printed
from unibus.errors import EvaluationError, FilterInvalid

GUIDE = Path(__file__).resolve().parents[4] / "docs" / "guide" / "filters.md"


def cut(values: list[object], draw: Draw | None) -> object:
    return cast(str, values[0])[: cast(int, values[1])]


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FUNCTIONS, "cut", FilterFunction("cut", (("a text", str), ("a length", int)), cut))


def message(**headers: object) -> Message:
    return Message.new("orders").with_fields({"headers": headers})


def test_a_planted_function_is_parsed_printed_and_evaluated() -> None:
    tree = parse("CUT( color ,1+1)='re'")
    assert printed(tree) == "cut(color, 1 + 1) = 're'"
    assert parse(printed(tree)) == tree
    wanted = SqlFilter("cut(color, n) = 're'")
    assert wanted.matches(message(color="red", n=2))
    assert not wanted.matches(message(color="red", n=1))
    assert SqlFilter("cut(cut(color, 3), 1) IN ('g', 'r')").matches(message(color="red"))


def test_null_makes_the_call_unknown() -> None:
    assert not SqlFilter("cut(color, 2) = 're'").matches(message())
    assert not SqlFilter("NOT (cut(color, 2) = 're')").matches(message())


@pytest.mark.parametrize(("text", "what"), [("cut(5, 2) = 'x'", "a text, not a int"), ("cut('x', TRUE) = 'x'", "bool")])
def test_an_argument_of_a_wrong_type_fails(text: str, what: str) -> None:
    with pytest.raises(EvaluationError, match=what):
        SqlFilter(text).matches(message())


def test_a_planted_function_is_explained_with_its_arguments() -> None:
    parts = SqlFilter("cut(color, n) = 're'").explain(message(color="red", n=2))
    assert [(each.text, each.shown) for each in parts][1:] == [
        ("cut(color, n)", "'re'"),
        ("color", "'red'"),
        ("n", "2"),
    ]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("cut(a) = 1", "add ','"),
        ("cut(a, 1, 2) = 1", "add ')'"),
        ("kut(a, 1) = 1", "did you mean CUT?"),
        ("zzzzzz(a) = 1", "there are newid(), property(name), p(name) and cut(a text, a length)"),
    ],
)
def test_a_wrong_call_gets_a_hint_from_the_rows(text: str, hint: str) -> None:
    with pytest.raises(FilterInvalid) as caught:
        parse(text)
    assert caught.value.hint == hint


def test_the_guide_names_every_function() -> None:
    text = GUIDE.read_text("utf-8")
    assert [name for name in FUNCTIONS if name != "cut" and f"`{name}(" not in text] == []
