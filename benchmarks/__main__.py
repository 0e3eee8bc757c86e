"""`python -m benchmarks [NAME…|all] [--json] [--quick] [--rounds N]`.

Runs with a bare Python: until `environment.ensure` has found or built an interpreter that holds the compiled
package and every peer, only the standard library is imported. Standard output carries results and nothing else,
so that `--json` can be piped; every remark goes to standard error.
"""

import argparse
import ast
import contextlib
import importlib
import sys
import traceback
from pathlib import Path

from benchmarks import environment
from benchmarks.measure import Options

# In the order in which they are reported: the bus as a user meets it, then its parts.
BENCHMARKS = {
    "inprocess": "inprocess",
    "durable": "durable",
    "http": "http",
    "management": "management",
    "backlog": "backlog",
    "recovery": "recovery",
    "history": "history",
    "capture": "capture",
    "freshness": "freshness",
    "pipeline": "pipeline",
    "connector": "connector",
    "fanout": "fanout",
    "prefixes": "prefixes_report",
    "memory": "memory",
    "filters": "filters",
    "codec": "codec",
    "typed": "typed",
    "dedup": "dedup_report",
    "queue_ops": "queue_ops",
}
"""Name → module with `run`."""


def main(arguments: list[str]) -> int:
    """0: all measured; 1: a benchmark or the build failed; 2: the command line is wrong."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if not asked.names:
        _print_list()
        return 0
    unknown = [name for name in asked.names if name not in (*BENCHMARKS, "all")]
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    environment.ensure(arguments)
    names = tuple(BENCHMARKS) if "all" in asked.names else tuple(dict.fromkeys(asked.names))
    options = Options.of(rounds=asked.rounds, quick=asked.quick)
    done = [_run(name, options, asked.json) for name in names]
    return 0 if all(done) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures unibus beside its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure, or 'all'; none lists them")
    parser.add_argument("--json", action="store_true", help="one JSON object per name, one per line")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the messages, three rounds: to try, not to quote"
    )
    parser.add_argument("--rounds", type=_positive, metavar="N", help="rounds of which the best counts")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _print_list() -> None:
    """Reads the first docstring line of each file rather than importing it: the peers may not be installed."""
    folder = Path(__file__).parent
    for name, module in BENCHMARKS.items():
        documented = ast.get_docstring(ast.parse((folder / f"{module}.py").read_text(encoding="utf-8"))) or ""
        print(f"{name:<10} {documented.partition(chr(10))[0]}")


def _run(name: str, options: Options, as_json: bool) -> bool:
    """One failing benchmark must not take the others' results with it; it is reported, and the exit code says so."""
    report = importlib.import_module("benchmarks.report")
    print(f"{name}: best of {options.rounds} rounds …", file=sys.stderr)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            result = importlib.import_module(f"benchmarks.{BENCHMARKS[name]}").run(options)
    except Exception:
        traceback.print_exc()
        print(f"error: {name} was not measured", file=sys.stderr)
        return False
    if as_json:
        print(report.to_json(result), flush=True)
    else:
        report.show(result)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
