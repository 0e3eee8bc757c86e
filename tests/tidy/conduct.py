"""Rules about what code may do: hide no error, run no data, and in the pure packages touch nothing of the world."""

import ast
import re
from collections.abc import Iterator

from tests.tidy.layout import (
    CODE_CALLS,
    CODE_MODULES,
    REPORTING_CALLS,
    WORDS_BANNED,
    WORLD_CALLS,
    WORLD_METHODS,
    WORLD_MODULES,
    WORLD_MODULES_ALLOWED,
    WORLD_NAMES_ALLOWED,
    YAML_CALLS,
)
from tests.tidy.tree import Breach, Import, Module, Tree

PURE_PACKAGES = frozenset({"core", "codecs"})


def _calls(module: Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))


def broad_excepts_report(tree: Tree) -> Iterator[Breach]:
    """A handler for everything has to raise, to use the error it caught, or to log."""
    reason = "a broad except that neither raises, nor uses the error, nor logs it hides a bug"
    for module in tree.modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node.type) and not _reports(node):
                yield Breach(module.path, node.lineno, module.name, reason)
        for call in _calls(module):
            if ast.unparse(call.func).endswith("suppress") and any(map(_is_broad, call.args)):
                yield Breach(module.path, call.lineno, module.name, reason)


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(map(_is_broad, caught.elts))
    return caught is None or ast.unparse(caught).removeprefix("builtins.") in {"Exception", "BaseException"}


def _reports(handler: ast.ExceptHandler) -> bool:
    return any(_tells(node, handler.name) for statement in handler.body for node in ast.walk(statement))


def _tells(node: ast.AST, caught: str | None) -> bool:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return node.id == caught
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in REPORTING_CALLS
    return isinstance(node, ast.Raise)


def data_never_becomes_code(tree: Tree) -> Iterator[Breach]:
    for module in tree.modules:
        for there in module.imports:
            if there.top in CODE_MODULES:
                yield Breach(module.path, there.line, module.name, f"{there.top} runs what it reads")
            elif there.module == "yaml" and there.name in YAML_CALLS:
                yield Breach(module.path, there.line, module.name, f"yaml.{there.name} runs what it reads: safe_load")
        for call in _calls(module):
            name = ast.unparse(call.func)
            if name.removeprefix("builtins.") in CODE_CALLS or name in {f"yaml.{load}" for load in YAML_CALLS}:
                yield Breach(module.path, call.lineno, module.name, f"{name} runs what it reads")


def pure_packages_touch_nothing(tree: Tree) -> Iterator[Breach]:
    """Time, chance, identity and I/O enter as arguments, so that a run can be replayed from a seed."""
    for module in tree.modules:
        if module.package not in PURE_PACKAGES:
            continue
        for there in module.imports:
            if (reason := _touches(module, there)) is not None:
                yield Breach(module.path, there.line, module.name, f"{reason}: take an argument")
        for call in _calls(module):
            name = ast.unparse(call.func)
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if name.removeprefix("builtins.") in WORLD_CALLS or method in WORLD_METHODS:
                yield Breach(module.path, call.lineno, module.name, f"{name}() touches the world: take an argument")


def _touches(module: Module, there: Import) -> str | None:
    if there.module == "unibus.clock" and there.name == "SYSTEM_CLOCK":
        return "SYSTEM_CLOCK reads a clock"
    if there.top not in WORLD_MODULES or (module.name, there.top) in WORLD_MODULES_ALLOWED:
        return None
    if there.name in WORLD_NAMES_ALLOWED.get(there.module, ()):
        return None
    return f"{there.top} {WORLD_MODULES[there.top]}"


def compiled_files_are_fully_typed(tree: Tree) -> Iterator[Breach]:
    """mypyc is as fast as the types are exact: Any is a dictionary look-up, and an ignored error a crash."""
    for module in tree.modules:
        if module.path not in tree.compiled:
            continue
        for line, text in module.comments:
            if text.replace(" ", "").startswith("#type:ignore"):
                yield Breach(module.path, line, module.name, "a type error is ignored in a compiled file")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).rpartition(".")[2] == "Any":
                yield Breach(module.path, node.lineno, module.name, "Any in a compiled file")


def compiled_files_stay_out_of_src(tree: Tree) -> Iterator[Breach]:
    for pattern in ("*.so", "*.pyd", "*.c"):
        for path in tree.source_files(pattern):
            yield Breach(path, 1, path, "a built file in src shadows the source beside it: make clean")


def texts_use_plain_words(tree: Tree) -> Iterator[Breach]:
    """Errors, hints, log lines and help texts, which users read without the code around them."""
    banned = re.compile(rf"\b(?:{'|'.join(WORDS_BANNED)})\b", re.IGNORECASE)
    errors = {node.name for module in tree.modules if module.name.endswith(".errors") for node in _classes(module)}
    for module in tree.modules:
        for call in _calls(module):
            for text in _texts(call, errors):
                if found := banned.search(text.value):
                    yield Breach(module.path, text.lineno, module.name, f"{found[0]!r} in {text.value[:60]!r}")


def _classes(module: Module) -> Iterator[ast.ClassDef]:
    return (node for node in module.tree.body if isinstance(node, ast.ClassDef))


def _texts(call: ast.Call, errors: set[str]) -> Iterator[ast.Constant]:
    name = ast.unparse(call.func).rpartition(".")[2]
    read = [keyword.value for keyword in call.keywords if keyword.arg == "help"]
    if name in errors or name in REPORTING_CALLS:
        read += call.args
    for argument in read:
        for node in ast.walk(argument):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node
