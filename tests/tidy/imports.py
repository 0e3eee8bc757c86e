"""Rules about who may import whom: the architecture of the house.

An import counts wherever it stands, inside a function or under TYPE_CHECKING too: what a file has to know
is the same, whenever it learns it.
"""

import sys
from collections.abc import Iterator

from tests.tidy.house import GROUND, PACKAGE, ROOMS, THIRD_PARTY
from tests.tidy.tree import Breach, Import, Module, Tree


def rooms_are_known(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        if module.room not in ROOMS and module.room not in GROUND:
            yield Breach(module.path, 1, module.room, f"{module.room!r} is no room of the house; see house.py")


def rooms_import_what_they_may(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        allowed = frozenset() if module.room in GROUND else ROOMS.get(module.room, frozenset()) | GROUND
        for there in module.imports:
            room = _room_of(there)
            if room is not None and room != module.room and room not in allowed:
                yield Breach(module.path, there.line, module.name, f"{module.room} may not import {room}")


def _room_of(there: Import) -> str | None:
    """The room of ours that an import reaches, if any."""
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
                yield Breach(module.path, there.line, module.name, f"imports {PACKAGE} itself; import the room instead")


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


def third_party_stays_in_its_room(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        allowed = THIRD_PARTY.get(module.room, frozenset())
        for there in module.imports:
            if there.level or there.top == PACKAGE or there.top in sys.stdlib_module_names:
                continue
            if there.top not in allowed:
                yield Breach(module.path, there.line, module.name, f"{module.room} may not depend on {there.top}")
