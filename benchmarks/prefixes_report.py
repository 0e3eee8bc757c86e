"""Finding the subscribers of a topic among 1,000 to 100,000 prefixes, and what a subscription costs.

`benchmarks.prefixes` measures, and says why that is fair; here its numbers become figures. Contenders take turns,
though only a few times: filling a trie with 100,000 prefixes takes many seconds. Each turn is the best of several
rounds of its own, so it needs no warm-up. Churn and memory have no limit to be held against.
"""

from collections.abc import Callable

from benchmarks.measure import Options, best_of
from benchmarks.prefixes import CONTENDERS, PEERS, SIZES, bytes_per_subscription, churn_ns, limit_ns, match_ns
from benchmarks.report import Figure, Report

TURNS = 2
CHURN_SIZE = 10_000


def run(options: Options) -> Report:
    matched = {size: _matched(size, options) for size in SIZES}
    figures = [_figure(f"match, {size:,} prefixes", "ns", matched[size]) for size in SIZES]
    smaller, larger = SIZES[-2], SIZES[-1]
    growth = {name: matched[larger][name] / matched[smaller][name] for name in matched[larger]}
    figures.append(_figure(f"match, cost at {larger:,} over cost at {smaller:,}", "times", growth))
    churned = _in_turns(lambda name: churn_ns(CHURN_SIZE, name, options.rounds), list(CONTENDERS), options)
    figures.append(_figure(f"subscribe, match, unsubscribe, match, {CHURN_SIZE:,} prefixes", "ns", churned))
    # The largest takes half a minute under tracing, which is not quick.
    for size in SIZES[:-1] if options.quick else SIZES:
        held = {name: bytes_per_subscription(size, name) for name in CONTENDERS}
        figures.append(_figure(f"one subscription of {size:,}", "bytes", held))
    return Report("prefixes", tuple(figures))


def _matched(size: int, options: Options) -> dict[str, float]:
    def measured(name: str) -> float:
        return limit_ns(size, options.rounds) if name == "limit" else match_ns(size, name, options.rounds)

    return _in_turns(measured, [*CONTENDERS, "limit"], options)


def _in_turns(measured: Callable[[str], float], names: list[str], options: Options) -> dict[str, float]:
    turns = Options(1 if options.quick else TURNS, options.quick)
    trials = {name: (lambda _count, name=name: measured(name)) for name in names}
    return best_of(trials, 1, turns, warm_up=False)


def _figure(figure: str, unit: str, values: dict[str, float]) -> Figure:
    return Figure(figure, unit, values["ours"], peers={name: values[name] for name in PEERS}, limit=values.get("limit"))
