"""A checkout as the rules see it: parsed modules, text files, and what `setup.py` compiles.

Reads files and git's list of them; judges nothing.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from tests.tidy.layout import PACKAGE, SOURCE

_MADE_BY_TOOLS = r"\.git|\.venv|\.build|build|dist|__pycache__|\.[a-z]+_cache|\.hypothesis|[^/]+\.egg-info"
_SKIPPED = re.compile(f"(^|/)({_MADE_BY_TOOLS})/")
_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Breach:
    """One place that breaks one rule. `subject` is what an entry in the table of exceptions names."""

    path: str
    line: int
    subject: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason} [{self.subject}]"


@dataclass(frozen=True)
class Import:
    """One imported name: `from a.b import c` has module a.b and name c, `import a.b` has no name."""

    line: int
    module: str
    name: str | None
    level: int

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


@dataclass(frozen=True)
class Module:
    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.path)

    @cached_property
    def name(self) -> str:
        """Dotted; a package carries the name of its folder."""
        parts = PurePosixPath(self.path).relative_to("src").with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def package(self) -> str:
        """The package of ours that it belongs to, or the base module that it is."""
        parts = PurePosixPath(self.path).relative_to("src").parts
        return parts[1].removesuffix(".py") if parts[0] == PACKAGE else f"../{parts[0]}"

    @cached_property
    def folder(self) -> str:
        """Dotted, relative to our package: `bus.pubsub`."""
        parts = PurePosixPath(self.path).relative_to("src").parts
        return ".".join(parts[1:-1]) if parts[0] == PACKAGE and len(parts) > 2 else self.package

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(_imports(self.tree))

    @cached_property
    def code_lines(self) -> frozenset[int]:
        """Lines that hold code: not blank, no comment, and no bare string, which documents wherever it stands."""
        tokens = tokenize.generate_tokens(io.StringIO(self.source).readline)
        lines = {n for t in tokens if t.type not in _NOT_CODE for n in range(t.start[0], t.end[0] + 1)}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and type(node.value.value) is str:
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return frozenset(lines)

    @cached_property
    def comments(self) -> tuple[tuple[int, str], ...]:
        tokens = tokenize.generate_tokens(io.StringIO(self.source).readline)
        return tuple((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)


def _imports(tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, None, 0)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield Import(node.lineno, node.module or "", alias.name, node.level)


@dataclass(frozen=True)
class Tree:
    """`root` is the folder that holds pyproject.toml; every path below is relative to it, with slashes."""

    root: Path

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        return tuple(Module(path, (self.root / path).read_text("utf-8")) for path in self.source_files("*.py"))

    def source_files(self, pattern: str) -> list[str]:
        """Of our package and of the one beside it."""
        found = (path.relative_to(self.root).as_posix() for path in (self.root / "src").rglob(pattern))
        return sorted(path for path in found if not _SKIPPED.search(path))

    @cached_property
    def files(self) -> tuple[str, ...]:
        """What git tracks or would track; without git, everything outside the folders that tools make."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        try:
            listed = subprocess.run(command, cwd=self.root, capture_output=True, check=True, encoding="utf-8").stdout
        except (OSError, subprocess.CalledProcessError):
            walked = (path.relative_to(self.root).as_posix() for path in self.root.rglob("*"))
            return tuple(sorted(path for path in walked if not _SKIPPED.search(path) and (self.root / path).is_file()))
        return tuple(sorted(path for path in listed.split("\0") if path and (self.root / path).is_file()))

    def texts(self, suffix: str = "") -> Iterator[tuple[str, str]]:
        """(path, text) of every tracked file that is text."""
        for path in self.files:
            if path.endswith(suffix):
                data = (self.root / path).read_bytes()
                if b"\0" not in data:
                    yield path, data.decode("utf-8", "replace")

    @cached_property
    def compiled(self) -> frozenset[str]:
        """Paths of the compile group, as the three constants at the top of setup.py say."""
        constants = _constants((self.root / "setup.py").read_text("utf-8"))
        source = self.root / SOURCE
        hot = {path for pattern in constants["HOT"] for path in source.glob(pattern)}
        markable = {path for pattern in constants["MARKABLE"] for path in source.glob(pattern)}
        marker = constants["MARKER"]
        hot |= {path for path in markable if marker in path.read_text("utf-8").splitlines()}
        return frozenset(path.relative_to(self.root).as_posix() for path in hot)


def _constants(source: str) -> dict[str, tuple[str, ...] | str]:
    found: dict[str, tuple[str, ...] | str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
            found[node.targets[0].id] = ast.literal_eval(node.value)
    return found
