"""Every rule can fail: a small breach is planted for each, in a checkout that is otherwise clean.

The clean checkout holds lawful near misses too, so that a rule which shouts at everything fails as well.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tidy import conduct, imports, shape, texts
from tests.tidy.layout import (
    CLASS_SUFFIXES_BANNED,
    FILES_MAX,
    FUNCTION_LINES_MAX,
    MACHINE_FOLDERS,
    MAKE_TARGETS,
    METHODS_MAX,
    MODULE_LINES_MAX,
    MODULE_NAMES_BANNED,
    PARAMETERS_MAX,
    REGISTRY_HOSTS,
    WORLD_MODULES,
)
from tests.tidy.rules import RULES, Rule, breaches, unknown_rules
from tests.tidy.tree import Breach, Tree

WHY = '"""Why."""\n'
CORE = "src/unibus/core/planted.py"
BUS = "src/unibus/bus/planted.py"


def body(statement: str, count: int, indent: str = "    ") -> str:
    return f"{indent}{statement}\n" * count


def function(lines: int) -> str:
    """A function of that many code lines, and some more that do not count."""
    return 'def f() -> None:\n    """Free.\n\n    Free.\n    """\n    # Free.\n\n' + body("x = 1", lines - 1)


def methods(count: int) -> str:
    return "class Large:\n" + "".join(f"    def m{n}(self) -> None: ...\n" for n in range(count))


def parameters(count: int) -> str:
    return f"def f({', '.join(f'p{n}: int' for n in range(count))}) -> None: ...\n"


CLEAN = {
    "setup.py": 'HOT = ("core/*.py", "codecs/**/*.py")\nMARKABLE = ("bus/*.py",)\nMARKER = "# mypyc: compiled"\n',
    "Makefile": "".join(f"{name}: ## Help\n\t@true\n" for name in MAKE_TARGETS) + "NAME := value\n.PHONY: test\n",
    "README.md": "[a guide](docs/guide.md#part 't') [out](https://example.com/home) [here](#x)\n\n[r]: docs/guide.md\n"
    "\n```\n[code](nowhere.md)\n```\nand `[code](nowhere.md)`; see docs/work and ~/work and </root>\n",
    "docs/guide.md": "[back](../README.md)\n",
    "src/unibus/__init__.py": WHY + "from unibus.public import run\n",
    "src/unibus/public.py": WHY + "from unibus.bus.hot import run\n",
    "src/unibus/errors.py": WHY + "class BusError(Exception): ...\n",
    "src/unibus/core/__init__.py": "",
    "src/unibus/core/atomic.py": WHY + "from _thread import RLock\nfrom uuid import UUID\nimport msgspec\n",
    "src/unibus/core/rule.py": WHY
    + "from datetime import datetime\nfrom unibus.core import atomic\nfrom unibus.errors import BusError\n"
    + function(FUNCTION_LINES_MAX)
    + methods(METHODS_MAX)
    + parameters(PARAMETERS_MAX)
    + "def g(now: datetime) -> datetime: return now\n",
    "src/unibus/core/long.py": WHY + body("x = 1", MODULE_LINES_MAX, ""),
    "src/unibus/codecs/amqp/frame.py": WHY + "import struct\n",
    "src/unibus/bus/hot.py": WHY
    + "# mypyc: compiled\nimport time\nfrom unibus.core.rule import f\n"
    + "def run() -> None:\n    try:\n        f()\n    except Exception as error:\n        failed(error)\n"
    + "    try:\n        f()\n    except BaseException:\n        raise\n"
    + "    try:\n        f()\n    except Exception:\n        log.exception('f')\n"
    + "    try:\n        f()\n    except ValueError:\n        pass\n",
    "src/unibus/bus/shell.py": WHY + "from typing import Any\nx: Any = 1  # type: ignore[assignment]\n",
    "src/unibus/bus/empty.py": "# Nothing yet.\n",
    "src/unibus/bus/dead_letter_copy.py": WHY + "class DeadLetterManager: ...\nclass Database: ...\n",
    "src/unibus/pipeline/job.py": WHY + "import pyspark\nfrom unibus.bus.hot import run\n",
    "src/pyspark_unibus/__init__.py": WHY + "from unibus.pipeline.job import pyspark\n",
    "src/unibus/config.py": WHY + "import yaml\nx = yaml.safe_load('')\n",
}


class Plant(NamedTuple):
    """A breach of `rule`, expected at `line` of `path`."""

    rule: Rule
    path: str
    text: str
    line: int
    others: tuple[tuple[str, str], ...] = ()


def after_why(rule: Rule, path: str, *code: str) -> list[Plant]:
    return [Plant(rule, path, WHY + text, 2) for text in code]


EXCEPT = "try:\n    f()\n{}\n    {}\n"
SLASH = "/"

PLANTS: list[Plant] = [
    Plant(imports.packages_are_known, "src/unibus/attic/thing.py", WHY, 1),
    Plant(imports.packages_are_known, "src/unibus/attic.py", WHY, 1),
    Plant(imports.packages_are_known, "src/core/__init__.py", WHY, 1),
    *after_why(imports.packages_import_what_they_may, CORE, "import unibus.bus.hot\n", "from unibus.stores import x\n"),
    *after_why(imports.packages_import_what_they_may, CORE, "def f() -> None: from unibus.bus.hot import run\n"),
    *after_why(imports.packages_import_what_they_may, "src/unibus/codecs/zmtp.py", "from unibus.core.rule import f\n"),
    *after_why(
        imports.packages_import_what_they_may, "src/pyspark_unibus/__init__.py", "from unibus.bus.hot import run\n"
    ),
    *after_why(imports.packages_import_what_they_may, "src/unibus/limits.py", "from unibus.errors import BusError\n"),
    *after_why(imports.packages_import_what_they_may, "src/unibus/endpoints/http.py", "import unibus.stores.x\n"),
    *after_why(imports.packages_import_what_they_may, BUS, "from unibus import cli\n"),
    Plant(imports.packages_are_known, "src/unibus/bus/attic/thing.py", WHY, 1),
    Plant(
        imports.folders_import_what_they_may,
        "src/unibus/bus/pubsub/planted.py",
        WHY + "from unibus.bus.api.top import run\n",
        2,
        (("src/unibus/bus/api/top.py", WHY + "from unibus.bus.hot import run\n"),),
    ),
    Plant(
        shape.folders_are_small,
        "src/unibus/bus/queues/a00.py",
        WHY,
        1,
        tuple((f"src/unibus/bus/queues/b{number}.py", WHY) for number in range(FILES_MAX)),
    ),
    *after_why(imports.imports_are_absolute, BUS, "from . import hot\n", "from ..core import x\n"),
    *after_why(imports.nothing_imports_the_root, BUS, "import unibus\n", "from unibus import errors\n"),
    Plant(
        imports.modules_have_no_cycles,
        "src/unibus/bus/a.py",
        WHY + "from unibus.bus.b import x\n",
        1,
        (
            ("src/unibus/bus/b.py", WHY + "if TYPE_CHECKING:\n    from unibus.bus import c\n"),
            ("src/unibus/bus/c.py", WHY + "def f() -> None:\n    import unibus.bus.a\n"),
        ),
    ),
    Plant(
        imports.modules_have_no_cycles,
        "src/unibus/stores/__init__.py",
        WHY + "from unibus.stores.part import x\n",
        1,
        (("src/unibus/stores/part.py", WHY + "from unibus.stores import y\n"),),
    ),
    *after_why(imports.third_party_stays_in_its_package, CORE, "import apsw\n", "import pyspark.sql\n"),
    *after_why(imports.third_party_stays_in_its_package, "src/unibus/clock.py", "import msgspec\n"),
    *after_why(imports.third_party_stays_in_its_package, BUS, "from pyspark import sql\n", "import numpy\n"),
    Plant(
        shape.interfaces_are_small,
        CORE,
        WHY + methods(METHODS_MAX).replace("Large", "Many") + "class More(Many):\n    def n(self) -> None: ...\n",
        METHODS_MAX + 3,
    ),
    Plant(
        shape.classes_are_shallow,
        CORE,
        WHY + "class A: ...\nclass B(A): ...\nclass C(B): ...\nclass D(C): ...\n",
        5,
    ),
    Plant(shape.class_names_are_unique, "src/unibus/public.py", WHY + "class BusError: ...\n", 2),
    *after_why(shape.calls_name_their_arguments, BUS, f"x = f({', '.join('1' for _ in range(PARAMETERS_MAX + 1))})\n"),
    *after_why(
        conduct.texts_use_plain_words, BUS, "raise BusError('nobody has the key')\n", "log.error('%d letters', 1)\n"
    ),
    *after_why(conduct.texts_use_plain_words, BUS, "x = Option('--x', help='Mend the file.')\n"),
    *after_why(shape.functions_fit_a_screen, CORE, function(FUNCTION_LINES_MAX + 1)),
    *after_why(shape.signatures_are_narrow, CORE, parameters(PARAMETERS_MAX + 1)),
    *after_why(
        shape.signatures_are_narrow, CORE, parameters(PARAMETERS_MAX).replace(") ->", ", *rest: int, **more: int) ->")
    ),
    Plant(shape.modules_are_short, CORE, WHY + body("x = 1", MODULE_LINES_MAX + 1, ""), 1),
    *after_why(shape.classes_are_small, CORE, methods(METHODS_MAX + 1)),
    *(Plant(shape.module_names_say_something, f"src/unibus/bus/{n}.py", WHY, 1) for n in MODULE_NAMES_BANNED),
    Plant(shape.module_names_say_something, "src/unibus/bus/helpers/thing.py", WHY, 1),
    *after_why(shape.class_names_say_something, BUS, *(f"class Thing{s}: ...\n" for s in CLASS_SUFFIXES_BANNED)),
    Plant(shape.modules_say_why, BUS, "x = 1\n", 1),
    Plant(shape.modules_say_why, "src/unibus/bus/__init__.py", "from unibus.bus.hot import run\n", 1),
    *(
        Plant(conduct.broad_excepts_report, BUS, WHY + EXCEPT.format(caught, act), 4)
        for caught in ("except:", "except Exception:", "except BaseException:", "except (OSError, Exception):")
        for act in ("pass", "return_to_safety()")
    ),
    Plant(conduct.broad_excepts_report, BUS, WHY + EXCEPT.format("except Exception as e:", "e = None"), 4),
    *after_why(conduct.broad_excepts_report, BUS, "with contextlib.suppress(Exception): f()\n"),
    *after_why(conduct.data_never_becomes_code, BUS, "import pickle\n", "from pickle import loads\n", "eval('1')\n"),
    *after_why(conduct.data_never_becomes_code, BUS, "exec('1')\n", "yaml.load('')\n", "from yaml import load\n"),
    *after_why(conduct.pure_packages_touch_nothing, CORE, *(f"import {name}\n" for name in WORLD_MODULES)),
    *after_why(conduct.pure_packages_touch_nothing, CORE, "from time import time_ns\n", "import os.path\n"),
    *after_why(conduct.pure_packages_touch_nothing, CORE, "from uuid import uuid4\n", "from _thread import RLock\n"),
    *after_why(conduct.pure_packages_touch_nothing, CORE, "open('x')\n", "print('x')\n", "input()\n", "eval('x')\n"),
    *after_why(conduct.pure_packages_touch_nothing, CORE, "exec('x')\n", "datetime.now()\n", "dt.datetime.utcnow()\n"),
    *after_why(conduct.pure_packages_touch_nothing, CORE, "date.today()\n", "from unibus.clock import SYSTEM_CLOCK\n"),
    *after_why(conduct.pure_packages_touch_nothing, "src/unibus/codecs/amqp/peer.py", "import socket\n"),
    *after_why(conduct.compiled_files_are_fully_typed, CORE, "x: Any = 1\n", "x: typing.Any = 1\n"),
    *after_why(conduct.compiled_files_are_fully_typed, CORE, "x: int = ''  # type: ignore\n"),
    *after_why(conduct.compiled_files_are_fully_typed, CORE, "x: int = ''  #type:ignore[assignment]\n"),
    Plant(conduct.compiled_files_are_fully_typed, BUS, WHY + "# mypyc: compiled\nx: dict[str, Any] = {}\n", 3),
    Plant(conduct.compiled_files_stay_out_of_src, "src/unibus/core/rule.cpython-311.so", "", 1),
    Plant(conduct.compiled_files_stay_out_of_src, "src/unibus/bus/hot.c", "", 1),
    Plant(texts.links_lead_somewhere, "docs/new.md", "\n[x](gone.md)\n", 2),
    Plant(texts.links_lead_somewhere, "docs/new.md", '```\n\n```\n\n![x](gone.png "t")\n', 5),
    Plant(texts.links_lead_somewhere, "docs/new.md", "[x]: gone.md#part\n", 1),
    Plant(texts.links_lead_somewhere, "docs/new.md", "[x](../../outside.md)\n", 1),
    *(Plant(texts.texts_name_no_machine, "tools/x", f"\ncd {SLASH}{name}/x\n", 2) for name in MACHINE_FOLDERS),
    Plant(texts.texts_name_no_machine, "tools/x", f'path = "{SLASH}{MACHINE_FOLDERS[0]}"\n', 1),
    *(Plant(texts.texts_name_no_machine, "docs/x.md", f"https://{'.'.join(host)}/x\n", 1) for host in REGISTRY_HOSTS),
    Plant(texts.texts_name_no_machine, "tools/x", f"pip install --{'index'}-url http:{SLASH}/mirror/simple x\n", 1),
    Plant(
        texts.make_targets_explain_themselves, "Makefile", CLEAN["Makefile"] + "new: test\n", 2 * len(MAKE_TARGETS) + 3
    ),
    *(
        Plant(texts.make_targets_explain_themselves, "Makefile", CLEAN["Makefile"].replace(f"{name}: ##", "x: ##"), 1)
        for name in MAKE_TARGETS
    ),
]


def write(root: Path, files: Iterable[tuple[str, str]]) -> None:
    for path, text in files:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    write(root, CLEAN.items())
    return root


@pytest.fixture
def checkout(clean: Path) -> Iterator[Callable[..., Tree]]:
    """The clean checkout with more files planted in it; cleaned up afterwards."""
    planted: dict[str, str] = {}

    def build(*files: tuple[str, str]) -> Tree:
        planted.update(files)
        write(clean, files)
        return Tree(clean)

    yield build
    for path in planted:
        (clean / path).unlink()
    write(clean, ((path, CLEAN[path]) for path in planted if path in CLEAN))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_clean_checkout_keeps(rule: Rule, checkout: Callable[..., Tree]) -> None:
    assert list(rule(checkout())) == []


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.rule.__name__}-{plant.text[-40:]!r}")
def test_a_planted_breach_is_found(plant: Plant, checkout: Callable[..., Tree]) -> None:
    tree = checkout((plant.path, plant.text), *plant.others)
    assert {(breach.path, breach.line) for breach in plant.rule(tree)} == {(plant.path, plant.line)}


def test_every_rule_has_a_plant() -> None:
    assert {plant.rule for plant in PLANTS} == set(RULES)


def test_two_cycles_are_both_named(checkout: Callable[..., Tree]) -> None:
    edges = {"a": "b", "b": "a", "c": "d", "d": "c", "e": "a"}
    tree = checkout(*((f"src/unibus/bus/{n}.py", f"{WHY}import unibus.bus.{to}\n") for n, to in edges.items()))
    reasons = [breach.reason for breach in imports.modules_have_no_cycles(tree)]
    assert reasons == [
        "import cycle: unibus.bus.a -> unibus.bus.b -> unibus.bus.a",
        "import cycle: unibus.bus.c -> unibus.bus.d -> unibus.bus.c",
    ]


def test_an_exception_excuses_its_subject_only(checkout: Callable[..., Tree]) -> None:
    tree = checkout((CORE, WHY + methods(METHODS_MAX + 1) + methods(METHODS_MAX + 1).replace("Large", "Larger")))
    excused = {("classes_are_small", "unibus.core.planted.Large"): "a reason"}
    assert [b.subject for b in breaches(tree, shape.classes_are_small, excused)] == ["unibus.core.planted.Larger"]


def test_an_exception_that_excuses_nothing_is_a_breach(checkout: Callable[..., Tree]) -> None:
    stale = {("classes_are_small", "unibus.core.rule.Gone"): "a reason"}
    assert [b.subject for b in breaches(checkout(), shape.classes_are_small, stale)] == ["unibus.core.rule.Gone"]
    assert list(breaches(checkout(), shape.modules_are_short, stale)) == []


def test_an_exception_needs_a_known_rule_and_a_reason() -> None:
    assert unknown_rules({("no_such_rule", "x"): "a reason"}) == ["no_such_rule: x"]
    assert unknown_rules({("classes_are_small", "x"): " "}) == ["classes_are_small: x"]
    assert unknown_rules({("classes_are_small", "x"): "a reason"}) == []


def test_a_breach_prints_as_a_place_that_an_editor_can_open() -> None:
    assert str(Breach("src/x.py", 3, "unibus.x", "why")) == "src/x.py:3: why [unibus.x]"
