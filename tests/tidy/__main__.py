"""`python -m tests.tidy` prints every breach of this checkout and fails when there is one."""

import sys
from pathlib import Path

from tests.tidy.rules import RULES, breaches, unknown_rules
from tests.tidy.tree import Tree

tree = Tree(Path(__file__).resolve().parents[2])
found = [str(breach) for rule in RULES for breach in breaches(tree, rule)]
found += [f"tests/tidy/layout.py:1: exception without a rule or a reason: {entry}" for entry in unknown_rules()]
print(*found, sep="\n", end="\n" if found else "")
print(f"tidy: {len(RULES)} rules, {len(tree.modules)} modules, {len(found)} breaches")
sys.exit(bool(found))
