"""One changed character makes a token worthless, but for the few that carry no meaning.

Those are: the case of letters in `skn`, as names of rules have no case, and the case of the digits in escapes of `sig`
and `skn`. In `sr` the same change breaks the signature, for `sr` is signed as it is written.
"""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.access.parts import NOW_NS, ON_TOPIC, ROOT, access, token
from unibus.core.access.decide import Access
from unibus.core.access.rights import Right
from unibus.errors import Unauthorised

TOKENS = [
    token("Topic/Subscriptions/x"),
    token("topic", ON_TOPIC),
    token("topic/subscriptions/X", key=ROOT.secondary_key),
]
DOOR = access()


def holds(text: str) -> bool:
    """Anything but Unauthorised is raised on: an altered token must not pass as a genuine one for something else."""
    try:
        DOOR.check(text, Right.LISTEN, "topic/Subscriptions/x", NOW_NS)
    except Unauthorised:
        return False
    return True


def meaningless(text: str) -> set[int]:
    """The positions where case does not matter."""
    places = {at for match in re.finditer(r"(?<=&skn=)[^&]*", text) for at in range(*match.span())}
    for value in re.finditer(r"(?<=&sig=)[^&]*", text):
        for escape in re.finditer(r"%(..)", value[0]):
            places |= {value.start() + escape.start() + 1, value.start() + escape.start() + 2}
    return places


@pytest.mark.parametrize("text", TOKENS)
def test_every_other_character_at_every_place(text: str) -> None:
    assert holds(text)
    free = meaningless(text)
    wrong = []
    for at, old in enumerate(text):
        for new in string.printable:
            expected = new == old or (at in free and new == old.swapcase())
            if holds(text[:at] + new + text[at + 1 :]) is not expected:
                wrong.append((at, old, new))
    assert wrong == []


@pytest.mark.parametrize("text", TOKENS)
def test_a_character_less(text: str) -> None:
    assert [at for at in range(len(text)) if holds(text[:at] + text[at + 1 :])] == []


@given(st.sampled_from(TOKENS), st.data(), st.characters())
def test_a_character_more_or_any_other_of_unicode(text: str, data: st.DataObject, new: str) -> None:
    at = data.draw(st.integers(0, len(text)))
    assert not holds(text[:at] + new + text[at:])
    if at < len(text) and new not in (text[at], text[at].swapcase()):
        assert not holds(text[:at] + new + text[at + 1 :])


@given(st.sampled_from(TOKENS), st.sampled_from(TOKENS), st.data())
def test_halves_of_two_tokens_are_none(first: str, second: str, data: st.DataObject) -> None:
    mixed = first[: data.draw(st.integers(0, len(first)))] + second[data.draw(st.integers(0, len(second))) :]
    assert holds(mixed) is (mixed in TOKENS)


@given(st.text() | st.text("SharedAcesSigntur sr=&kn%012abcdef:/").map(lambda text: "SharedAccessSignature " + text))
def test_noise_is_refused_and_nothing_else_happens(text: str) -> None:
    with pytest.raises(Unauthorised):
        Access([ROOT], lambda name: [ON_TOPIC], hosts=["a"]).check(text, Right.SEND, "topic", NOW_NS)
