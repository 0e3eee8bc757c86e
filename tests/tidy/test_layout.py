"""This checkout keeps the layout rules."""

from pathlib import Path

import pytest

from tests.tidy.imports import misplaced_folders
from tests.tidy.layout import SUBPACKAGES
from tests.tidy.rules import RULES, Rule, breaches, unknown_rules
from tests.tidy.tree import Tree

CHECKOUT = Tree(Path(__file__).resolve().parents[2])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_checkout_keeps(rule: Rule) -> None:
    found = [str(breach) for breach in breaches(CHECKOUT, rule)]
    assert not found, "\n" + "\n".join(found)


def test_the_checkout_is_really_read() -> None:
    """Every rule above would pass on an empty folder."""
    assert {"unibus.errors", "unibus.core"} <= {module.name for module in CHECKOUT.modules}
    assert "src/unibus/core/__init__.py" in CHECKOUT.compiled
    assert {"pyproject.toml", "tests/tidy/test_layout.py"} <= set(CHECKOUT.files)


def test_every_exception_names_a_rule_and_a_reason() -> None:
    assert unknown_rules() == []


def test_folders_only_import_folders_that_are_listed_before_them() -> None:
    assert misplaced_folders(SUBPACKAGES) == []
    swapped = dict(reversed(SUBPACKAGES.items()))
    assert misplaced_folders(swapped) != []
