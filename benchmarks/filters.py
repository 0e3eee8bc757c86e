"""Filters beside a lambda written by hand, and a topic's index with many rules that cannot match.

- simple SQL filter: `color = 'red' AND price > 10`, against the lambda that says the same of `message.headers`. The
  target is twice the lambda. Half of the messages match.
- correlation filter: a correlation id and one property, against the lambda; the target is one and a half times.
- the same two and a complex filter, one evaluation each, against the targets: 10 µs for a
  correlation filter, 100 µs for a simple one and 1 ms for a complex one.
- index: the rules that one message matches, out of 2,000 with 3 that match, against 10 with 3 that match, where the
  target is twice that; and against asking all 2,000 one after the other.
- topic: the same through the bus, where a message is stored too (`benchmarks.filters_topic`).

Called from Python, as the bus does when it is not compiled itself. Every trial checks the number of matches.
"""

import time
from collections.abc import Callable, Iterable

from benchmarks.measure import Options, Trial, best_of, check_delivered, turns
from benchmarks.report import Figure, Report

CALLS = 200_000
COMPLEX_CALLS = 50_000
SELECTIONS = 50_000
SCANS = 500
MATCHING = 3

CORRELATION_NS_MAX = 10_000
SIMPLE_NS_MAX = 100_000
COMPLEX_NS_MAX = 1_000_000
"""Of one evaluation."""

COMPLEX = (
    "(color IN ('red', 'green', 'blue') AND price * 2 - 10 > 25 AND NOT region = 'south') "
    "AND (customer LIKE 'c-_' OR customer LIKE 'vip%' ESCAPE '!') AND EXISTS(region) AND discount IS NULL "
    "AND (sys.CorrelationId = 'c-1' OR sys.Label = 'order') AND (price / 3 >= 6 OR price % 7 = 0) "
    "AND region + '-' + color <> 'north-blue'"
)


def run(options: Options) -> Report:
    from benchmarks import filters_topic

    figures = [*_sql(options), *_correlation(options), _complex(options), _index(options)]
    return Report("filters", (*figures, *filters_topic.figures(options)))


def _sql(options: Options) -> list[Figure]:
    from unibus.core.filters.filters import SqlFilter

    ours = SqlFilter("color = 'red' AND price > 10").matches
    by_hand = lambda message: message.headers["color"] == "red" and message.headers["price"] > 10  # noqa: E731
    messages = [_message("red", 20), _message("blue", 20), _message("red", 30), _message("red", 5)]
    best = best_of(
        {"ours": _asking(ours, messages), "lambda": _asking(by_hand, messages)}, options.count(CALLS), options
    )
    return [
        Figure("simple SQL filter", "ns", best["ours"], 2 * best["lambda"], {"lambda": best["lambda"]}),
        Figure("simple SQL filter, by itself", "ns", best["ours"], SIMPLE_NS_MAX),
    ]


def _correlation(options: Options) -> list[Figure]:
    from unibus.core.filters.filters import CorrelationFilter

    ours = CorrelationFilter("c-1", {"color": "red"}).matches
    by_hand = lambda message: message.correlation_id == "c-1" and message.headers["color"] == "red"  # noqa: E731
    messages = [_message("red", 20), _message("blue", 20)]
    best = best_of(
        {"ours": _asking(ours, messages), "lambda": _asking(by_hand, messages)}, options.count(CALLS), options
    )
    return [
        Figure("correlation filter", "ns", best["ours"], 1.5 * best["lambda"], {"lambda": best["lambda"]}),
        Figure("correlation filter, by itself", "ns", best["ours"], CORRELATION_NS_MAX),
    ]


def _complex(options: Options) -> Figure:
    """All of its terms are needed for the first message, none but the first for the last."""
    from unibus.core.filters.filters import SqlFilter

    ours = SqlFilter(COMPLEX).matches
    messages = [_message("red", 20), _message("blue", 20), _message("red", 5), _message("pink", 20)]
    best = best_of({"ours": _asking(ours, messages)}, options.count(COMPLEX_CALLS), options)
    return Figure("complex SQL filter, by itself", "ns", best["ours"], COMPLEX_NS_MAX)


def _index(options: Options) -> Figure:
    trials = {"ours": _selecting(2_000), "10 rules": _selecting(10)}
    best = best_of(trials, options.count(SELECTIONS), options)
    scan = best_of({"asking all": _scanning(2_000)}, options.count(SCANS), options)
    peers = {"10 rules": best["10 rules"], **scan}
    return Figure(f"index, 2,000 rules, {MATCHING} match", "ns", best["ours"], 2 * best["10 rules"], peers)


def _message(color: str, price: int) -> object:
    from unibus.core.envelope.message import Message

    headers = {"color": color, "price": price, "customer": "c-7", "region": "north"}
    return Message.new("orders").with_fields({"headers": headers, "correlation_id": "c-1"})


def _rules(count: int) -> list[tuple[object, object]]:
    """Three for the message and others for other customers, colours and orders; all with something to be found by."""
    from benchmarks.filters_topic import others, wanted

    good = wanted()
    return list(enumerate([*others(count - len(good)), *good]))


def _asking(matches: Callable[..., object], messages: list[object]) -> Trial:
    expected = [bool(matches(message)) for message in messages]

    def trial(count: int) -> float:
        given = list(turns(messages, count))
        wanted = sum(turns(expected, count))
        started = time.perf_counter_ns()
        for message in given:
            matches(message)
        elapsed = time.perf_counter_ns() - started
        check_delivered(sum(1 for message in given if matches(message)), wanted)
        return (elapsed - _loop_ns(given)) / count

    return trial


def _selecting(rules: int) -> Trial:
    from unibus.core.filters.index import FilterIndex

    select = FilterIndex(_rules(rules)).select  # type: ignore[arg-type]
    message = _message("red", 20)

    def trial(count: int) -> float:
        found = 0
        started = time.perf_counter_ns()
        for _ in range(count):
            found += len(select(message).matched)  # type: ignore[arg-type]
        elapsed = time.perf_counter_ns() - started
        check_delivered(found, MATCHING * count)
        return elapsed / count

    return trial


def _scanning(rules: int) -> Trial:
    filters = [each.matches for _, each in _rules(rules)]  # type: ignore[attr-defined]
    message = _message("red", 20)

    def trial(count: int) -> float:
        found = 0
        started = time.perf_counter_ns()
        for _ in range(count):
            for matches in filters:
                found += matches(message)
        elapsed = time.perf_counter_ns() - started
        check_delivered(found, MATCHING * count)
        return elapsed / count

    return trial


def _loop_ns(given: Iterable[object]) -> int:
    """What the measuring loop takes by itself."""
    best = 1 << 62
    for _ in range(3):
        started = time.perf_counter_ns()
        for _each in given:
            pass
        best = min(best, time.perf_counter_ns() - started)
    return best
