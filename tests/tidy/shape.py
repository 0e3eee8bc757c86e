"""Rules about sizes and names: what one reader can hold in the head, and find again.

A limit reached is a question about the design, not a reason to cut a function in two at a random line.
"""

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.tidy.layout import (
    BASES_MAX,
    CLASS_SUFFIXES_BANNED,
    FILES_MAX,
    FUNCTION_LINES_MAX,
    METHODS_MAX,
    MODULE_LINES_MAX,
    MODULE_NAMES_BANNED,
    PACKAGE,
    PARAMETERS_MAX,
    PROMISED_NAMES,
)
from tests.tidy.tree import Breach, Module, Tree

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(module: Module) -> Iterator[tuple[str, Function]]:
    """(qualified name, node) of every function and method."""
    yield from _functions_below(module.tree, module.name)


def _functions_below(parent: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(parent):
        name = f"{prefix}.{node.name}" if isinstance(node, Function | ast.ClassDef) else prefix
        if isinstance(node, Function):
            yield name, node
        yield from _functions_below(node, name)


def _classes(module: Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))


def folders_are_small(tree: Tree) -> Iterator[Breach]:
    files: dict[str, list[str]] = {}
    for module in tree.modules:
        files.setdefault(str(PurePosixPath(module.path).parent), []).append(module.path)
    for folder, paths in files.items():
        if len(paths) > FILES_MAX:
            yield Breach(paths[0], 1, folder, f"{len(paths)} files, at most {FILES_MAX}: name the parts as folders")


def functions_fit_a_screen(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        for name, node in _functions(module):
            lines = sum(node.lineno <= line <= (node.end_lineno or 0) for line in module.code_lines)
            if lines > FUNCTION_LINES_MAX:
                yield Breach(module.path, node.lineno, name, f"{lines} code lines, at most {FUNCTION_LINES_MAX}")


def signatures_are_narrow(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        for name, node in _functions(module):
            spec = node.args
            taken = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, *filter(None, (spec.vararg, spec.kwarg))]
            count = sum(argument.arg not in {"self", "cls"} for argument in taken)
            if count > PARAMETERS_MAX:
                reason = f"{count} parameters, at most {PARAMETERS_MAX}: name a type"
                yield Breach(module.path, node.lineno, name, reason)


def modules_are_short(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        if len(module.code_lines) > MODULE_LINES_MAX:
            reason = f"{len(module.code_lines)} code lines, at most {MODULE_LINES_MAX}"
            yield Breach(module.path, 1, module.name, reason)


def classes_are_small(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        for node in _classes(module):
            # By name: the parts of a property and the overloads of a method are one thing to learn.
            methods = {child.name for child in node.body if isinstance(child, Function)}
            if len(methods) > METHODS_MAX:
                reason = f"{len(methods)} methods, at most {METHODS_MAX}"
                yield Breach(module.path, node.lineno, f"{module.name}.{node.name}", reason)


def interfaces_are_small(tree: Tree) -> Iterator[Breach]:
    """What a user of the class has to learn: its public methods, and those of its bases."""
    family = _family(tree)
    for name, (module, node) in family.items():
        methods = _public_methods(name, family)
        if len(methods) > METHODS_MAX:
            reason = f"{len(methods)} public methods with those of its bases, at most {METHODS_MAX}"
            yield Breach(module.path, node.lineno, f"{module.name}.{node.name}", reason)


def classes_are_shallow(tree: Tree) -> Iterator[Breach]:
    """Errors are a tree on purpose: a caller catches a branch of it."""
    family = _family(tree)
    for name, (module, node) in family.items():
        depth = _depth(name, family) - 1
        if depth > BASES_MAX and module.name != f"{PACKAGE}.errors":
            reason = f"{depth} bases of ours above it, at most {BASES_MAX}"
            yield Breach(module.path, node.lineno, f"{module.name}.{node.name}", reason)


def class_names_are_unique(tree: Tree) -> Iterator[Breach]:
    """So that a search for the name finds one thing."""
    seen: dict[str, str] = {}
    for module in tree.modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and seen.setdefault(node.name, module.name) != module.name:
                reason = f"{seen[node.name]} has a class {node.name} too"
                yield Breach(module.path, node.lineno, f"{module.name}.{node.name}", reason)


def calls_name_their_arguments(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and len(node.args) > PARAMETERS_MAX:
                reason = f"{len(node.args)} positional arguments, at most {PARAMETERS_MAX}: name them"
                yield Breach(module.path, node.lineno, f"{module.name}: {ast.unparse(node.func)}", reason)


def _family(tree: Tree) -> dict[str, tuple[Module, ast.ClassDef]]:
    """Classes by name, which is unique."""
    return {
        node.name: (module, node)
        for module in tree.modules
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
    }


def _bases(node: ast.ClassDef) -> list[str]:
    """`Base`, `module.Base` and `Base[T]` alike."""
    found = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return [base.attr if isinstance(base, ast.Attribute) else ast.unparse(base) for base in found]


def _depth(name: str, family: dict[str, tuple[Module, ast.ClassDef]]) -> int:
    return 1 + max((_depth(base, family) for base in _bases(family[name][1])), default=0) if name in family else 0


def _public_methods(name: str, family: dict[str, tuple[Module, ast.ClassDef]]) -> set[str]:
    if name not in family:
        return set()
    node = family[name][1]
    own = {child.name for child in node.body if isinstance(child, Function) and not child.name.startswith("_")}
    return own.union(*(_public_methods(base, family) for base in _bases(node)))


def module_names_say_something(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        for part in PurePosixPath(module.path).relative_to("src").with_suffix("").parts:
            if part in MODULE_NAMES_BANNED:
                yield Breach(module.path, 1, module.name, f"{part!r} says nothing; name what it holds")


def class_names_say_something(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        for node in _classes(module):
            if node.name.endswith(CLASS_SUFFIXES_BANNED) and node.name not in PROMISED_NAMES:
                name = f"{module.name}.{node.name}"
                yield Breach(module.path, node.lineno, name, "name the thing, not that it manages or helps")


def modules_say_why(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        if module.code_lines and not ast.get_docstring(module.tree):
            yield Breach(module.path, 1, module.name, "no docstring that says why the module exists")
