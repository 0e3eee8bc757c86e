"""Rules about everything that is not Python: documents, the Makefile, and what no file may tell about a machine."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote

from tests.tidy.layout import MACHINE_FOLDERS, MAKE_TARGETS, REGISTRY_HOSTS
from tests.tidy.tree import Breach, Tree

_FENCE = re.compile(r"^ {0,3}(```|~~~).*?^ {0,3}\1[`~]*\s*$", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)|^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)", re.MULTILINE)
_ELSEWHERE = re.compile(r"^([a-z][a-z0-9+.-]*:|//|#)", re.IGNORECASE)

# Not after a word (docs/x), a host (host/x), ~, . or < : only a path that starts at the machine's root.
_MACHINE_PATH = re.compile(r"(?<![\w.~<$})-])/(?:" + "|".join(MACHINE_FOLDERS) + r")(?![\w-])")
_REGISTRY = re.compile("|".join(r"\b" + r"\.".join(host) + r"\b" for host in REGISTRY_HOSTS))
_INDEX_OPTION = re.compile(r"(?:index-url|index_url|find-links|trusted-host)[\s=\"']+[\w/]")

_TARGET = re.compile(r"^([A-Za-z][\w-]*)\s*:(?!=)(.*)$")


def links_lead_somewhere(tree: Tree) -> Iterator[Breach]:
    for path, text in tree.texts(".md"):
        prose = _INLINE_CODE.sub(_blank, _FENCE.sub(_blank, text))
        for match in _LINK.finditer(prose):
            target = match[1] or match[2]
            if _ELSEWHERE.match(target):
                continue
            line = prose.count("\n", 0, match.start()) + 1
            if not _exists(tree, path, unquote(target.partition("#")[0])):
                yield Breach(path, line, path, f"the link to {target} leads nowhere")


def _blank(match: re.Match[str]) -> str:
    """Code is no link; its line breaks stay, so that line numbers hold."""
    return "\n" * match[0].count("\n")


def _exists(tree: Tree, path: str, target: str) -> bool:
    found = (tree.root / PurePosixPath(path).parent / target).resolve()
    return found.is_relative_to(tree.root.resolve()) and found.exists()


def texts_name_no_machine(tree: Tree) -> Iterator[Breach]:
    for path, text in tree.texts():
        for number, line in enumerate(text.splitlines(), 1):
            if _MACHINE_PATH.search(line):
                yield Breach(path, number, path, "a path of one machine; others do not have it")
            if _REGISTRY.search(line) or _INDEX_OPTION.search(line):
                yield Breach(path, number, path, "a package registry; which one is the reader's choice")


def make_targets_explain_themselves(tree: Tree) -> Iterator[Breach]:
    makefile = tree.root / "Makefile"
    lines = makefile.read_text("utf-8").splitlines() if makefile.exists() else []
    targets = {match[1]: (number, match[2]) for number, line in enumerate(lines, 1) if (match := _TARGET.match(line))}
    for name, (number, rest) in targets.items():
        if not re.search(r"## \S", rest):
            yield Breach("Makefile", number, name, f"target {name} has no `## help`, so bare `make` hides it")
    for name in MAKE_TARGETS:
        if name not in targets:
            yield Breach("Makefile", 1, name, f"target {name} is promised and missing")
