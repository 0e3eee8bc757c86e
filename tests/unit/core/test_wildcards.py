"""The tree of tokens: what it removes. Its matches are tested with the index."""

from unibus.core.topics.wildcards import WildcardTree


def test_an_insertion_undone_leaves_no_branch_behind() -> None:
    tree = WildcardTree()
    kept = tree.insert("a.*.c")
    for text in ("a", "a.*", "a.#", "a.>", "a.*.c.d", "*.b", "#", "a.b.c.d.e"):
        tree.remove(tree.insert(text))
    assert tree.find("a.*.c") is kept
    tree.remove(kept)
    assert tree.size == 0
    assert tree._root.is_bare()


def test_patterns_on_the_same_way_are_told_apart() -> None:
    tree = WildcardTree()
    texts = ("a", "a.#", "a.>", "a.*", "a.b", "*", "#", ">")
    interests = {text: tree.insert(text) for text in texts}
    assert all(tree.find(text) is interest for text, interest in interests.items())
    assert tree.find("b") is None
    assert tree.find("a.b.#") is None
    assert tree.find("a.b.c.d") is None
