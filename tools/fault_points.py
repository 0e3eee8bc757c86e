"""A copy of the sources in which every compiled function begins with a point at which a test can raise.

Compiled code cannot be traced, so the points are written into it. Only the copy in .build/faults has them; it is
compiled like the package itself (`prepare.py faults`), and tests/soak/test_exceptions.py runs on it.

    fault_points.py TARGET      writes TARGET/src, TARGET/setup.py and TARGET/pyproject.toml
"""

import ast
import importlib.util
import shutil
import sys
from pathlib import Path

PACKAGES = ("core/lifecycle/", "stores/")
"""Where an exception between a decision and its answer could come from."""

HOOK = '''"""Called at the beginning of every function that has a point. Only in packages that are built for tests."""

from collections.abc import Callable

hook: Callable[[str], None] | None = None


def reached(where: str) -> None:
    if hook is not None:
        hook(where)
'''


def with_points(source: str, name: str) -> str:
    """The source with a call of `reached` as the first statement of each function."""
    lines = source.split("\n")
    tree = ast.parse(source)
    places: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if statements and statements[0].lineno > node.lineno:
                first = statements[0]
                indent = " " * first.col_offset
                places.append((first.lineno - 1, f'{indent}reached("{name}:{node.lineno} {node.name}")'))
    header = tree.body[1] if ast.get_docstring(tree) is not None else tree.body[0]
    places.append((header.lineno - 1, "from unibus.fault_points import reached"))
    for line, text in sorted(places, reverse=True):
        lines.insert(line, text)
    return "\n".join(lines)


def compiled_files() -> list[str]:
    specification = importlib.util.spec_from_file_location("setup_of_unibus", "setup.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    found: list[str] = module.hot_files()
    return found


def main(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree("src", target / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(name, target / name)
    (target / "src/unibus/fault_points.py").write_text(HOOK, "utf-8")
    chosen = [name for name in compiled_files() if name.removeprefix("src/unibus/").startswith(PACKAGES)]
    for name in chosen:
        path = target / name
        path.write_text(with_points(path.read_text("utf-8"), name), "utf-8")
    print(f"{len(chosen)} compiled files with fault points in {target}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
