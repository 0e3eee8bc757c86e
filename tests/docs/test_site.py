"""The site of `make docs`, as far as it can be checked without building it: links, navigation and API reference.

Zensical is not needed here. What it builds is checked where it is built: `make docs` treats each warning as an error,
and refuses a page that would load something from another host.
"""

import ast
import importlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath
from types import ModuleType

import pytest

from tests.docs.snippets import blocks
from tools import site
from unibus.cli.main import Shell

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
LINKING = ["README.md", *site.documents(ROOT)]
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
PUBLIC = ("unibus", "unibus.sync", "unibus.testing", "unibus.integrations.fastapi")
"""Modules whose `__all__` is public. `unibus.errors` is shown as a whole."""
_LINK = re.compile(r"\]\(([^)\s]*?)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The names that GitHub and the site give to the headings of a page."""
    fenced = {number for block in blocks(text) for number in range(block.line, block.line + len(block.code))}
    prose = "\n".join("" if number in fenced else line for number, line in enumerate(text.splitlines(), 1))
    slugs: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(prose):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{slug}-{slugs[slug]}" if slugs[slug] else slug)
        slugs[slug] += 1
    return found


def broken(root: Path, page: str) -> Iterator[str]:
    """The links of a page that lead to no file, or to no heading of it. Addresses of the web are not followed."""
    text = (root / page).read_text("utf-8")
    for match in _LINK.finditer(site.without_code(text)):
        path, anchor = match[1], match[2]
        if ":" in path:
            continue
        target = root / normpath(f"{Path(page).parent.as_posix()}/{path}") if path else root / page
        if not target.exists():
            yield f"{path}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text("utf-8")):
            yield f"{path}#{anchor}: no such heading"


@pytest.mark.parametrize("page", LINKING)
def test_links_lead_to_files_and_headings(page: str) -> None:
    assert list(broken(ROOT, page)) == []


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[a](gone.md)", "gone.md: no such file"),
        ("[a](other.md#none)", "other.md#none: no such heading"),
        ("[a](#none)", "#none: no such heading"),
        ("[a](other.md#in-code)", "other.md#in-code: no such heading"),
        ("[a](other.md#a-longer-one-2)", "other.md#a-longer-one-2: no such heading"),
        ("[a](other.md#a-longer-one-1) [b](other.md#the-url-x) [c](other.md) [d](https://example.com#x)", None),
        ("`[a](gone.md)`\n\n```\n[a](gone.md)\n```\n", None),
    ],
)
def test_a_wrong_link_is_found(tmp_path: Path, link: str, problem: str | None) -> None:
    (tmp_path / "page.md").write_text(link, "utf-8")
    headings = "# The `url` x\n\n## A longer, [one](x.md)!\n\n```\n# In code\n```\n\n## A longer one\n"
    (tmp_path / "other.md").write_text(headings, "utf-8")
    assert list(broken(tmp_path, "page.md")) == ([problem] if problem else [])


def test_lists_inside_of_lists_are_indented_by_four() -> None:
    """GitHub accepts two spaces, the site would show such a list without its levels."""
    nested = re.compile(r"^ {1,3}(?:[-*]|\d+\.) .*", re.MULTILINE)
    texts = {page: site.without_code((ROOT / page).read_text("utf-8")) for page in site.documents(ROOT)}
    assert {page: found for page, text in texts.items() if (found := nested.findall(text))} == {}


