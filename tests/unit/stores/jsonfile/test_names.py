"""File names from entity names: reversible, short enough, and never outside of the folder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unibus.core.lifecycle.state.entity import DEAD_LETTERS, QUEUE, SUBSCRIPTION, TOPIC
from unibus.stores.jsonfile.names import STEM_CHARS_MAX, name_of, stem_of

parts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=15)


@pytest.mark.parametrize(
    ("name", "kind", "stem"),
    [
        ("orders", QUEUE, "queue_orders"),
        ("a/b c", QUEUE, "queue_a%2Fb%20c"),
        ("Großes_x.y-z~1", QUEUE, "queue_Gro%C3%9Fes_x.y-z%7E1"),
        ("prices", TOPIC, "topic_prices"),
        ("prices/Subscriptions/audit", SUBSCRIPTION, "subscription_prices_audit"),
        ("a_b/Subscriptions/c_d", SUBSCRIPTION, "subscription_a%5Fb_c_d"),
        ("orders/$DeadLetterQueue", DEAD_LETTERS, "deadletter_queue_orders"),
        ("t/Subscriptions/s/$DeadLetterQueue", DEAD_LETTERS, "deadletter_subscription_t_s"),
    ],
)
def test_a_name_and_its_file(name: str, kind: int, stem: str) -> None:
    assert stem_of(name, kind) == stem
    assert name_of(stem) == name


@given(st.lists(parts, min_size=1, max_size=3), parts, st.sampled_from([QUEUE, SUBSCRIPTION, DEAD_LETTERS]))
def test_every_name_comes_back_and_is_a_name_in_the_folder(path: list[str], own: str, kind: int) -> None:
    name = "/".join(path)
    if kind != QUEUE:
        name += f"/Subscriptions/{own.replace('/', '.')}"
    if kind == DEAD_LETTERS:
        name += "/$DeadLetterQueue"
    stem = stem_of(name, kind)
    assert stem.isascii()
    assert not set(stem) & set('/\\:*?"<>|\0 ')
    assert len(stem) <= STEM_CHARS_MAX
    assert name_of(stem) == (name if "~" not in stem else "")


def test_long_names_are_cut_and_stay_different() -> None:
    stems = {stem_of("ü" * 100 + f"/{number}", QUEUE) for number in range(50)}
    stems |= {stem_of("ü" * 100 + f"/{number}/$DeadLetterQueue", DEAD_LETTERS) for number in range(50)}
    assert len(stems) == 100
    assert {len(stem) <= STEM_CHARS_MAX for stem in stems} == {True}
    assert {name_of(stem) for stem in stems} == {""}, "only the file knows it"
