"""How time is taken here, the same way for us, for the peers and for the limit.

The rule: whatever disturbs the machine must disturb all alike. So contenders take turns round by round instead
of running one after the other, each round starts from a collected heap with the collector left on (as users
run), every trial checks that its messages arrived, and the best round counts: noise only ever adds time.
"""

import gc
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TypeVar

Trial = Callable[[int], float]
"""Does `count` operations, checks that they really happened, returns nanoseconds per operation."""

Handler = Callable[[object], None]

Result = TypeVar("Result")
Name = TypeVar("Name")
Item = TypeVar("Item")

PAYLOAD: dict[str, object] = {"id": 1, "event": "order.created", "amount": 9.5}
"""One small dict made beforehand, so that no contender's figure holds the making of payloads."""

PRIORITY = 50
"""NORMAL. Everything of one priority is the common case, and the kindest one for heaps with a sequence number."""

WARM_UP_SHARE = 10


class Undelivered(RuntimeError):
    """A trial lost or invented messages; its time means nothing."""


@dataclass(frozen=True)
class Options:
    """How thoroughly to measure."""

    rounds: int = 7
    quick: bool = False

    @staticmethod
    def of(rounds: int | None, quick: bool) -> "Options":
        return Options(rounds or (3 if quick else 7), quick)

    def count(self, full: int) -> int:
        """How many operations a trial does of the `full` number."""
        return max(1, full // 10) if self.quick else full


def best_of(trials: Mapping[str, Trial], count: int, options: Options, *, warm_up: bool = True) -> dict[str, float]:
    """The best round of each contender, in nanoseconds per operation."""
    found = rounds_of(trials, count, options, warm_up=warm_up)
    return {name: min(results) for name, results in found.items()}


def rounds_of(
    trials: Mapping[Name, Callable[[int], Result]], count: int, options: Options, *, warm_up: bool = True
) -> dict[Name, list[Result]]:
    """Every contender's results, round by round, after one shorter warm-up each.

    The order turns by one place each round, so that none always follows the same neighbour.
    """
    if not gc.isenabled():
        raise RuntimeError("the garbage collector is off; users run with it, so the figures must too")
    if warm_up:
        for trial in trials.values():
            trial(max(1, count // WARM_UP_SHARE))
    results: dict[Name, list[Result]] = {name: [] for name in trials}
    names = list(trials)
    for number in range(options.rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            results[name].append(trials[name](count))
    return results


def check_delivered(received: int, sent: int) -> None:
    if received != sent:
        raise Undelivered(f"{sent} messages were sent, {received} arrived")


def turns(items: list[Item], count: int) -> Iterator[Item]:
    """`count` items, one after the other in turn. Costs the same for one item as for many, unlike nested loops."""
    return islice(cycle(items), count)


def counting_handler() -> tuple[Handler, Callable[[], int]]:
    """A plain function that counts its calls, and the reader of the count."""
    (handler,), received = counting_handlers(1)
    return handler, received


def counting_handlers(number: int) -> tuple[list[Handler], Callable[[], int]]:
    """Different functions over one count, for peers that know a subscriber by its identity."""
    received = 0

    def make() -> Handler:
        def handler(message: object) -> None:
            # CPython switches threads only at calls and backward jumps, so no count is lost between
            # workers. Should that ever change, the trial fails loudly.
            nonlocal received
            received += 1

        return handler

    return [make() for _ in range(number)], lambda: received


def counting_async_handler() -> tuple[Callable[[object], Awaitable[None]], Callable[[], int]]:
    """The same as a coroutine function that never suspends."""
    received = 0

    async def handler(message: object) -> None:
        nonlocal received
        received += 1

    return handler, lambda: received
