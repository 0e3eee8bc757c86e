"""Whole cases from a seed: a topology, then steps. What fails is made smaller by leaving steps out, and printed with
the command that repeats it:

    python -m tests.property.topologies.cases sqlite 17 40            forty steps of seed 17
    python -m tests.property.topologies.cases sqlite 17 40 3,9,21     only these of them
"""

import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.property.topologies.pair import Pair, Undecided
from tests.property.topologies.steps import step
from tests.property.topologies.worlds import topology

SHRINK_S: Final = 30.0


@dataclass(frozen=True)
class Failure:
    kind: str
    seed: int
    indexes: tuple[int, ...]  # Of the steps up to the one that failed; empty: the topology was refused.
    error: str
    log: tuple[str, ...]

    def __str__(self) -> str:
        last = max(self.indexes, default=0) + 1
        only = ",".join(map(str, self.indexes)) or "none"
        command = f"python -m tests.property.topologies.cases {self.kind} {self.seed} {last} {only}"
        return "\n".join([*self.log, self.error, f"seed {self.seed} on {self.kind} fails; to repeat: {command}"])


def run(kind: str, seed: int, indexes: Sequence[int]) -> Failure | None:
    """Carry these steps out. None: the store and the model agreed after each, as far as it is decided."""
    pair = Pair(kind, Random(f"{seed}/store"))
    done = 0
    try:
        for name, rules in topology(Random(f"{seed}/topology")).items():
            pair.log.append(f"{name}: {rules}")
            pair.make(name, rules)
        for index in indexes:
            done += 1
            step(pair, Random(f"{seed}/{index}"), index)
        pair.restart(crash=False)
        pair.compare()
    except Undecided:
        return None  # The rest of the case cannot be compared.
    except Exception:
        return Failure(kind, seed, tuple(indexes[:done]), traceback.format_exc(), tuple(pair.log))
    finally:
        with suppress(Exception):  # A store that stopped cannot be closed without an error, and that is reported.
            pair.close()
    return None


def shrunk(failure: Failure) -> Failure:
    """With as few steps as leaving out finds within SHRINK_S: halves first, then smaller parts, then single steps."""
    until = time.monotonic() + SHRINK_S
    size = max(1, len(failure.indexes) // 2)
    while size and time.monotonic() < until:
        at = 0
        while at < len(failure.indexes) and time.monotonic() < until:
            fewer = failure.indexes[:at] + failure.indexes[at + size :]
            again = run(failure.kind, failure.seed, fewer)
            if again is None:
                at += size
            else:
                failure = again
        size //= 2
    return failure


def check(kind: str, seed: int, count: int) -> None:
    """AssertionError with all that is needed to repeat it, if the store and the model differ."""
    failure = run(kind, seed, range(count))
    if failure is not None:
        raise AssertionError(f"after step {failure.indexes[-1:]} of {count}\n{shrunk(failure)}")


def main() -> None:
    kind, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    indexes: Sequence[int] = range(count)
    if len(sys.argv) > 4:
        indexes = [int(text) for text in sys.argv[4].split(",") if text != "none"]
    failure = run(kind, seed, indexes)
    sys.stdout.write(f"{failure}\n" if failure else "the store and the model agree\n")
    sys.exit(failure is not None)


if __name__ == "__main__":
    main()
