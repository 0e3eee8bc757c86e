"""One duplicate check with ten thousand and with a million keys in memory.

`benchmarks.dedup` measures, and says why that is fair; here its numbers become figures. Contenders take turns; each
turn fills its set anew and is the best of many rounds of its own, so it needs no warm-up and few turns suffice.
The target is 0.2 µs, for any number of keys.
"""

from benchmarks import dedup
from benchmarks.measure import Options, Trial, best_of
from benchmarks.report import Figure, Report

ENTRIES = (10_000, 1_000_000)
TARGET_NS = 200.0
TURNS = 2

QUESTIONS: dict[str, dict[str, Trial]] = {
    "known key": {
        "ours": dedup.ours_check_ns,
        "cachetools": dedup.cachetools_check_ns,
        "limit": dedup.dict_check_ns,
    },
    "fresh key": {
        "ours": dedup.ours_fresh_ns,
        "cachetools": dedup.cachetools_fresh_ns,
        "limit": dedup.dict_fresh_ns,
    },
}
"""Question → contender → what measures it, given the number of entries."""


def run(options: Options) -> Report:
    figures = [
        _figure(question, options.count(entries), contenders, options)
        for entries in ENTRIES
        for question, contenders in QUESTIONS.items()
    ]
    return Report("dedup", tuple(figures))


def _figure(question: str, entries: int, contenders: dict[str, Trial], options: Options) -> Figure:
    turns = Options(1 if options.quick else TURNS, options.quick)
    best = best_of(contenders, entries, turns, warm_up=False)
    peers = {"cachetools": best["cachetools"]}
    return Figure(f"{question}, {entries:,} entries", "ns", best["ours"], TARGET_NS, peers, best["limit"])
