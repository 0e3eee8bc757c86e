"""Load by wrk: prepared requests over keep-alive connections, with the processor time that the server took for them.

One thread of wrk is enough for servers in Python, and leaves them the other processors. Requests are written to a file
beforehand, so that making them costs the client nothing and every contender gets the same bytes (`wrk.lua`).
"""

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import apt
from benchmarks.cpu import cpu_seconds

PROGRAM = "wrk"
SCRIPT = Path(__file__).with_suffix(".lua")
MICROSECONDS = 1e6
TIMEOUT = "10s"
FEWEST = 20
"""With fewer answers a percentile means nothing."""


class LoadFailed(RuntimeError):
    """The server did not answer as it should; its time means nothing."""


@dataclass(frozen=True)
class Load:
    """What one load has shown. Times are microseconds; `cpu` is the server's processor time for a request."""

    requests: int
    rate: float
    cpu: float
    p50: float
    p95: float
    p99: float


def run(
    address: str, pid: int, requests: Sequence[bytes], connections: int, seconds: int, requests_max: int = 0
) -> Load:
    """Send the requests in turn for so many seconds, or until `requests_max` of them were sent."""
    with tempfile.NamedTemporaryFile(prefix="wrk-") as file:
        for request in requests:
            file.write(b"%d\n%b\n" % (len(request), request))
        file.flush()
        settings = [
            "--threads",
            "1",
            "--connections",
            str(connections),
            "--duration",
            f"{seconds}s",
            "--timeout",
            "10s",
        ]
        command = [apt.executable(PROGRAM), *settings, "--script", str(SCRIPT), address]
        before = cpu_seconds(pid)
        done = subprocess.run(
            [*command, "--", file.name, str(requests_max)], capture_output=True, text=True, check=False
        )
        used = cpu_seconds(pid) - before
    if done.returncode:
        raise LoadFailed(f"{PROGRAM} ended with {done.returncode}: {done.stderr[-500:]}{done.stdout[-500:]}")
    return parsed(done.stdout, used)


def parsed(output: str, cpu_used_s: float) -> Load:
    """The load that the last line of the script reports; LoadFailed where requests failed."""
    line = output.rstrip().rpartition("\n")[2]
    word, *numbers = line.split()
    if word != "measured":
        raise LoadFailed(f"{PROGRAM} did not report: {output[-500:]}")
    requests, elapsed, broken, refused, p50, p95, p99 = (int(number) for number in numbers)
    if broken or refused:
        raise LoadFailed(f"of {requests} requests {refused} were refused, and {broken} connections broke")
    if requests < FEWEST:
        raise LoadFailed(f"only {requests} requests were answered")
    return Load(requests, requests / elapsed * MICROSECONDS, cpu_used_s / requests * MICROSECONDS, p50, p95, p99)


def load_of(taken: Sequence[float], elapsed_s: float, cpu_used_s: float) -> Load:
    """The same of calls without a server, by the microseconds that each has taken."""
    ordered = sorted(taken)
    if len(ordered) < FEWEST:
        raise LoadFailed(f"only {len(ordered)} calls were made")
    p50, p95, p99 = (ordered[len(ordered) * part // 100] for part in (50, 95, 99))
    number = len(ordered)
    return Load(number, number / elapsed_s, cpu_used_s / number * MICROSECONDS, p50, p95, p99)


def best(rounds: Sequence[Load]) -> Load:
    """Of each figure by itself: noise only ever adds time."""
    return Load(
        max(each.requests for each in rounds),
        max(each.rate for each in rounds),
        min(each.cpu for each in rounds),
        min(each.p50 for each in rounds),
        min(each.p95 for each in rounds),
        min(each.p99 for each in rounds),
    )
