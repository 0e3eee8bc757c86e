"""The grammar of patterns: what is accepted, what is rejected, and what is equal."""

import pytest

from unibus.core.topics.pattern import EXACT, PREFIX, WILDCARD, Pattern, is_wildcard, name_bytes, name_text
from unibus.errors import NameInvalid
from unibus.limits import CHANNEL_NAME_BYTES_MAX


def test_the_kind_is_said_and_not_guessed_from_the_text() -> None:
    assert Pattern.exact("a.*").kind == EXACT
    assert Pattern.prefix("a.*").kind == PREFIX
    assert Pattern.wildcard("a.*").kind == WILDCARD
    assert len({Pattern.exact("a.*"), Pattern.prefix("a.*"), Pattern.wildcard("a.*")}) == 3


def test_a_text_without_a_kind_is_a_wildcard_if_a_whole_token_is_one() -> None:
    for text in ("*", "#", ">", "a.*", "*.a", "a.*.b", "a.#", "a.>", "*.#", "a..*"):
        assert is_wildcard(text), text
    for text in ("", "a", "C#", "a>b", "a*", "*a", "a.C#", "#.a", ">.a", "a.#.b", "a.>.b", "a..b", "a.#.", "##", "**"):
        assert not is_wildcard(text), text


def test_text_and_its_bytes_make_the_same_pattern() -> None:
    for make in (Pattern.exact, Pattern.prefix, Pattern.wildcard):
        assert make("zürich") == make("zürich".encode())
        assert hash(make("zürich")) == hash(make("zürich".encode()))


def test_prefixes_are_bytes_and_the_others_text() -> None:
    assert Pattern.prefix("é").text == b"\xc3\xa9"
    assert Pattern.exact(b"\xc3\xa9").text == "é"
    assert Pattern.wildcard(b"\xc3\xa9.*").text == "é.*"


def test_a_pattern_is_no_other_thing() -> None:
    assert Pattern.exact("a") != "a"
    assert Pattern.exact("a") != Pattern.exact("b")
    assert Pattern.exact("a") != Pattern.wildcard("a")


def test_a_pattern_cannot_be_changed() -> None:
    pattern = Pattern.exact("a")
    for name in ("kind", "text"):
        with pytest.raises(AttributeError):
            setattr(pattern, name, "b")


def test_repr_is_how_it_is_made() -> None:
    assert repr(Pattern.prefix("a/")) == "Pattern.prefix(b'a/')"


@pytest.mark.parametrize("text", ["#", ">", "*", "a", "a.b", "*.*", "a.*.c", "a.*.#", "*.>", "zürich.*"])
def test_wildcards_that_are_taken(text: str) -> None:
    assert Pattern.wildcard(text).text == text


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "#.a", ">.a", "a.#.b", "a.>.b", "ab*", "a.b#", "a.>b", "**"]
)
def test_wildcards_that_are_refused_with_a_hint(text: str) -> None:
    with pytest.raises(NameInvalid) as caught:
        Pattern.wildcard(text)
    assert caught.value.hint


def test_an_exact_pattern_needs_a_name_and_a_prefix_does_not() -> None:
    with pytest.raises(NameInvalid, match="empty prefix"):
        Pattern.exact("")
    assert Pattern.prefix("").text == b""


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(NameInvalid, match="exact, prefix or wildcard"):
        Pattern("regex", "a")


@pytest.mark.parametrize("kind", [EXACT, PREFIX, WILDCARD])
def test_no_pattern_is_longer_than_the_longest_name(kind: str) -> None:
    assert Pattern(kind, "é" * (CHANNEL_NAME_BYTES_MAX // 2)).text
    with pytest.raises(NameInvalid, match=f"at most {CHANNEL_NAME_BYTES_MAX} bytes"):
        Pattern(kind, "é" * (CHANNEL_NAME_BYTES_MAX // 2) + "a")


def test_bytes_that_are_no_utf8_have_a_text_of_their_own() -> None:
    raw = b"\xff\xfe.a"
    assert name_bytes(name_text(raw)) == raw
    assert Pattern.exact(raw) == Pattern.exact(name_text(raw))
    assert Pattern.exact("\udcc3\udca9") == Pattern.exact("é")


def test_text_that_stands_for_no_bytes_is_refused() -> None:
    with pytest.raises(NameInvalid, match="surrogate"):
        Pattern.exact("\ud800")
