"""The picture of the demo depends only on what the demo wrote, and loads nothing from another host."""

import re
from xml.etree import ElementTree

from tools.terminal_picture import draw, select

OUTPUT = """\
unibus 0.1.0 (compiled), Python 3.11.7

1/7 fan-out
    not in the picture

\x1b[1;36m4/7 kill -9\x1b[0m
    acknowledged <9> & found

5/7 trace
    a tree

7/7 SQL
    text
    SELECT 1

    SELECT 2

channel   published
orders    1

9 published
after 1 × kill -9: lost 0
The store is demo/demo.db.
"""


def test_some_stages_the_first_query_and_the_result_are_drawn() -> None:
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in select(OUTPUT)]
    assert lines == [
        *("unibus 0.1.0 (compiled), Python 3.11.7", ""),
        *("4/7 kill -9", "    acknowledged <9> & found", ""),
        *("5/7 trace", "    a tree", ""),
        *("7/7 SQL", "    text", "    SELECT 1", ""),
        "after 1 × kill -9: lost 0",
    ]


def test_a_drawing_is_the_same_each_time_and_complete_in_itself() -> None:
    svg = draw(select(OUTPUT))
    assert svg == draw(select(OUTPUT))
    shown = "".join(ElementTree.fromstring(svg).itertext()).replace("\xa0", " ")
    assert "acknowledged <9> & found" in shown
    assert re.findall(r"(?:href|src|url\()[^>)]*//[^>)]*", svg) == []
    assert "http" not in svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
