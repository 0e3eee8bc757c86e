"""Invalid filters: each error has the position of the mistake and says what to write instead."""

import pickle

import pytest

from unibus.core.filters import tree
from unibus.core.filters.filters import SqlFilter
from unibus.core.filters.parser import Parser, parse
from unibus.core.filters.printing import printed
from unibus.core.filters.tokens import END, SIGN, TEXT, tokenize
from unibus.errors import FilterInvalid, UsageError

MISTAKES = [
    # text, position, part of the hint
    ("", 0, "1 = 1"),
    ("   ", 3, "1 = 1"),
    ("color", 0, "= TRUE"),
    ("TRUE", 0, "1 = 1"),
    ("FALSE", 0, "1 = 0"),
    ("1", 0, "compare"),
    ("color =", 7, "missing"),
    ("= 'red'", 0, "a property"),
    ("color == 'red'", 6, "one ="),
    ("a = 1 && b = 2", 6, "AND"),
    ("a = 1 || b = 2", 6, "OR"),
    ("a => 1", 2, ">="),
    ("a =< 1", 2, "<="),
    ("!a = 1", 0, "NOT"),
    ("a = b = c", 6, "joined with AND"),
    ("a = (b = c)", 4, "joined with AND"),
    ("(a = 1) = TRUE", 8, "joined with AND"),
    ("a = 1 AND", 9, "missing"),
    ("a = 1 AND AND b = 2", 10, "[AND]"),
    ("a = 1 AND b", 10, "= TRUE"),
    ("NOT a", 4, "= TRUE"),
    ("NOT", 3, "missing"),
    ("a = 1 b = 2", 6, "AND"),
    ("a = 1)", 5, "remove"),
    ("(a = 1", 6, "add ')'"),
    ("()", 1, "a property"),
    ("a LKIE 'x'", 2, "LIKE"),
    ("(a LKIE 'x')", 3, "LIKE"),
    ("a = 1 AND b LKIE 'x'", 12, "LIKE"),
    ("a = 1 adn b = 2", 6, "AND"),
    ("a IS 5", 5, "IS NULL"),
    ("a IS NUL", 5, "NULL"),
    ("a IS NOT", 8, "IS NULL"),
    ("5 IS NULL", 0, "name a property"),
    ("a + 1 IS NULL", 0, "name a property"),
    ("'a' IS NULL", 0, "name a property"),
    ("EXISTS color", 7, "add '('"),
    ("EXISTS('color')", 7, "name a property"),
    ("EXISTS()", 7, "a property"),
    ("EXISTS(color", 12, "add ')'"),
    ("a IN ()", 6, "a property"),
    ("a IN 5", 5, "add '('"),
    ("a IN (1, 2", 10, "add ')'"),
    ("a IN (1, )", 9, "a property"),
    ("a IN (1 2)", 8, "add ')'"),
    ("a NOT 5", 6, "IN and LIKE"),
    ("a NOT LIEK 'x'", 6, "LIKE"),
    ("a LIKE", 6, "missing"),
    ("a LIKE 5", 7, "a text"),
    ("a LIKE TRUE", 7, "a text"),
    ("a LIKE 'x' ESCAPE 'xx'", 18, "ESCAPE"),
    ("a LIKE 'x' ESCAPE ''", 18, "ESCAPE"),
    ("a LIKE 'x' ESCAPE 1", 18, "ESCAPE"),
    ("a LIKE 'x!' ESCAPE '!'", 7, "double it"),
    ("a ESCAPE 'x'", 0, "compare"),
    ("a = 'red", 4, "close it with '"),
    ("a = 'it''s", 4, "close it with '"),
    ("[a = 1", 0, "close it with ]"),
    ('"a = 1', 0, 'close it with "'),
    ("[] = 1", 0, "single quotes"),
    ('a = ""', 4, "single quotes"),
    ("0x1F = 1", 0, "hexadecimal"),
    ("5abc = 1", 0, "brackets"),
    ("1_000 = 1", 0, "brackets"),
    ("_a = 1", 0, "brackets"),
    ("$a = 1", 0, "brackets"),
    ("a-b = 1 #", 8, "brackets"),
    ("a = {1}", 4, "brackets"),
    ("a = ‘x’", 4, "straight quotes"),
    ("a ~ 1", 2, "quotes"),
    ("a = 9223372036854775808", 4, "double"),
    ("a = -9223372036854775809", 5, "double"),
    ("a = 1E999", 4, "1.79"),
    ("a = @", 4, "@limit"),
    ("a = @ b", 4, "@limit"),
    ("sys.Lable = 'x'", 4, "Label"),
    ("sys.color = 'x'", 4, "without sys."),
    ("sys. = 'x'", 5, "sys.Name"),
    ("other.color = 'x'", 0, "[other."),
    ("a.b.c = 1", 0, "[a."),
    ("user.a.b = 1", 6, "AND or OR"),
    ("newid( = 1", 7, "add ')'"),
    ("newid = newid(5)", 14, "add ')'"),
    ("newuid() = 1", 0, "NEWID"),
    ("lower(a) = 'x'", 0, "newid()"),
    ("p() = 1", 2, "a property"),
    ("p('a' = 1", 6, "add ')'"),
    ("p(a = 1) = 2", 4, "add ')'"),
    ("AND = 1", 0, "[AND]"),
    ("like LIKE 'x'", 0, "[LIKE]"),
    ("a = NOT b = 1", 4, "joined with AND"),
    ("-(a = 1) = 2", 1, "joined with AND"),
    ("a = 1; b = 2", 5, "AND or OR"),
    ("a = 1, b = 2", 5, "AND or OR"),
    ("SELECT * FROM t", 14, "AND or OR"),
]


