"""Every name of the test kit can be imported from `unibus.testing`, and nothing is imported before it is used."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import unibus
from unibus import testing

HERE = Path(testing.__file__).parent
OWN = ("__init__", "plugin", "disk", "rig", "admission", "queues", "deadlines", "late_calls", "late_catalog")
"""The package itself, the fixtures, and files that only the others use."""


@pytest.mark.parametrize("name", testing.__all__)
def test_a_public_name_can_be_imported_and_is_what_its_home_has(name: str) -> None:
    found = getattr(testing, name)
    assert found is getattr(importlib.import_module(f"unibus.testing.{testing._HOMES[name]}"), name)
    assert name in dir(testing)


def test_the_table_and_the_public_names_are_the_same() -> None:
    assert sorted(testing._HOMES) == sorted(testing.__all__)
    assert len(set(testing.__all__)) == len(testing.__all__)


def test_every_file_of_the_kit_has_a_name_in_the_table() -> None:
    files = [path for path in HERE.rglob("*.py") if path.stem not in OWN]
    homes = set(testing._HOMES.values())
    assert {".".join(path.relative_to(HERE).with_suffix("").parts) for path in files} == homes


def test_every_part_of_the_contract_is_public() -> None:
    parts = {cls.__name__ for cls in testing.StoreContract.__bases__}
    assert parts == {name for name in testing.__all__ if name.endswith("Contract")} - {"StoreContract"}


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError, match="'no_such_name'"):
        testing.no_such_name  # noqa: B018


@pytest.mark.processes
def test_importing_the_kit_imports_none_of_it() -> None:
    code = "import sys, unibus.testing; print([name for name in sys.modules if name.startswith('unibus')])"
    source = str(Path(unibus.__file__).parents[1])
    # Isolated from the environment and from site packages' start-up files; the path is given, plain or compiled.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": source}
    )
    loaded = ast.literal_eval(done.stdout)
    assert [name for name in loaded if name.startswith("unibus.testing")] == ["unibus.testing"]
