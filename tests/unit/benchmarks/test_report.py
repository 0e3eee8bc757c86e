"""Ratios say how good we are whichever way a unit points, and the JSON has the one shape that readers rely on."""

import io
import json

import pytest
from rich.console import Console

from benchmarks.report import Figure, Report, machine, show, to_json
from unibus.bus import build_kind


def time_figure(**changes: object) -> Figure:
    settings: dict[str, object] = {
        "figure": "sync inline, 1 channel",
        "unit": "ns",
        "ours": 400.0,
        "target": 2_000.0,
        "peers": {"slow": 1_600.0, "fast": 800.0},
        "limit": 200.0,
    }
    return Figure(**(settings | changes))  # type: ignore[arg-type]


def test_half_the_time_of_the_best_peer_is_twice_as_good() -> None:
    figure = time_figure()
    assert figure.best_peer == "fast"
    assert figure.ratio_best_peer == pytest.approx(2.0)


def test_twice_the_time_of_the_limit_is_half_of_what_it_allows() -> None:
    assert time_figure().ratio_limit == pytest.approx(0.5)


def test_a_rate_points_the_other_way() -> None:
    figure = Figure("send", "msg/s", ours=1_000.0, peers={"slow": 250.0, "fast": 500.0}, limit=2_000.0)
    assert figure.best_peer == "fast"
    assert figure.ratio_best_peer == pytest.approx(2.0)
    assert figure.ratio_limit == pytest.approx(0.5)


def test_being_worse_gives_a_ratio_below_one() -> None:
    assert time_figure(ours=1_600.0).ratio_best_peer == pytest.approx(0.5)
    assert Figure("send", "msg/s", ours=250.0, peers={"fast": 500.0}).ratio_best_peer == pytest.approx(0.5)


def test_without_peers_limit_or_target_there_is_nothing_to_compare_with() -> None:
    figure = time_figure(peers={}, limit=None, target=None)
    assert figure.best_peer is None
    assert figure.ratio_best_peer is None
    assert figure.ratio_limit is None
    assert figure.reaches_target is None


@pytest.mark.parametrize(
    ("unit", "ours", "reached"), [("ns", 99.0, True), ("ns", 100.0, True), ("ns", 101.0, False), ("msg/s", 101.0, True)]
)
def test_a_target_is_reached_from_its_good_side(unit: str, ours: float, reached: bool) -> None:
    assert Figure("any", unit, ours, target=100.0).reaches_target is reached


def test_a_unit_of_unknown_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="no direction"):
        time_figure(unit="furlongs")


@pytest.mark.parametrize("wrong", [{"ours": 0.0}, {"limit": -1.0}, {"peers": {"broken": 0.0}}, {"ours": float("nan")}])
def test_a_measurement_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        time_figure(**wrong)


def test_json_has_exactly_the_agreed_keys_on_one_line() -> None:
    text = to_json(Report("inprocess", (time_figure(),)))
    assert "\n" not in text
    found = json.loads(text)
    assert list(found) == ["name", "machine", "figures"]
    assert found["name"] == "inprocess"
    assert set(found["machine"]) == {"python", "cpu", "cores", "compiled"}
    assert found["figures"] == [
        {
            "figure": "sync inline, 1 channel",
            "unit": "ns",
            "ours": 400.0,
            "target": 2_000.0,
            "peers": {"slow": 1_600.0, "fast": 800.0},
            "limit": 200.0,
            "ratio_best_peer": 2.0,
            "ratio_limit": 0.5,
        }
    ]


def test_json_writes_null_for_what_does_not_exist() -> None:
    (figure,) = json.loads(to_json(Report("codec", (time_figure(target=None, peers={}, limit=None),))))["figures"]
    assert figure["target"] is None
    assert figure["peers"] == {}
    assert figure["limit"] is None
    assert figure["ratio_best_peer"] is None
    assert figure["ratio_limit"] is None


def shown(report: Report) -> str:
    console = Console(file=io.StringIO(), width=160, force_terminal=False)
    show(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_bars_are_in_proportion() -> None:
    lines = shown(Report("inprocess", (time_figure(),))).splitlines()
    lengths = {line.split()[0]: line.count("█") for line in lines if "█" in line}
    assert lengths == {"unibus": 10, "slow": 40, "fast": 20, "limit": 5}


def test_only_a_missed_target_is_told() -> None:
    assert "target missed" not in shown(Report("inprocess", (time_figure(),)))
    assert "target missed: sync inline, 1 channel: 3,000 ns" in shown(Report("inprocess", (time_figure(ours=3_000.0),)))


@pytest.mark.parametrize(
    ("compiled", "told"), [(True, "compiled"), (False, "plain Python, about ten times slower than compiled")]
)
def test_a_table_says_whether_the_package_was_compiled(
    monkeypatch: pytest.MonkeyPatch, compiled: bool, told: str
) -> None:
    monkeypatch.setattr(build_kind, "COMPILED", compiled)
    monkeypatch.setattr(build_kind, "is_checkout", lambda: False)
    cores = machine()["cores"]
    assert f"cores {cores}, {told} " in f"{shown(Report('inprocess', (time_figure(),)))} "