@pytest.mark.parametrize(("text", "position", "hint"), MISTAKES)
def test_a_mistake_is_told_with_its_place_and_a_hint(text: str, position: int, hint: str) -> None:
    with pytest.raises(FilterInvalid) as caught:
        parse(text)
    assert (caught.value.position, hint in caught.value.hint) == (position, True), caught.value
    assert f"at character {position + 1}" in caught.value.what


def test_the_error_is_a_usage_error_that_survives_pickling() -> None:
    with pytest.raises(UsageError) as caught:
        parse("a ==  1")
    assert isinstance(caught.value, FilterInvalid)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.code, again.position, again.hint) == ("filter_invalid", 2, "one = compares")


def test_tokens_know_where_they_stand() -> None:
    tokens = tokenize("a >= 'x'")
    assert [(token.kind, token.text, token.position) for token in tokens[1:]] == [
        (SIGN, ">=", 2),
        (TEXT, "x", 5),
        (END, "", 8),
    ]
    assert repr(tokens[1]) == "<Token '>=' at 2>"


def test_the_length_of_a_text_is_bound() -> None:
    at_most = "a = '" + "x" * 1018 + "'"
    assert len(at_most) == 1024
    assert parse(at_most)
    with pytest.raises(FilterInvalid, match="at most 1024") as caught:
        parse(at_most + " ")
    assert caught.value.position == 1024
    assert parse(at_most + " ", chars_max=2000)
    with pytest.raises(FilterInvalid, match="at most 5"):
        SqlFilter("a = 12", chars_max=5)


@pytest.mark.parametrize(
    ("nested", "deepest"),
    [
        (lambda n: "NOT " * n + "a = 1", 30),
        (lambda n: "(" * n + "a = 1" + ")" * n, 30),
        (lambda n: "-" * n + "a = 1", 30),
        (lambda n: "a = " + "(" * n + "1" + ")" * n, 30),
        (lambda n: "a = 1" + "+1" * n, 30),
        (lambda n: "p(" * n + "a" + ")" * n + " = 1", 30),
    ],
)
def test_nesting_is_bound(nested: "object", deepest: int) -> None:
    assert callable(nested)
    assert parse(nested(deepest))
    with pytest.raises(FilterInvalid, match="at most 32 levels"):
        parse(nested(32))
    assert parse(nested(40), depth_max=50)


