"""The text format of Prometheus, version 0.0.4: families of samples, each with its help and type.

The format wants the samples of one family together, so families are filled entity by entity, and written one after the
other. A label value may be any text: backslash, quote and line feed are escaped, nothing else is special.
"""

from collections.abc import Iterable
from typing import Final

from unibus.endpoints.http.statistics import BOUNDS_NS, FILTER_BOUNDS_NS, Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS: Final = {
    bounds: [f"{bound / 1e9:.10f}".rstrip("0").rstrip(".") for bound in bounds]
    for bounds in (BOUNDS_NS, FILTER_BOUNDS_NS)
}


class Family:
    """One metric with its samples, in the order in which they were added."""

    def __init__(self, name: str, kind: str, help_text: str) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self._head: Final = f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
        self._lines: list[str] = []

    def add(self, labels: str, value: float) -> None:
        """`labels` as `labels_of` writes them, empty for none."""
        self._lines.append(f"{self.name}{labels} {value}\n")

    def add_histogram(self, labels: str, histogram: Histogram) -> None:
        inner = labels[1:-1]
        comma = "," if inner else ""
        total = 0
        for bound, count in zip(_BOUNDS[histogram.bounds_ns], histogram.counts, strict=False):
            total += count
            self._lines.append(f'{self.name}_bucket{{{inner}{comma}le="{bound}"}} {total}\n')
        total += histogram.counts[-1]
        self._lines.append(f'{self.name}_bucket{{{inner}{comma}le="+Inf"}} {total}\n')
        self._lines.append(f"{self.name}_sum{labels} {histogram.sum_ns / 1e9}\n")
        self._lines.append(f"{self.name}_count{labels} {total}\n")

    def encoded(self) -> bytes:
        """The text as UTF-8. A lone surrogate, which a name may contain, becomes a question mark."""
        return (self._head + "".join(self._lines)).encode("utf-8", "replace")


def labels_of(pairs: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join([f'{name}="{escaped(value)}"' for name, value in pairs]) + "}"


def escaped(value: str) -> str:
    if value.isalnum():
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
