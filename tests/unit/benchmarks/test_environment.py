"""A benchmark never measures an old build: whatever the build reads changes the digest that it is stamped with."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.environment import digest_of_sources


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src" / "unibus").mkdir(parents=True)
    (tmp_path / "src" / "unibus" / "clock.py").write_text("now = 1\n")
    (tmp_path / "src" / "unibus" / "limits.py").write_text("most = 1\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: (tree / "src" / "unibus" / "clock.py").write_text("now = 2\n"),
        lambda tree: (tree / "src" / "unibus" / "new.py").write_text(""),
        lambda tree: (tree / "src" / "unibus" / "limits.py").unlink(),
        lambda tree: (tree / "src" / "unibus" / "limits.py").rename(tree / "src" / "unibus" / "bounds.py"),
        lambda tree: (tree / "pyproject.toml").write_text("[project]\nname = 'unibus'\n"),
        lambda tree: (tree / "setup.py").write_text(""),
    ],
    ids=["edited", "added", "removed", "renamed", "settings", "build script"],
)
def test_every_change_of_a_source_asks_for_a_new_build(tree: Path, change: Callable[[Path], object]) -> None:
    before = digest_of_sources(tree)
    change(tree)
    assert digest_of_sources(tree) != before


@pytest.mark.parametrize(
    "made", ["src/unibus/__pycache__/clock.pyc", "src/unibus.egg-info/PKG-INFO", "src/unibus/clock.so", "docs/page.md"]
)
def test_what_tools_leave_behind_does_not(tree: Path, made: str) -> None:
    before = digest_of_sources(tree)
    (tree / made).parent.mkdir(parents=True, exist_ok=True)
    (tree / made).write_text("made by a tool")
    assert digest_of_sources(tree) == before
