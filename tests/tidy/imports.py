"""Rules about who may import whom: the architecture.

An import counts wherever it is, inside a function or under TYPE_CHECKING too: what a file has to know is the same,
whenever it is imported.
"""

import sys
from collections.abc import Iterator, Mapping

from tests.tidy.layout import BASE, EDGES, PACKAGE, PACKAGES, SUBPACKAGES, THIRD_PARTY
from tests.tidy.tree import Breach, Import, Module, Tree


def packages_are_known(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        if module.package not in PACKAGES and module.package not in BASE:
            yield Breach(
                module.path, 1, module.package, f"{module.package!r} is no package of the layout; see layout.py"
            )
        elif "." in module.folder and module.folder not in SUBPACKAGES and module.package in _divided():
            yield Breach(module.path, 1, module.folder, f"layout.py has no folder {module.folder!r}")


def packages_import_what_they_may(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        allowed = frozenset() if module.package in BASE else PACKAGES.get(module.package, frozenset()) | BASE
        for there in module.imports:
            package = _package_of(there)
            if package is None or package == module.package or package in allowed:
                continue
            if f"{there.module}.{there.name}".removeprefix(f"{PACKAGE}.").startswith(tuple(_edges_of(module))):
                continue
            yield Breach(module.path, there.line, module.name, f"{module.package} may not import {package}")


def folders_import_what_they_may(tree: Tree) -> Iterator[Breach]:
    """Inside of a package that has folders. An `__init__` that hands names on belongs to its folder."""
    folders = {module.name: module.folder for module in tree.modules}
    for module in tree.modules:
        for there in module.imports:
            folder = folders.get(f"{there.module}.{there.name}", folders.get(there.module))
            if folder is None or folder == module.folder or folder.partition(".")[0] != module.package:
                continue
            if module.package in _divided() and folder not in SUBPACKAGES.get(module.folder, frozenset()):
                yield Breach(module.path, there.line, module.name, f"{module.folder} may not import {folder}")


def misplaced_folders(table: Mapping[str, frozenset[str]]) -> list[str]:
    """Folders that may import one which is not listed before them."""
    listed = list(table)
    return [folder for at, folder in enumerate(listed) if not table[folder] <= set(listed[:at])]


def _divided() -> set[str]:
    """Packages whose folders are listed."""
    return {folder.partition(".")[0] for folder in SUBPACKAGES}


def _edges_of(module: Module) -> frozenset[str]:
    return EDGES.get(module.folder, frozenset({"?"}))


def _package_of(there: Import) -> str | None:
    """The package of ours that an import reaches, if any."""
    if there.top != PACKAGE or there.level:
        return None
    parts = there.module.split(".")
    return parts[1] if len(parts) > 1 else there.name


def imports_are_absolute(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        for there in module.imports:
            if there.level:
                yield Breach(module.path, there.line, module.name, "relative import; a full name can be searched for")


def nothing_imports_the_root(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        for there in module.imports:
            if there.module == PACKAGE and not there.level:
                yield Breach(module.path, there.line, module.name, f"imports {PACKAGE} itself; import the module")


def modules_have_no_cycles(tree: Tree) -> Iterator[Breach]:
    modules = {module.name: module for module in tree.modules}
    edges = {name: _reached(module, modules) for name, module in modules.items()}
    while _peel(edges):
        cycle = _cycle(edges)
        first = modules[min(cycle)]
        yield Breach(first.path, 1, first.name, "import cycle: " + " -> ".join((*cycle, cycle[0])))
        for name in cycle:
            del edges[name]


def _reached(module: Module, modules: dict[str, Module]) -> set[str]:
    reached = set()
    for there in module.imports:
        # `from unibus.core import queue` reaches the module queue, not only its package.
        names = (f"{there.module}.{there.name}", there.module)
        reached.add(next((name for name in names if name in modules), module.name))
    return reached - {module.name}


def _peel(edges: dict[str, set[str]]) -> bool:
    """Drop what cannot be part of a cycle, because it imports nothing that is left. Whether anything remains."""
    while True:
        for name in edges:
            edges[name] &= edges.keys()
        leaves = [name for name, targets in edges.items() if not targets]
        if not leaves:
            return bool(edges)
        for name in leaves:
            del edges[name]


def _cycle(edges: dict[str, set[str]]) -> tuple[str, ...]:
    """Every module left imports another one left, so a walk must come back to where it was."""
    walk = [min(edges)]
    while (step := min(edges[walk[-1]])) not in walk:
        walk.append(step)
    return tuple(walk[walk.index(step) :])


def third_party_stays_in_its_package(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        allowed = THIRD_PARTY.get(module.package, frozenset())
        for there in module.imports:
            if there.level or there.top == PACKAGE or there.top in sys.stdlib_module_names:
                continue
            if there.top not in allowed:
                yield Breach(module.path, there.line, module.name, f"{module.package} may not depend on {there.top}")
