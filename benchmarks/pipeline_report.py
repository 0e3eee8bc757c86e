"""How long `unibus pipeline report` takes from the shell to its last line: cold, and with a server that is warm.

Cold starts a virtual machine and a session for one question. Warm is a command that asks `unibus pipeline serve`: of
all questions the slowest, each asked again. A process of Python is started in both. The targets are the design's.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from benchmarks.capture import unibus
from benchmarks.report import Figure

QUESTIONS = ("channels", "latency", "failures", "stuck", "consumers")
COLD_SECONDS, WARM_SECONDS = 12.0, 1.0


def report_figures(lake: Path, rounds: int) -> list[Figure]:
    cold = min(_asked(lake, "latency") for _ in range(rounds))
    with _server(lake):
        for question in QUESTIONS:
            _asked(lake, question)
        warm = max(min(_asked(lake, question) for _ in range(rounds)) for question in QUESTIONS)
    return [
        Figure("report, cold", "s", cold, COLD_SECONDS),
        Figure("report, from a warm server", "s", warm, WARM_SECONDS),
    ]


def _asked(lake: Path, question: str) -> float:
    start = perf_counter()
    done = subprocess.run(
        unibus("pipeline", "report", question, "--lake", lake), capture_output=True, text=True, check=False
    )
    elapsed = perf_counter() - start
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(f"report {question} ended with {done.returncode}: {done.stderr[-500:]}")
    return elapsed


@contextmanager
def _server(lake: Path) -> Iterator[None]:
    command = unibus("pipeline", "serve", "--lake", lake, "--port", _free_port())
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sys.stderr) as process:
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                raise RuntimeError("the server did not start")
            yield
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
