"""ARCHITECTURE.md is true: its map has every module once, and its tables of imports are those of tests/tidy/layout."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.layout import PACKAGES, SUBPACKAGES

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "unibus"
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
FOLDER = re.compile(r"^### `([\w/]+)/`: \S")
FILE = re.compile(r"^- `(\w+\.py)`( ●)? \S")


def map_of(text: str) -> Iterator[tuple[str, bool]]:
    """Each file of the map as a path below the package, and whether it is marked as compiled."""
    folder = ""
    for line in text.partition("\n## The map\n")[2].splitlines():
        if heading := FOLDER.match(line):
            folder = "" if heading[1] == "unibus" else f"{heading[1]}/"
            assert (SOURCE / folder).is_dir(), f"there is no folder {folder}"
        elif found := FILE.match(line):
            yield f"{folder}{found[1]}", found[2] is not None


def modules() -> set[str]:
    """All of them but those that only make a folder a package: the heading of the folder replaces these."""
    found = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    return {name for name in found if not name.endswith("/__init__.py")}


def table(text: str, header: str) -> dict[str, list[str]]:
    """The rows below a header: the first cell, and what the last one names in backticks."""
    rows = text.partition(f"\n{header}\n")[2].partition("\n\n")[0].splitlines()[1:]
    cells = [row.strip("|").split("|") for row in rows]
    return {row[0].strip().strip("`"): re.findall(r"`([^`]+)`", row[-1]) for row in cells}


def compiled() -> set[str]:
    """What setup.py compiles: whole folders, and files that carry its marker."""
    tree = ast.parse((ROOT / "setup.py").read_text("utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
    names = {"HOT", "MARKER"}
    values = {node.targets[0].id: ast.literal_eval(node.value) for node in assigned if node.targets[0].id in names}
    hot = {path for pattern in values["HOT"] for path in SOURCE.glob(pattern)}
    marked = {path for path in SOURCE.rglob("*.py") if values["MARKER"] in path.read_text("utf-8").splitlines()}
    return {path.relative_to(SOURCE).as_posix() for path in hot | marked}


def test_the_map_has_each_module_exactly_once() -> None:
    listed = Counter(name for name, _ in map_of(TEXT))
    assert sorted(modules() - set(listed)) == [], "add a line to the map in ARCHITECTURE.md"
    assert sorted(set(listed) - modules()) == [], "the map in ARCHITECTURE.md names files that do not exist"
    assert [name for name, count in listed.items() if count > 1] == []


def test_the_map_has_each_folder_and_no_other_line() -> None:
    lines = TEXT.partition("\n## The map\n")[2].splitlines()
    headings = {match[1] for line in lines if (match := FOLDER.match(line))}
    folders = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("__init__.py")} - {"."}
    assert folders <= headings
    strange = [line for line in lines if line.startswith(("#", "- ")) and not (FOLDER.match(line) or FILE.match(line))]
    assert strange == []


def test_the_map_marks_the_compiled_files() -> None:
    marked = {name for name, is_compiled in map_of(TEXT) if is_compiled}
    assert marked == compiled() & modules()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n## The map\n### `core/`: rules\n- `atomic.py` ● locks\n", [("core/atomic.py", True)]),
        ("\n## The map\n### `unibus/`: all\n- `errors.py` errors\n- `x.py`\n", [("errors.py", False)]),
    ],
)
def test_a_line_without_an_explanation_does_not_count(text: str, expected: list[tuple[str, bool]]) -> None:
    assert list(map_of(text)) == expected


def test_the_packages_are_those_of_the_layout() -> None:
    rows = table(TEXT, "| package | what it is for | may import |")
    existing = {name for name in PACKAGES if (SOURCE / name).exists() or (SOURCE / f"{name}.py").exists()}
    assert set(rows) == existing - {"../pyspark_unibus", "__init__", "__main__"}
    assert {name: frozenset(imports) for name, imports in rows.items()} == {name: PACKAGES[name] for name in rows}


def test_the_folders_are_those_of_the_layout_in_the_order_of_their_imports() -> None:
    rows = table(TEXT, "| package | its folders, in the order of their imports |")
    ordered: dict[str, list[str]] = {}
    for name in SUBPACKAGES:
        package, _, folder = name.partition(".")
        ordered.setdefault(package, []).append(folder.replace(".", "/") or ".")
    assert rows == ordered


def test_the_files_that_the_text_names_exist() -> None:
    packages = "|".join(name for name in PACKAGES if name.isalpha())
    named = re.findall(rf"`((?:{packages})(?:/\w+)+\.py)`", TEXT)
    assert len(named) > 50
    assert [name for name in named if not (SOURCE / name).exists()] == []


def test_a_change_that_is_described_has_its_files() -> None:
    rows = table(TEXT, "| you want | change | and add |")
    wanted = ("drop policy", "limit", "command", "embedded store", "report", "HTTP operation", "error", "setting")
    assert [what for what in wanted if not any(what in row for row in rows)] == []


def test_the_classes_of_the_drawing_exist() -> None:
    drawing = TEXT.partition("## One drawing")[2].partition("```\n")[2].partition("```\n")[0]
    named = set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", drawing))
    defined = {name for path in SOURCE.rglob("*.py") for name in CLASS.findall(path.read_text("utf-8"))}
    assert len(named) > 15
    assert sorted(named - defined) == []


def test_the_folders_of_the_drawing_exist() -> None:
    drawing = TEXT.partition("## One drawing")[2].partition("```\n")[2].partition("```\n")[0]
    named = set(re.findall(r"\b[a-z]+/[a-z/_]+(?:\.py)?\b", drawing))
    assert len(named) > 10
    assert [name for name in named if not (SOURCE / name).exists()] == []
