"""Every command line in the documents, in help texts and in hints is one that the shell accepts.

A line of a block has to be complete. In running text and in hints arguments may be missing (`unibus dlq retry`), and
placeholders are in capitals or brackets.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

from tests.unit.cli.command_tree import all_commands, parse

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCES = sorted(ROOT.glob("src/unibus/**/*.py"))
FENCE = re.compile(r"^(```+|~~~+)[^\n]*\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(unibus [^`]+)`(?!`)")
IN_HELP = re.compile(r"For example: (unibus .+?)(?:\n|$)")
NO_COMMAND = re.compile(r"unibus (0|1|[a-z_]+\.[a-z]|[a-z]+://)")
"""Text that only begins like a command: the output of --version, a module."""
ENDS = frozenset("|>&;<()")


class Example(NamedTuple):
    where: str
    text: str
    complete: bool


def examples() -> Iterator[Example]:
    for page in PAGES:
        text, where = page.read_text("utf-8"), str(page.relative_to(ROOT))
        for block in FENCE.finditer(text):
            yield from _lines(where, block[2])
        for found in INLINE.finditer(FENCE.sub("", text)):
            yield Example(where, " ".join(found[1].split()), False)
    for source in SOURCES:
        for found in INLINE.finditer(source.read_text("utf-8")):
            if found[1].startswith("unibus {"):
                continue  # The name of the command is not known here.
            yield Example(str(source.relative_to(ROOT)), re.sub(r"\{[^}]*\}", "1", found[1]), False)
    for path, command in all_commands():
        for found in IN_HELP.finditer(command.help or ""):
            yield Example(f"{path} --help", found[1], True)


def _lines(where: str, block: str) -> Iterator[Example]:
    for line in block.replace("\\\n", " ").splitlines():
        plain = line.partition("    ")[0] if not line.startswith(" ") else line  # A remark at the right.
        plain = re.sub(r"^\s*(\$ )?([A-Z_]+=\S+ )*(exec |nice |time )?", "", plain)
        if plain.startswith("unibus ") and not NO_COMMAND.match(plain):
            yield Example(where, plain, "…" not in plain)


def words_of(text: str) -> list[str]:
    """The words after `unibus`, up to a pipe or a redirection. Brackets around a placeholder are removed."""
    lexer = shlex.shlex(re.sub(r"\b2>", ">", text), posix=True, punctuation_chars="|>&;<")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word[0] in ENDS:
            break
        words.append(word.strip("[]"))
    return [word for word in words[1:] if word not in ("…", "...", "")]


FOUND = sorted(set(examples()))


def test_there_are_examples() -> None:
    assert len([each for each in FOUND if each.complete]) > 50
    assert len(FOUND) > 200


@pytest.mark.parametrize("where", sorted({each.where for each in FOUND}))
def test_a_command_line_is_accepted(where: str) -> None:
    wrong = []
    for example in FOUND:
        if example.where != where:
            continue
        try:
            parse(words_of(example.text))
        except typer.Exit:
            pass  # --help and --version.
        except (typer.TyperException, ValueError) as error:
            text = error.format_message() if isinstance(error, typer.TyperException) else str(error)
            if not _is_expected(text, example.complete):
                wrong.append(f"{example.text}: {text}")
    assert wrong == []


def _is_expected(text: str, complete: bool) -> bool:
    missing = text.startswith("Missing") or text.endswith("requires an argument.")
    return "does not exist" in text or (missing and not complete)
