"""A small lake to ask, with all of its events at hand, so that a test can work out by itself what the answer is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unibus.capture.sources import open_sources
from unibus.pipeline.generator.generate import WorldPlan, generate
from unibus.pipeline.lake import Lake
from unibus.pipeline.run import run_all

MESSAGES = 1_200
START_US = 1_788_000_000_000_000 // 86_400_000_000 * 86_400_000_000


@dataclass(frozen=True)
class Asked:
    """`events` are plain dictionaries, in the order of each domain; `ts` is in microseconds."""

    captures: Path
    path: Path
    events: list[dict[str, Any]]

    @property
    def lake(self) -> Lake:
        return Lake(str(self.path))

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["kind"] in kinds]


def made_in(folder: Path, messages: int = MESSAGES) -> Asked:
    """Made without Spark, in two batches."""
    captures, path = folder / "captures", folder / "lake"
    plan = WorldPlan(messages, domains=2, channels=6, hours=6, seed=3, bodies=True, start_us=START_US)
    generate(str(captures), plan, segment_rows=2_000)
    sources = open_sources(str(captures))
    lake = Lake(str(path))
    for _ in run_all(None, lake, sources, max_events=3_000):
        pass
    return Asked(captures, path, events_of(captures))


def events_of(captures: Path) -> list[dict[str, Any]]:
    found = []
    for source in open_sources(str(captures)):
        for piece in source.pieces(0, source.last()):
            for batch in source.read(piece):
                table = batch.set_column(1, "ts", batch["ts"].cast("int64"))
                found += table.to_pylist()
        source.close()
    return found
