"""Wildcard patterns in a tree of tokens, so that a match visits only the patterns that agree with the topic so far.

A branch represents the tokens on the path to it. A match follows the topic token by token and keeps the branches that
still agree: for each, the branch of the same token and the branch of `*`. A pattern that ends in `#` or `>` matches
when its branch is passed. `unibus.core.topics.pattern` has the grammar and has checked the patterns.
"""

from typing import final

from unibus.core.topics.interest import Interest
from unibus.core.topics.pattern import ONE_TOKEN, SEPARATOR, TAIL, TAIL_SOME


@final
class Wildcard(Interest):
    """The subscribers of one wildcard pattern."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


@final
class Branch:
    """The patterns that continue after the same tokens. `here` ends with them, `tail` with `#`, `tail_some` with
    `>`."""

    __slots__ = ("here", "one", "tail", "tail_some", "words")

    def __init__(self) -> None:
        self.words: dict[str, Branch] | None = None
        self.one: Branch | None = None
        self.here: Wildcard | None = None
        self.tail: Wildcard | None = None
        self.tail_some: Wildcard | None = None

    def step(self, token: str) -> "Branch | None":
        """The branch of one token of a pattern."""
        if token == ONE_TOKEN:
            return self.one
        words = self.words
        return None if words is None else words.get(token)

    def grow(self, token: str) -> "Branch":
        branch = Branch()
        if token == ONE_TOKEN:
            self.one = branch
        elif self.words is None:
            self.words = {token: branch}
        else:
            self.words[token] = branch
        return branch

    def prune(self, token: str) -> None:
        if token == ONE_TOKEN:
            self.one = None
            return
        words = self.words
        assert words is not None
        del words[token]
        if not words:
            self.words = None

    def ending(self, token: str) -> Wildcard | None:
        """The interest whose pattern ends here; `token` is `#`, `>` or anything else for a plain end."""
        if token == TAIL:
            return self.tail
        return self.tail_some if token == TAIL_SOME else self.here

    def end(self, token: str, interest: Wildcard | None) -> None:
        if token == TAIL:
            self.tail = interest
        elif token == TAIL_SOME:
            self.tail_some = interest
        else:
            self.here = interest

    def is_bare(self) -> bool:
        ended = self.here is None and self.tail is None and self.tail_some is None
        return ended and self.one is None and self.words is None


@final
class WildcardTree:
    """All wildcard patterns that have a subscriber."""

    __slots__ = ("_root", "size")

    def __init__(self) -> None:
        self.size = 0
        self._root = Branch()

    def find(self, text: str) -> Wildcard | None:
        tokens = text.split(SEPARATOR)
        branch: Branch | None = self._root
        for token in _steps(tokens):
            if branch is None:
                return None
            branch = branch.step(token)
        return None if branch is None else branch.ending(tokens[-1])

    def insert(self, text: str) -> Wildcard:
        """Add a pattern that is not in the tree."""
        tokens = text.split(SEPARATOR)
        branch = self._root
        for token in _steps(tokens):
            branch = branch.step(token) or branch.grow(token)
        interest = Wildcard(text)
        branch.end(tokens[-1], interest)
        self.size += 1
        return interest

    def remove(self, interest: Wildcard) -> None:
        """Remove an interest that is in the tree, and the branches that led to nothing else."""
        tokens = interest.text.split(SEPARATOR)
        steps = _steps(tokens)
        path = [self._root]
        for token in steps:
            branch = path[-1].step(token)
            assert branch is not None
            path.append(branch)
        path[-1].end(tokens[-1], None)
        while steps and path.pop().is_bare():
            path[-1].prune(steps.pop())
        self.size -= 1

    def match(self, topic: str, parts: list[tuple[int, ...]]) -> None:
        """Append the peers of every pattern that matches the topic."""
        branches = [self._root]
        for token in topic.split(SEPARATOR):
            onward: list[Branch] = []
            for branch in branches:
                # At least this token follows, so both tails match.
                _take(branch.tail, parts)
                _take(branch.tail_some, parts)
                words = branch.words
                if words is not None:
                    _follow(words.get(token), onward)
                _follow(branch.one, onward)
            if not onward:
                return
            branches = onward
        for branch in branches:
            _take(branch.here, parts)
            _take(branch.tail, parts)


def _steps(tokens: list[str]) -> list[str]:
    """The tokens that lead to a branch: all of them, but not a tail."""
    return tokens[:-1] if tokens[-1] in (TAIL, TAIL_SOME) else tokens[:]


def _take(interest: Wildcard | None, parts: list[tuple[int, ...]]) -> None:
    if interest is not None:
        parts.append(interest.peers())


def _follow(branch: Branch | None, onward: list[Branch]) -> None:
    if branch is not None:
        onward.append(branch)