def test_a_long_list_of_conditions_is_not_deep() -> None:
    terms = " AND ".join(["a=1"] * 100) + " OR " + " OR ".join(["b=1"] * 40)
    found = parse(terms, chars_max=5000)
    assert isinstance(found, tree.Or)
    assert len(found.terms) == 41


@pytest.mark.parametrize("shape", ["(", "NOT ", "-", "a+", "a=1 AND ", "p(", "a IN(", "((a", "'", "[", "a LIKE "])
def test_a_hostile_text_ends_quickly_with_an_error(shape: str) -> None:
    with pytest.raises(FilterInvalid):
        parse(shape * 5_000, chars_max=10**7)


def test_steps_grow_with_the_text_and_nothing_else() -> None:
    for text in ("a=1 OR " * 140 + "a=1", "a IN (" + "1," * 480 + "1)", "((((a=1)))) AND NOT NOT b LIKE 'x'"):
        parser = Parser(text)
        parser.whole_predicate()
        assert parser.steps <= len(tokenize(text))


PRINTED = [
    ("a=1", "a = 1"),
    ("a!=1", "a <> 1"),
    ("user.a = 1", "a = 1"),
    ("sys.label='x'", "sys.Label = 'x'"),
    ("SYS.SUBJECT='x'", "sys.Subject = 'x'"),
    ("[a]=1", "a = 1"),
    ('"a b"=1', "[a b] = 1"),
    ("[a]]b]=1", "[a]]b] = 1"),
    ("[and]=1", "[and] = 1"),
    ("a='it''s'", "a = 'it''s'"),
    ("a=1 and b=2 or c=3", "a = 1 AND b = 2 OR c = 3"),
    ("a=1 and (b=2 or c=3)", "a = 1 AND (b = 2 OR c = 3)"),
    ("(a=1 and b=2) and c=3", "(a = 1 AND b = 2) AND c = 3"),
    ("not(a=1)", "NOT a = 1"),
    ("not(a=1 or b=2)", "NOT (a = 1 OR b = 2)"),
    ("a=1+2*3", "a = 1 + 2 * 3"),
    ("a=(1+2)*3", "a = (1 + 2) * 3"),
    ("a=1-(2-3)", "a = 1 - (2 - 3)"),
    ("a=1-2-3", "a = 1 - 2 - 3"),
    ("a=-5", "a = -5"),
    ("a=- 5", "a = -5"),
    ("a=-(5)", "a = -(5)"),
    ("a=-b", "a = -b"),
    ("a=--5", "a = -(-5)"),
    ("a=+5", "a = +(5)"),
    ("a=1.50", "a = 1.5"),
    ("a=1E3", "a = 1000.0"),
    ("a=1E300", "a = 1e+300"),
    ("a=007", "a = 7"),
    ("a is not null", "a IS NOT NULL"),
    ("exists(a)", "EXISTS(a)"),
    ("a not in(1,'x',true,null)", "a NOT IN (1, 'x', TRUE, NULL)"),
    ("a not like 'x%' escape '!'", "a NOT LIKE 'x%' ESCAPE '!'"),
    ("p('a')=newid()", "property('a') = newid()"),
    ("a=@Limit", "a = @Limit"),
]


@pytest.mark.parametrize(("text", "form"), PRINTED)
def test_a_filter_has_one_printed_form(text: str, form: str) -> None:
    assert printed(parse(text)) == form
    assert printed(parse(form)) == form
    assert parse(form) == parse(text)


def test_trees_cannot_be_changed_and_know_their_types() -> None:
    found = parse("a = 1")
    with pytest.raises(AttributeError):
        found.operator = "<"  # type: ignore
    assert parse("a = 1") == found
    assert hash(parse("a = 1")) == hash(found)
    assert parse("a = 1.0") != found
    assert parse("a = TRUE") != found
    assert parse("a = '1'") != found
