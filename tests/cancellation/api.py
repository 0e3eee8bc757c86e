"""Every public call of the async interface that can be suspended, read from the source.

From the source and not from the classes: compiled ones do not tell what their methods return.
"""

import ast
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "src" / "unibus" / "bus"

CLASSES: Final = {
    "MessageBus": "api/message_bus.py",
    "BusOperations": "api/bus_operations.py",
    "Received": "queues/received.py",
    "SessionReceiver": "queues/receivers.py",
    "Subscription": "pubsub/subscription.py",
    "Transaction": "queues/transactions.py",
    "Entities": "entities/entities.py",
    "DeadLetterManager": "dead_letters/dead_letter_manager.py",
}
"""What a program gets from a MessageBus and may await something of."""

_SUSPENDS: Final = ("Awaitable", "Coroutine", "Pending", "AsyncIterator", "CancelledHandlers")
_BLOCKS: Final = ("__aenter__", "__aexit__")


def suspending_calls() -> set[str]:
    """As `Class.method`."""
    return {f"{name}.{method}" for name, path in CLASSES.items() for method in _methods(SOURCE / path, name)}


def _methods(path: Path, name: str) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    functions = [node for node in found.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name for node in functions if _is_public(node.name) and _can_suspend(node)}


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in _BLOCKS


def _can_suspend(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    returns = "" if node.returns is None else ast.unparse(node.returns)
    return isinstance(node, ast.AsyncFunctionDef) or any(word in returns for word in _SUSPENDS)
