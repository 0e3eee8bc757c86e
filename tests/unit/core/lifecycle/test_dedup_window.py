"""Keys within a window: against a plain dict."""

import random

from unibus.core.lifecycle.state.dedup_window import DedupWindow


def test_a_key_is_known_for_its_window_and_not_at_its_end() -> None:
    marks = DedupWindow(10)
    marks.add("a", 100)
    assert [marks.has("a", now) for now in (100, 109, 110)] == [True, True, False]
    assert not marks.has("b", 100)


def test_a_key_that_is_known_keeps_its_instant() -> None:
    marks = DedupWindow(10)
    marks.add("a", 100)
    marks.add("a", 105)
    assert marks.items() == [("a", 100)]
    marks.add("a", 110)
    assert marks.has("a", 119)


def test_it_knows_what_a_dict_knows_and_forgets_what_is_over() -> None:
    chance = random.Random(3)
    marks = DedupWindow(50)
    at: dict[str, int] = {}
    now = 0
    for _ in range(3_000):
        now += chance.randrange(4)
        key = f"k{chance.randrange(30)}"
        known = key in at and at[key] + 50 > now
        assert marks.has(key, now) == known
        if chance.random() < 0.5:
            marks.add(key, now)
            if not known:
                at[key] = now
    marks.add("last", now + 1_000)
    assert marks.items() == [("last", now + 1_000)]


def test_a_changed_window_counts_for_marks_that_are_there() -> None:
    marks = DedupWindow(10)
    marks.add("a", 100)
    marks.window_ns = 100
    assert marks.has("a", 150)


def test_a_key_that_begins_each_batch_keeps_none_of_the_earlier_batches() -> None:
    marks = DedupWindow(10)
    for now in range(0, 2_000, 100):
        marks.add("begin", now)
        for number in range(5):
            marks.add(f"{now}-{number}", now + 1)
    assert len(marks) == 6


def test_keys_that_were_cut_end_with_their_window() -> None:
    marks = DedupWindow(200)
    for key, at in (("a", 100), ("b", 105), ("c", 200)):
        marks.add(key, at)
    assert marks.cut(102) == ["b", "c"]
    marks.add("d", 301)
    assert marks.items() == [("b", 102), ("c", 102), ("d", 301)]
    marks.add("e", 302)
    assert marks.items() == [("d", 301), ("e", 302)]
