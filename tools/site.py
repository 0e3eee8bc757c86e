"""The documentation as a site: collect the pages, let Zensical build them, and check the result.

    python -m tools.site            .build/site, from docs/ and the documents of the root; any warning is an error
    python -m tools.site --serve    the same, then a local web server that shows it

Zensical reads one folder, and the documents of this project are in two places: GitHub shows README.md, ARCHITECTURE.md
and others at the root. So the pages are collected first, and links between the two places are adapted:

    docs/**, ARCHITECTURE.md, …  ──collect──▶  .build/pages  ──zensical (zensical.toml)──▶  .build/site

A link to a file that is not a page, such as an example, becomes a link to a copy of it in `files/`. The site loads
nothing from other hosts, so that it works offline and reports its readers to no one; `foreign_sources` checks that.

Standard library only: it runs in the environment of `make docs`, and tests/docs imports it without Zensical.
"""

import functools
import http.server
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from posixpath import normpath, relpath
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = Path(".build/pages")
SITE: Final = Path(".build/site")
PORT: Final = 8000
MOVED: Final = {
    "docs/README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Documents whose place in the site is not their place below docs/."""
SHOWN_BY: Final = {"README.md": "index.md"}
"""No page of its own: the first page of the site says the same."""

_FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[`~]*\s*$", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_TARGET = re.compile(r"(?<=\]\()[^)\s#:]+(?=[)#])")
"""The path of an inline link: not the anchor, and no address, which has a colon."""
_SOURCE = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")
_STYLE_SOURCE = re.compile(r"(?:@import\s+|url\()[\"']?((?:https?:)?//[^\"')\s]+)")
_METADATA = re.compile(r"<link\b[^>]*\brel=[\"']?(?:canonical|alternate)\b[^>]*>")
"""Read by programs; a browser does not load them."""


def documents(root: Path) -> dict[str, str]:
    """Path in the repository → path in the site, for each page."""
    below_docs = sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md"))
    pages = {path: MOVED.get(path, path.removeprefix("docs/")) for path in below_docs}
    return pages | {path: place for path, place in MOVED.items() if (root / path).exists()}


def without_code(text: str) -> str:
    """The text with its code blanked, so that no link is found in code. Every other character keeps its place."""

    def blank(match: "re.Match[str]") -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return _INLINE_CODE.sub(blank, _FENCE.sub(blank, text))


def links(text: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and path of each link to another file."""
    for match in _TARGET.finditer(without_code(text)):
        yield match.start(), match.end(), match[0]


def collect(root: Path, target: Path) -> None:
    """Write the pages, and what they link to, into an empty folder."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root / "docs", target, ignore=shutil.ignore_patterns("*.md"))
    pages = documents(root)
    for source, place in pages.items():
        text = (root / source).read_text("utf-8")
        for begin, end, path in reversed(list(links(text))):
            found = normpath(f"{Path(source).parent.as_posix()}/{path}")
            text = text[:begin] + relpath(_place(root, target, pages, found), str(Path(place).parent)) + text[end:]
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        (target / place).write_text(text, "utf-8")


def _place(root: Path, target: Path, pages: dict[str, str], path: str) -> str:
    """Where a file of the repository is in the site. One that is not there yet is copied."""
    if known := pages.get(path) or SHOWN_BY.get(path):
        return known
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if not (root / path).is_file():
        raise SystemExit(f"error: a page links to {path}, which a site cannot show\nhint: link to a file")
    copy = f"files/{path}"
    (target / copy).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / path, target / copy)
    return copy


def foreign_sources(site: Path) -> list[str]:
    """What the site would load from other hosts, with the file that asks for it. Links to click on are fine."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            text = _METADATA.sub("", path.read_text("utf-8"))
            found += [f"{path.relative_to(site)}: {source}" for source in _SOURCE.findall(text)]
        elif path.suffix == ".css":
            text = path.read_text("utf-8")
            found += [f"{path.relative_to(site)}: {source}" for source in _STYLE_SOURCE.findall(text)]
    return found


def build() -> None:
    collect(ROOT, ROOT / PAGES)
    # A new start each time: Zensical's cache does not notice that a docstring changed.
    shutil.rmtree(ROOT / SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=ROOT).returncode:
        raise SystemExit("error: the site was not built\nhint: see above; a warning counts as an error")
    if foreign := foreign_sources(ROOT / SITE):
        raise SystemExit("error: the site loads files from other hosts:\n" + "\n".join(foreign))
    print(f"built {SITE}: open {SITE}/index.html, or `make docs ARGS=--serve` for the search")


def serve() -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(ROOT / SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", PORT), handler) as server:
        print(f"http://localhost:{PORT}/ (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    build()
    if "--serve" in sys.argv[1:]:
        serve()
