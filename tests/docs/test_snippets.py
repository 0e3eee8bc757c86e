"""Every snippet of the README and the guide runs unchanged, and prints what it claims to print."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unibus
from tests.docs import snippets
from tests.docs.snippets import blocks

ROOT = Path(__file__).resolve().parents[2]
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
ELSEWHERE = {"spark"}
"""Pages whose snippets need a Spark session: tests/pipeline/test_source_guide.py runs them in an existing session."""
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "README.md", *(page for page in GUIDE if page.stem not in ELSEWHERE)]


def run(*documents: Path) -> dict[str, list[str]]:
    """What is wrong with each document. One process runs all: it starts the interpreter once, and forks."""
    search = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": search, **snippets.SHOWN}
    command = [sys.executable, "-W", "error", "-m", snippets.__name__, *map(str, documents)]
    limit_s = snippets.TIMEOUT_S * (1 + len(documents))
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=limit_s)
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    assert (list(found), done.returncode) == (list(map(str, documents)), int(any(found.values()))), done.stderr
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return run(*DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_snippets_run(document: Path, found: dict[str, list[str]]) -> None:
    assert any(block.language == "python" or block.marked for block in blocks(document.read_text("utf-8")))
    assert found[str(document)] == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    pages = [*GUIDE, *sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    assert pages
    assert [page.name for page in pages if f"/{page.name})" not in index] == []


def test_the_changelog_names_what_a_user_can_use() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    exported = [name for name in unibus.__all__ if not _is_error(getattr(unibus, name))]
    methods = [name for name in dir(unibus.MessageBus) if not name.startswith("_")]
    assert exported
    assert methods
    assert [name for name in exported + methods if f"`{name}`" not in text] == []


def _is_error(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, unibus.BusError)


def test_a_figure_in_the_readme_names_its_benchmark() -> None:
    named = re.findall(r"python -m benchmarks (\w+)", (ROOT / "README.md").read_text("utf-8"))
    known = {path.stem.removesuffix("_report") for path in (ROOT / "benchmarks").glob("*.py")}
    assert named
    assert set(named) <= known


# A check that cannot fail is worth nothing: each of these documents is wrong, and the runner must report it.
WRONG = {
    "raises": ("```python\n1 / 0\n```", "ZeroDivisionError"),
    "raises on a later block": ("```python\na = 1\n```\n\n```python\na.nothing\n```", 'document.md", line 6'),
    "does not parse": ("```python\ndef\n```", "SyntaxError"),
    "prints something else": ("```python\nprint(1 + 1)  # -> 3\n```", "document.md:2: printed '2'"),
    "prints too little": ("```python\nif False:\n    print(1)  # -> 1\n```", "document.md:3: nothing was printed"),
    "warns": ("```python\nimport warnings\nwarnings.warn('old')\n```", "UserWarning: old"),
    "forgets to await": ("```python\nasync def f(): pass\nf()\n```", "never awaited"),
    "fails in a thread": (
        "```python\nimport threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()\n```",
        "in a thread: ZeroDivisionError",
    ),
    "calls it off": ("```python\nraise SystemExit(0)\n```", "SystemExit"),
    "shows a command that fails": ("<!-- run -->\n```console\n$ unibus nonsense\n```", "exits with 2"),
    "shows another output": ("<!-- run -->\n```console\n$ unibus --version\nomnibus\n```", "does not print"),
    "shows output in another order": (
        "<!-- run -->\n```console\n$ unibus --help\n  --version…\nUsage: unibus…\n```",
        "does not print",
    ),
    "shows a foreign command": ("<!-- run -->\n```console\n$ rm bus.db\n```", "only unibus is run"),
    "marks what has no command": ("<!-- run -->\n```console\nhello\n```", "no line with"),
}


@pytest.fixture(scope="module")
def found_wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    documents = {kind: tmp_path_factory.mktemp("wrong") / "document.md" for kind in WRONG}
    for kind, document in documents.items():
        document.write_text(WRONG[kind][0] + "\n", "utf-8")
    found = run(*documents.values())
    return {kind: found[str(document)] for kind, document in documents.items()}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_document_is_reported(kind: str, found_wrong: dict[str, list[str]]) -> None:
    _, reported = WRONG[kind]
    assert reported in "\n".join(found_wrong[kind])


def test_a_snippet_that_does_not_end_is_ended(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text("```python\nimport threading\nthreading.Event().wait()\n```\n", "utf-8")
    short = (
        "import sys; from tests.docs import snippets; snippets.TIMEOUT_S = 0.5; sys.exit(snippets.main(sys.argv[1:]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-c", short, str(document)], capture_output=True, text=True, env=environment, timeout=60
    )
    assert (done.returncode, "threading.py" in done.stderr, "status -14" in done.stderr) == (1, True, True)


RIGHT = """
```python
x = 1
```

```text
this is no Python
```

```python
def twice(n: int) -> int:
    return 2 * n

print(twice(x), "times")  # -> 2 times
```

<!-- run -->

```console
$ unibus --version
unibus …, Python …
```

```console
$ rm never.run
```
"""


def test_a_right_document_passes(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(RIGHT, "utf-8")
    assert run(document) == {str(document): []}