def pages_of(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for value in nav.values():
            yield from pages_of(value)
    elif isinstance(nav, list):
        for value in nav:
            yield from pages_of(value)


def test_the_navigation_has_each_page_exactly_once() -> None:
    listed = Counter(pages_of(SETTINGS["nav"]))
    pages = set(site.documents(ROOT).values())
    assert sorted(pages - set(listed)) == [], "add the page to nav in zensical.toml"
    assert sorted(set(listed) - pages) == [], "nav in zensical.toml names pages that do not exist"
    assert [page for page, count in listed.items() if count > 1] == []


def test_the_index_lists_the_guide_in_the_order_of_the_navigation() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8").partition("\n## Guide\n")[2]
    named = re.findall(r"^\| \[[^\]]+\]\(((?:guide/|reference/)?[\w-]+\.md)\)", index, re.MULTILINE)
    listed = [page for page in pages_of(SETTINGS["nav"]) if not page.startswith("decisions/")]
    assert named == listed[1 : 1 + len(named)]
    assert len(named) == len(listed) - 1 - len(SETTINGS["nav"][-1]["Project"])


def directives() -> list[str]:
    return [name for page in REFERENCE for name in _DIRECTIVE.findall(page.read_text("utf-8"))]


def resolve(name: str) -> object:
    """What a directive names: a module, or something in one."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(importlib.import_module(module), attribute)


def shown() -> Counter[int]:
    """How often each object is in the reference, by its identity: one thing has several public names."""
    found: Counter[int] = Counter()
    for name in directives():
        thing = resolve(name)
        if isinstance(thing, ModuleType):
            found.update(id(each) for each in vars(thing).values() if getattr(each, "__module__", "") == name)
        else:
            found[id(thing)] += 1
    return found


@pytest.mark.parametrize("module", PUBLIC)
def test_the_reference_has_each_public_name_exactly_once(module: str) -> None:
    counts, public = shown(), importlib.import_module(module)
    names = public.__all__
    assert names
    assert [name for name in names if counts[id(getattr(public, name))] != 1] == []


def hidden() -> dict[str, tuple[str, ...]]:
    """`HIDDEN` of tools/reference.py, which cannot be imported here: griffe is only installed for `make docs`."""
    tree = ast.parse((ROOT / "tools" / "reference.py").read_text("utf-8"))
    assigned = [each for each in tree.body if isinstance(each, ast.Assign)]
    (given,) = [each.value for each in assigned if ast.unparse(each.targets[0]) == "HIDDEN"]
    return dict(ast.literal_eval(given))


@pytest.mark.parametrize("path", hidden())
def test_what_the_reference_hides_exists(path: str) -> None:
    module, _, name = path.rpartition(".")
    tree = ast.parse((ROOT / "src" / f"{module.replace('.', '/')}.py").read_text("utf-8"))
    (source,) = [ast.unparse(each) for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name]
    missing = [name for name in hidden()[path] if not re.search(rf"(self\.{name}\b|def {name}\()", source)]
    assert missing == []


def test_the_reference_names_only_what_exists() -> None:
    assert len(directives()) > 80
    assert [name for name in directives() if resolve(name) is None] == []


def test_the_command_line_page_names_each_command() -> None:
    page = (ROOT / "docs" / "guide" / "command-line.md").read_text("utf-8").partition("## The commands")[2]
    assert [name for name in Shell.table if not re.search(rf"`(?:unibus )?{name}[ `]", page)] == []


def test_links_are_adapted_to_the_places_of_the_site(tmp_path: Path) -> None:
    root, target = tmp_path / "root", tmp_path / "pages"
    texts = {
        "docs/README.md": "[a](guide/a.md#x) [b](../ARCHITECTURE.md) [c](../README.md)",
        "docs/guide/a.md": "[a](../README.md) [b](../../deploy/x.yaml) `[c](../README.md)` [d](../images/p.svg)",
        "ARCHITECTURE.md": "[a](docs/guide/a.md#x) [b](https://example.com/a.md)",
        "README.md": "",
        "deploy/x.yaml": "x: 1",
        "docs/images/p.svg": "<svg/>",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    site.collect(root, target)
    assert (target / "index.md").read_text() == "[a](guide/a.md#x) [b](architecture.md) [c](index.md)"
    adapted = "[a](../index.md) [b](../files/deploy/x.yaml) `[c](../README.md)` [d](../images/p.svg)"
    assert (target / "guide/a.md").read_text() == adapted
    assert (target / "architecture.md").read_text() == "[a](guide/a.md#x) [b](https://example.com/a.md)"
    assert (target / "files/deploy/x.yaml").read_text() == "x: 1"
    assert (target / "images/p.svg").exists()


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root/docs").mkdir(parents=True)
    (tmp_path / "root/docs/README.md").write_text("[a](../docs/..)", "utf-8")
    with pytest.raises(SystemExit, match="a site cannot show"):
        site.collect(tmp_path / "root", tmp_path / "pages")


def test_what_is_loaded_from_another_host_is_found(tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(
        '<script src="https://cdn.example/x.js"></script><img alt="x" src=//cdn.example/i.png>'
        '<link rel="stylesheet" href="http://cdn.example/x.css">',
        "utf-8",
    )
    (tmp_path / "bad.css").write_text('@import "https://cdn.example/f.css"; a { b: url(//cdn.example/f) }', "utf-8")
    fine = '<a href="https://example.com">x</a><link rel="canonical" href="https://example.com/"><img src="x.png">'
    (tmp_path / "good.html").write_text(fine, "utf-8")
    assert site.foreign_sources(tmp_path) == [
        *("bad.css: https://cdn.example/f.css", "bad.css: //cdn.example/f"),
        *("bad.html: https://cdn.example/x.js", "bad.html: //cdn.example/i.png", "bad.html: http://cdn.example/x.css"),
    ]


def test_no_font_and_no_script_is_configured_from_another_host() -> None:
    assert SETTINGS["theme"]["font"] is False
    assert "//" not in str(SETTINGS.get("extra_javascript", "")) + str(SETTINGS["extra_css"])
