"""A scrape of a running server in which every series has something to count, and what an expression finds in it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.promql import Selector, parse

TARGET_LABELS = frozenset({"job", "instance"})
"""What Prometheus itself adds to every series."""
OF_PROMETHEUS = {"up": set(TARGET_LABELS)}
"""Metrics that Prometheus makes of a scrape."""
STATUS = re.compile(r"[1-5]\d\d")


@dataclass
class Scrape:
    """`values`: for each series name its labels with the values that they have."""

    values: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> "Scrape":
        found = cls()
        written = {re.split(r"[ {]", line, maxsplit=1)[0] for line in text.splitlines() if not line.startswith("#")}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                # The parser gives every counter the suffix _total. Prometheus does not: it keeps what is written.
                name = sample.name if sample.name in written else sample.name.removesuffix("_total")
                labels = found.values.setdefault(name, {})
                for label, value in sample.labels.items():
                    labels.setdefault(label, set()).add(value)
        assert found.values.keys() == written
        return found

    def problems(self, expression: str) -> Iterator[str]:
        """Every metric, label and literal value of an expression that the scrape does not have."""
        parsed = parse(expression)
        known = set(TARGET_LABELS)
        for selector in parsed.selectors:
            labels = self._labels(selector.metric)
            if labels is None:
                yield f"no metric {selector.metric}"
                continue
            known |= labels
            yield from self._wrong_matchers(selector, labels)
        for label in sorted(parsed.grouped - known):
            yield f"no label {label} in {expression}"

    def _labels(self, metric: str) -> set[str] | None:
        if metric in OF_PROMETHEUS:
            return OF_PROMETHEUS[metric]
        return None if metric not in self.values else set(self.values[metric]) | TARGET_LABELS

    def _wrong_matchers(self, selector: Selector, labels: set[str]) -> Iterator[str]:
        for label, (operator, value) in selector.matchers.items():
            if label not in labels:
                yield f"no label {label} of {selector.metric}"
            elif label not in TARGET_LABELS and "$" not in value and not self._occurs(selector, label, operator, value):
                yield f"{selector.metric} has no {label} that is {value!r}"

    def _occurs(self, selector: Selector, label: str, operator: str, value: str) -> bool:
        if label == "status" and selector.metric == "unibus_http_requests_total":
            # A scrape of a healthy server has no 5xx; what it can have is a status of HTTP.
            return any(re.fullmatch(value, str(status)) for status in range(100, 600))
        seen = self.values[selector.metric][label]
        wanted = value.split("|") if "~" in operator else [re.escape(value)]
        return all(any(re.fullmatch(each, one) for one in seen) for each in wanted)
