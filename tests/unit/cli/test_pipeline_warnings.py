"""Sources that are set aside: a continuous run reports each of them once."""

from typing import Any

from unibus.cli.pipeline.run import Warnings
from unibus.pipeline.set_aside import SetAside


def set_aside(reason: str, where: str = "west") -> SetAside:
    return SetAside("west", where, reason, "put it back")


def test_a_source_is_reported_once_however_its_numbers_change(capsys: Any) -> None:
    report = Warnings()
    for last in (20, 21, 1_500):
        report(set_aside(f"it goes up to {last:,}, and the lake has read 'west' up to 40"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2  # The warning, and its hint.
    assert "it goes up to 20, and" in lines[0]


def test_another_reason_and_another_place_are_reported(capsys: Any) -> None:
    report = Warnings()
    report(set_aside("the manifest is damaged"))
    report(set_aside("it has another event 40"))
    report(set_aside("it has another event 40", "elsewhere"))
    report(set_aside("it has another event 41"))
    assert len(capsys.readouterr().err.splitlines()) == 2 * 3
