"""What the pages for operators quote without running it is what the code says: error texts, settings, alerts, figures.

Their commands and snippets run in test_snippets.py. These texts need a full disk, a crash or a taken port, so they are
compared with the strings of the module that raises them, where a part in braces may be anything.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS
from tests.docs.snippets import blocks
from unibus.config.settings import ServerSettings
from unibus.core.lifecycle.state.settings import DEFAULTS

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
PAGES = ("operations", "troubleshooting")
SOURCES = (
    *(
        "endpoints/transport/port.py",
        "stores/engine/space.py",
        "bus/management/history/traces.py",
        "bus/management/jobs/jobs.py",
    ),
    *("core/access/decide.py", "endpoints/http/authorization.py", "endpoints/transport/first_byte.py"),
)
QUOTED_REFUSAL = re.compile(r"^\| 40[13] \| (.+?) \|", re.MULTILINE)
EMPHASISED = re.compile(r"\*((?:plain text is|is no longer) [^*]+)\*")


def text_of(page: str) -> str:
    return (GUIDE / f"{page}.md").read_text("utf-8")


def quoted(page: str) -> Iterator[str]:
    text = text_of(page)
    for block in blocks(text):
        if block.language == "text":
            for line in block.code:
                yield from re.findall(r"^(?:error|hint): (.+)$", line)
                yield from re.findall(r'"(?:reason|hint)":"([^"]+)"', line)
    yield from QUOTED_REFUSAL.findall(text)
    yield from EMPHASISED.findall(text)


def strings_of(path: str) -> list[str]:
    """Every string of a module as a pattern, but those that would match nearly everything."""
    return [pattern for pattern in _patterns_of(path) if len(pattern.replace(".+", "")) > 8]


def _patterns_of(path: str) -> Iterator[str]:
    inside: set[int] = set()
    for node in ast.walk(ast.parse((ROOT / "src" / "unibus" / path).read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            parts = (re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in node.values)
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) and id(node) not in inside:
            value = node.value if isinstance(node.value, str) else node.value.decode("utf-8", "replace")
            yield re.escape(value).replace("%s", ".+")


@pytest.mark.parametrize("page", PAGES)
def test_an_error_text_that_is_quoted_is_that_of_the_code(page: str) -> None:
    patterns = [pattern for path in SOURCES for pattern in strings_of(path)]
    found = list(quoted(page))
    assert len(found) >= 4
    assert [text for text in found if not any(_says(pattern, text) for pattern in patterns)] == []


def _says(pattern: str, text: str) -> bool:
    """The whole of it, or a literal part of it."""
    return bool(re.fullmatch(pattern, text)) or re.escape(text) in pattern


def test_a_changed_text_would_be_reported() -> None:
    patterns = strings_of("endpoints/transport/port.py")
    assert any(_says(pattern, "port 5300 is taken on 127.0.0.1") for pattern in patterns)
    assert not any(_says(pattern, "port 5300 is used on 127.0.0.1") for pattern in patterns)


def test_the_alerts_that_the_runbook_names_exist() -> None:
    named = set(re.findall(r"`(Unibus\w+)`", text_of("operations")))
    known = set(re.findall(r"alert: (\w+)", (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8")))
    assert named
    assert named <= known


def test_the_settings_that_the_runbook_names_exist() -> None:
    named = set(re.findall(r"`((?:\w+)_(?:max|s|mb|kb|bytes|age))`", text_of("operations")))
    server = set(ServerSettings.__annotations__) | set(DEFAULTS)
    store = set(re.findall(r"^\| `(\w+)`", text_of("durability"), re.MULTILINE))
    answers = {"oldest_s", "size_bytes", "history_bytes"}
    assert named
    assert named <= server | store | answers


def test_every_figure_of_the_performance_page_names_the_benchmark_that_prints_it() -> None:
    text = text_of("performance")
    named = set(re.findall(r"python -m benchmarks (\w+)", text))
    assert named
    assert named <= set(BENCHMARKS)
    figures = [part for part in _parts(text) if re.search(r"\d (?:ns|%|messages a second|seconds\b)", part)]
    assert figures
    assert [part for part in figures if not any(f"`{name}`" in part for name in BENCHMARKS)] == []


def _parts(text: str) -> Iterator[str]:
    """Rows of tables, and paragraphs."""
    for part in text.split("\n\n"):
        yield from part.splitlines() if part.startswith("|") else [part]


def test_the_performance_page_lists_every_benchmark() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", text_of("performance"), re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(BENCHMARKS)


def test_the_figures_of_the_readme_are_those_of_the_performance_page() -> None:
    rows = _figures((ROOT / "README.md").read_text("utf-8"))
    assert rows
    page = text_of("performance").partition("\n## Figures\n")[2]
    for row in rows:
        # A figure of ours and one of a peer, with its unit or name, and the benchmark that prints both.
        ours, peer, command = row[1].removesuffix(" messages a second"), row[2], row[3]
        named = re.fullmatch(r"`python -m benchmarks (\w+)`", command)
        assert named is not None
        assert named[1] in BENCHMARKS
        assert [line for line in page.splitlines() if f"| {ours} | {peer} |" in line and f"`{named[1]}`" in line], row


def _figures(text: str) -> list[list[str]]:
    table = text.partition("<!-- figures -->\n\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
