"""In batches, in one batch, and by hand: the same tables, wherever batches and segments begin."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.pipeline.lake_histories import history, join_segments, write_segments
from tests.pipeline.lake_reference import expected, tables_of
from unibus.capture.sources import open_sources
from unibus.core.lifecycle.events import Event
from unibus.pipeline.lake import Lake
from unibus.pipeline.run import run_all
from unibus.pipeline.upkeep import compact

Domains = dict[str, list[Event]]


def catch_up(spark: SparkSession | None, lake: Lake, place: Path, max_events: int | None = None) -> int:
    sources = open_sources(str(place))
    return sum(result.events for result in run_all(spark, lake, sources, max_events=max_events))


def in_random_batches(spark: SparkSession | None, lake: Lake, place: Path, domains: Domains, seed: int) -> None:
    """History comes bit by bit, segments are joined, batches are cut anywhere, tables are compacted in between."""
    chance = random.Random(seed)
    read = 0
    ends = dict.fromkeys(domains, 0)
    while any(ends[name] < len(events) for name, events in domains.items()):
        for name, events in domains.items():
            ends[name] = min(len(events), ends[name] + chance.choice((1, 50, 90, 200)))
            write_segments(place / name, events[: ends[name]], name, chance.choice((7, 20, 60)))
            if chance.random() < 0.4:
                join_segments(place / name, chance.randrange(4), chance.randrange(2, 6), name)
        read += catch_up(spark, lake, place, chance.choice((None, None, 70)))
        if chance.random() < 0.3:
            compact(lake)
    assert read == sum(map(len, domains.values()))


@settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=10,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # A smaller seed is not a smaller history.
)
@given(seed=st.integers(0, 1_000_000), size=st.integers(1, 300), skip=st.sampled_from([0, 0, 35]))
def test_where_batches_begin_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int, skip: int
) -> None:
    """`skip`: events before the capture began, so that it meets messages whose coming it has not seen."""
    place = tmp_path_factory.mktemp("same")
    made = {"east": history(seed, size, "east")[skip:], "west": history(seed + 1, size // 2, "west")}
    domains = {name: events for name, events in made.items() if events}
    if not domains:
        return
    pieces, whole = Lake(str(place / "pieces")), Lake(str(place / "whole"))
    in_random_batches(None, pieces, place / "captures", domains, seed)
    catch_up(None, whole, place / "captures")
    wanted = expected([event for events in domains.values() for event in events])
    assert tables_of(whole) == wanted
    assert tables_of(pieces) == wanted
