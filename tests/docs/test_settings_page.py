"""The guide's table of settings is what the rows of `SETTINGS` say. A failure prints the lines that are missing."""

import re
from pathlib import Path

import pytest

from unibus.core.lifecycle.state.setting_types import (
    CHOICE,
    ENTITY,
    FLAG,
    NUMBER,
    RATE,
    SECONDS,
    TEXT,
    UNBOUNDED,
    Setting,
)
from unibus.core.lifecycle.state.settings import SETTINGS

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
LINE = re.compile(r"^\| `\w+` \|.*\|$", re.MULTILINE)


def values_of(row: Setting) -> str:
    """What the setting can be, in the words of the guide."""
    bounds = f"{row.least:,g} to {row.most:,.0f}" if row.most < UNBOUNDED else f"{row.least:,g} or more"
    texts = {
        SECONDS: f"seconds, {bounds}",
        NUMBER: bounds,
        RATE: f"above 0, up to {row.most:,.0f}",
        FLAG: "`True`, `False`",
        ENTITY: "a name",
        CHOICE: ", ".join(f'`"{choice}"`' for choice in row.choices),
        TEXT: f"text, up to {row.most:,.0f} characters",
    }
    found = texts.get(row.type, "a list")
    return f"{found}, `None`" if row.optional else found


def line_of(row: Setting) -> str:
    default = f"`{row.default!r}`".replace("'", '"')
    kinds = ", ".join(f"{kind}s" for kind in row.kinds) or "all"
    about = f"{row.about}; fixed when the entity is created" if row.fixed else row.about
    azure = f"`{row.azure}`" if row.azure else ""
    return f"| `{row.name}` | {default} | {values_of(row)} | {kinds} | {azure} | {about} |"


def test_the_guide_lists_every_setting_as_its_row_says() -> None:
    text = (GUIDE / "entities.md").read_text("utf-8")
    listed = LINE.findall(text.partition("## Settings")[2].partition("\n\n### ")[0])
    assert listed == [line_of(row) for row in SETTINGS.values()]


def test_the_other_pages_name_only_settings_that_exist() -> None:
    text = (GUIDE / "durable-queues.md").read_text("utf-8").partition("| setting | default | meaning |")[2]
    rows = re.findall(r"^\| (`.+?) \|", text.partition("\n\n")[0], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(named) > 8
    assert set(named) <= SETTINGS.keys()


@pytest.mark.parametrize("row", SETTINGS.values(), ids=lambda row: row.name)
def test_every_row_is_described(row: Setting) -> None:
    assert row.about
    assert not row.about.endswith(".")
