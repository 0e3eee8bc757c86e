"""What a benchmark found: figures with their ratios, as JSON for programs, as a table and bars for people.

Both ratios say how good we are, whichever way the unit points: `ratio_best_peer` 2.0 means twice as good as the
best peer, `ratio_limit` 0.5 means half of what the limit allows. A target that was missed is reported, not hidden.
"""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

HIGHER_IS_BETTER = {
    "ns": False,
    "µs": False,
    "bytes": False,
    "times": False,
    "s": False,
    "share": True,
    "msg/s": True,
    "events/s": True,
    "rows/s": True,
}
"""The units there are, and which way each points."""

BAR_WIDTH = 40
"""Leaves space for the longest name and a number in a terminal of 80 columns."""


@dataclass(frozen=True)
class Figure:
    """One claim: ours beside the peers' and the limit, all from the same run, all in the same unit."""

    figure: str
    unit: str
    ours: float
    target: float | None = None
    peers: Mapping[str, float] = field(default_factory=dict)
    limit: float | None = None

    def __post_init__(self) -> None:
        if self.unit not in HIGHER_IS_BETTER:
            raise ValueError(f"{self.figure}: unit {self.unit!r} has no direction; add it to HIGHER_IS_BETTER")
        values = {"ours": self.ours, "target": self.target, "limit": self.limit, **self.peers}
        for name, value in values.items():
            if value is not None and not value > 0:
                raise ValueError(f"{self.figure}: {name} is {value}; a measurement is above zero")

    @property
    def best_peer(self) -> str | None:
        pick = max if HIGHER_IS_BETTER[self.unit] else min
        return pick(self.peers, key=self.peers.__getitem__) if self.peers else None

    @property
    def ratio_best_peer(self) -> float | None:
        return None if self.best_peer is None else self._goodness_against(self.peers[self.best_peer])

    @property
    def ratio_limit(self) -> float | None:
        return None if self.limit is None else self._goodness_against(self.limit)

    @property
    def reaches_target(self) -> bool | None:
        return None if self.target is None else self._goodness_against(self.target) >= 1

    def _goodness_against(self, other: float) -> float:
        return self.ours / other if HIGHER_IS_BETTER[self.unit] else other / self.ours


@dataclass(frozen=True)
class Report:
    name: str
    figures: tuple[Figure, ...]


def machine() -> dict[str, object]:
    """Where the figures were taken. Without it they cannot be compared with anything."""
    from unibus.core import COMPILED

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"python": platform.python_version(), "cpu": _cpu_model(), "cores": cores, "compiled": COMPILED}


def _cpu_model() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def to_json(report: Report) -> str:
    """The report as one line of JSON."""
    figures = [_as_object(figure) for figure in report.figures]
    return json.dumps({"name": report.name, "machine": machine(), "figures": figures})


def _as_object(figure: Figure) -> dict[str, object]:
    return {
        "figure": figure.figure,
        "unit": figure.unit,
        "ours": _rounded(figure.ours),
        "target": _rounded(figure.target),
        "peers": {name: _rounded(value) for name, value in figure.peers.items()},
        "limit": _rounded(figure.limit),
        "ratio_best_peer": _rounded(figure.ratio_best_peer),
        "ratio_limit": _rounded(figure.ratio_limit),
    }


def _rounded(value: float | None) -> float | None:
    """Four digits: the machine's noise is in the third."""
    return None if value is None else float(f"{value:.4g}")


def show(report: Report, console: Console | None = None) -> None:
    """The table, the bars and the targets that were missed, for a person."""
    console = console or Console()
    console.print(_table(report, _caption()))
    for figure in report.figures:
        _plot(figure, console)
    for figure in report.figures:
        if figure.reaches_target is False:
            console.print(f"[red]target missed[/red]: {figure.figure}: {_text(figure.ours)} {figure.unit}")


def _caption() -> str:
    from unibus.bus.build_kind import describe_build

    where = [f"{key} {value}" for key, value in machine().items() if key != "compiled"]
    return ", ".join([*where, describe_build()])


def _table(report: Report, caption: str) -> Table:
    table = Table(title=report.name, caption=caption)
    table.add_column("figure", no_wrap=True)
    for heading in ("unit", "ours", "target", "best peer", "× peer", "limit", "of limit"):
        table.add_column(heading, justify="right")
    for figure in report.figures:
        best = figure.best_peer
        table.add_row(
            figure.figure,
            figure.unit,
            _text(figure.ours),
            _text(figure.target),
            "" if best is None else f"{best} {_text(figure.peers[best])}",
            _text(figure.ratio_best_peer),
            _text(figure.limit),
            _text(figure.ratio_limit),
        )
    return table


def _plot(figure: Figure, console: Console) -> None:
    """One bar per contender, the limit last; the longest fills the width."""
    bars = [("unibus", figure.ours, "green"), *((name, value, "blue") for name, value in figure.peers.items())]
    if figure.limit is not None:
        bars.append(("limit", figure.limit, "yellow"))
    pointing = "longer is better" if HIGHER_IS_BETTER[figure.unit] else "shorter is better"
    console.print(f"\n[bold]{figure.figure}[/bold] ({figure.unit}, {pointing})")
    longest = max(value for _, value, _ in bars)
    width = max(len(name) for name, _, _ in bars)
    for name, value, colour in bars:
        bar = "█" * max(1, round(BAR_WIDTH * value / longest))
        console.print(f"  {name:<{width}} [{colour}]{bar}[/{colour}] {_text(value)}", highlight=False, soft_wrap=True)


def _text(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
