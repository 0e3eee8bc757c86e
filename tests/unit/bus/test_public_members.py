"""The public classes show what users need: no claim, no command, no state of the bus."""

import ast
import importlib
from pathlib import Path

import pytest

from unibus import Received, SyncReceived

TOOL = Path(__file__).resolve().parents[3] / "tools" / "reference.py"


@pytest.mark.parametrize("kind", [Received, SyncReceived])
def test_a_received_message_has_no_public_internals(kind: type) -> None:
    assert {"claimed", "command", "mark_settled"}.isdisjoint(dir(kind))


def test_what_the_reference_leaves_out_exists() -> None:
    """A name that was changed would be shown again."""
    tree = ast.parse(TOOL.read_text("utf-8"))
    tables = [each for each in tree.body if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "HIDDEN"]
    hidden: dict[str, tuple[str, ...]] = ast.literal_eval(tables[0].value)
    assert hidden
    for path, names in hidden.items():
        module, _, kind = path.rpartition(".")
        found = importlib.import_module(module)
        assert hasattr(found, kind)
        source = Path(str(found.__file__).partition(".cpython")[0].removesuffix(".py") + ".py").read_text("utf-8")
        assert [name for name in names if f"def {name}(" not in source and f"self.{name}" not in source] == []
