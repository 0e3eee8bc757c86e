"""What the benchmarks of the pipeline compare is the same thing, and their figures say what was measured."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import capture, freshness
from benchmarks.capture import Carried
from benchmarks.pipeline import MILLION, Cost, Stand, figures_of, files_of, growth_of
from benchmarks.pipeline_peers import PEERS, Counted
from unibus.capture.schema import CAME, TERMINAL
from unibus.capture.sources import open_sources
from unibus.pipeline.generator.generate import Generated, generate
from unibus.pipeline.generator.world import WorldPlan


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    folder = tmp_path_factory.mktemp("history")
    return generate(str(folder), WorldPlan(3_000, domains=2, hours=4, seed=7), segment_rows=2_000)


def rows_of(files: list[str]) -> list[dict[str, object]]:
    return [row for file in files for row in pq.read_table(file).to_pylist(maps_as_pydicts="strict")]


def by_hand(rows: list[dict[str, object]]) -> Counted:
    """The same counts, one row after the other."""
    there: set[object] = set()
    closed = timed = failures = 0
    for row in sorted(rows, key=lambda row: (row["domain"], row["seq"])):
        kind, channel, attrs = row["kind"], row["channel_key"], row["attrs"] or {}
        assert isinstance(attrs, dict)
        key = (channel, row["sequence"])
        if kind in CAME:
            there.add(key)
        elif kind == "activated" and int(attrs["new_sequence"]) != row["sequence"]:
            there.remove(key)
            there.add((channel, int(attrs["new_sequence"])))
        elif kind in TERMINAL:
            there.remove(key)
            closed += 1
            timed += row["enqueued_us"] is not None
        failures += kind in ("returned", "expired", "dead_lettered")
    return Counted(len(rows), closed, len(there), timed, failures)


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_counts_what_there_is_to_count(history: Generated, peer: str, tmp_path: Path) -> None:
    files = sorted(str(file) for folder in history.folders for file in Path(folder).glob("segments/*.parquet"))
    found = PEERS[peer](files, tmp_path)
    assert found == by_hand(rows_of(files))
    assert found.open > 0
    made = {file.stem: pq.read_table(file) for file in tmp_path.glob("*.parquet")}
    assert set(made) == {"closed", "open", "channel_minute", "latency_hist", "failures", "traces"}
    traced = [row for row in rows_of(files) if row["trace_id"] is not None]
    by_trace = [row for row in made["traces"].to_pylist() if row["id_kind"] == "trace"]
    assert sum(row["events"] for row in by_trace) == len(traced)
    assert {row["id"] for row in by_trace} == {row["trace_id"] for row in traced}


def test_peers_read_the_segments_that_a_batch_has_read(history: Generated) -> None:
    sources = open_sources(list(history.folders))
    reached = {source.domain: 2_000 for source in sources}
    assert [Path(file).name[:20] for file in files_of(sources, reached)] == ["0" * 19 + "1"] * 2
    with pytest.raises(RuntimeError, match="2000 arrived"):
        files_of(sources, dict.fromkeys(reached, 3_000))


def test_a_figure_is_the_best_round_beside_the_best_of_the_others() -> None:
    ours = [Cost(1_000, 2.0, 0.004), Cost(1_000, 1.0, 0.005)]
    scans = [Cost(1_000, 0.1, 0.001), Cost(1_000, 0.25, 0.002)]
    rate, cpu, times = figures_of(2 * MILLION, ours, scans, {"other": [Cost(1_000, 0.5, 0.002)]})
    assert (rate.ours, rate.target, rate.limit, rate.peers) == (1_000, 2_000, 10_000, {"other": 2_000})
    assert (cpu.ours, cpu.limit, cpu.peers) == (pytest.approx(4.0), pytest.approx(1.0), {"other": pytest.approx(2.0)})
    assert (times.ours, times.reaches_target) == (10, False)


def test_growth_compares_the_last_batch_with_the_second() -> None:
    def stand(seconds: float, cpu: float) -> Stand:
        return Stand(Cost(0, 0, 0), Cost(MILLION, seconds, cpu), {})

    time, cpu = growth_of([[stand(9.0, 9.0), stand(1.0, 2.0), stand(9.0, 9.0), stand(3.0, 2.5)]], 4 * MILLION)
    assert (time.ours, time.reaches_target) == (3.0, False)
    assert (cpu.ours, cpu.reaches_target) == (1.25, True)


def test_what_capture_costs_is_told_by_the_best_rounds() -> None:
    rounds = {
        "with": [Carried(2.2e-6, 9_000, 0.02, 4e-6), Carried(2.1e-6, 9_900, 0.03, 5e-6)],
        "without": [Carried(2.0e-6, 10_000, 0.02), Carried(4.0e-6, 9_000, 0.01)],
    }
    cpu, rate, carried, answer, each, own = capture.figures_of(rounds)
    assert (cpu.ours, cpu.reaches_target) == (pytest.approx(1.05), True)
    assert (rate.ours, carried.ours) == (pytest.approx(10 / 9.9), 9_900)
    assert (answer.ours, answer.limit) == (0.02, 0.01)
    assert (each.ours, own.ours) == (pytest.approx(2_100), pytest.approx(4.0))


def test_freshness_is_told_in_shares() -> None:
    half, most, slowest = freshness.figures_of([float(number) for number in range(1, 101)])
    assert (half.ours, most.ours, slowest.ours) == (51, 96, 100)
    assert most.reaches_target is False


class OldLake:
    """Three batches that arrived while the watch was running."""

    def __init__(self) -> None:
        self.at = 0

    def version(self, table: str) -> int:
        assert table == "batches"
        self.at = min(3, self.at + 1)
        return self.at

    def last_batch(self) -> dict[str, object]:
        return {"ranges": [{"up_to": 10 * self.at}, {"up_to": 0}]}


def test_a_message_is_visible_with_the_first_batch_that_has_it() -> None:
    with freshness.Watch(OldLake()) as watch:  # type: ignore[arg-type]
        capture.wait_until(lambda: watch.reached() == 30, None, "the watch did not run")
    first, second, third = (at for _up_to, at in watch.batches)
    assert [watch.visible_at(seq) for seq in (1, 10, 11, 30)] == [first, first, second, third]
