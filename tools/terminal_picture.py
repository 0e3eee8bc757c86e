"""A picture of `unibus demo` for the README: docs/images/demo.svg.

    python -m tools.terminal_picture

Runs the demo with colours into a pipe and draws some of its stages. A drawing depends only on the text: no date, no
random id, and no font from another host.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURE: Final = Path("docs/images/demo.svg")
COLUMNS: Final = 92
SECONDS: Final = 40
STAGES: Final = ("kill -9", "trace", "redrive", "SQL")
ID: Final = "demo"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_STAGE = re.compile(r"\d/\d (.+)")
# The layout of rich, without its font from the web and without its window buttons.
SVG: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>unibus demo in a terminal</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
_BUTTONS = re.compile(r"\s*<g transform=\"translate\(26,22\)\">.*?</g>", re.DOTALL)


def record(seconds: float) -> str:
    """What the demo writes, with the escape sequences of colours."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
        environment.pop("NO_COLOR", None)
        command = [sys.executable, "-m", "unibus", "demo", "--seconds", str(seconds), "--keep", f"{folder}/demo"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
        return done.stdout.replace(f"{folder}/", "")


def select(text: str) -> list[str]:
    """The first line, the stages of the picture with the first query only, and the count of lost messages."""
    lines = text.rstrip().splitlines()
    chosen, stage = lines[:1], ""
    for line in lines[1:]:
        plain = _ESCAPES.sub("", line)
        if found := _STAGE.fullmatch(plain):
            stage = found[1]
            chosen += [""] if stage in STAGES else []
        elif plain.startswith("channel "):
            stage = "figures"
        elif plain.startswith("after "):
            return [*chosen, line]
        elif stage == STAGES[-1] and not plain and chosen[-1]:
            stage = "other queries"
            chosen.append("")
        if stage in STAGES and plain:
            chosen.append(line)
    return chosen


def draw(lines: Iterable[str]) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    for line in lines:
        console.print(Text.from_ansi(line))
    svg = console.export_svg(title="unibus demo", theme=MONOKAI, code_format=SVG, unique_id=ID)
    return re.sub(r"[ \t]+$", "", _BUTTONS.sub("", svg), flags=re.MULTILINE)


def main() -> None:
    PICTURE.write_text(draw(select(record(SECONDS))), "utf-8")
    print(PICTURE, PICTURE.stat().st_size)


if __name__ == "__main__":
    main()
