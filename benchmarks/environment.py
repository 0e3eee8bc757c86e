"""Where a benchmark runs: an interpreter with the compiled package of the present sources and every peer.

A figure of the uncompiled tree, or of an old build, would be a figure of something else. When the running
interpreter does not hold the right thing, a private one is made in `.venv-bench` and the command starts again
there. Only the standard library is imported here, since this runs on a fresh clone before anything is installed.
"""

import hashlib
import importlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-bench"
STAMP = VENV / "built-from"

PEERS = (
    "pyee",
    "blinker",
    "zmq",
    "msgpack",
    "orjson",
    "pydantic",
    "pygtrie",
    "cachetools",
    "redis",
    "litequeue",
    "persistqueue",
    "duckdb",
    "polars",
)
PIPELINE = ("numpy", "pyarrow", "deltalake", "pyspark")
"""What our own pipeline needs, beside Java."""

SERVER = ("fastapi", "httptools", "uvicorn", "uvloop")
"""What our own server needs, and the limits beside it."""

# Set for the second start, so that a build that does not give what it promised ends in an error, not in a loop.
SECOND_START = "UNIBUS_BENCH_SECOND_START"


def ensure(arguments: list[str]) -> None:
    """Returns in an interpreter fit to measure with, or never: it starts the command again in `.venv-bench`."""
    lacking = what_is_lacking()
    if not lacking:
        return
    if os.environ.get(SECOND_START):
        _fail(f"{VENV.name} still lacks {', '.join(lacking)}", f"remove {VENV.name} and try again")
    _say(f"this interpreter lacks {', '.join(lacking)}; using {VENV.name}")
    if not _is_built():
        _build()
    os.chdir(ROOT)
    sys.stdout.flush()
    sys.stderr.flush()
    python = str(_python())
    os.execve(python, [python, "-m", "benchmarks", *arguments], _clean_environment() | {SECOND_START: "1"})


def what_is_lacking() -> list[str]:
    """Names what this interpreter would need for an honest run; empty when it can measure."""
    lacking = [] if _has_compiled_package() else ["a compiled unibus of these sources"]
    return lacking + [name for name in (*PEERS, *PIPELINE, *SERVER) if importlib.util.find_spec(name) is None]


def _has_compiled_package() -> bool:
    try:
        core = importlib.import_module("unibus.core")
    except ImportError:
        return False
    if not getattr(core, "COMPILED", False) or core.__file__ is None:
        return False
    installed = Path(core.__file__).resolve().parent.parent
    # A compiled file inside the source tree may be older than the source beside it; only an installed copy
    # whose sources are the present ones is known to be built from them.
    return not installed.is_relative_to(ROOT / "src") and _texts(installed) == _texts(ROOT / "src" / "unibus")


def _texts(package: Path) -> dict[str, bytes]:
    return {str(path.relative_to(package)): path.read_bytes() for path in package.rglob("*.py")}


def digest_of_sources(root: Path) -> str:
    """Changes when the interpreter or any file that the build reads changes, appears or goes away.

    Contents rather than times: a checkout sets times at random, and a removed file has none.
    """
    digest = hashlib.sha256(sys.version.encode())
    for path in _build_inputs(root):
        digest.update(f"\0{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _build_inputs(root: Path) -> Iterator[Path]:
    yield from (root / name for name in ("pyproject.toml", "setup.py") if (root / name).is_file())
    for path in sorted((root / "src").rglob("*")):
        made_by_tools = "__pycache__" in path.parts or any(part.endswith(".egg-info") for part in path.parts)
        if path.is_file() and path.suffix != ".so" and not made_by_tools:
            yield path


def _is_built() -> bool:
    return _python().exists() and STAMP.is_file() and STAMP.read_text() == digest_of_sources(ROOT)


def _build() -> None:
    """Makes or refreshes `.venv-bench`. The stamp is written last, so an interrupted build is built again."""
    digest = digest_of_sources(ROOT)
    STAMP.unlink(missing_ok=True)
    if not _venv_fits():
        _say(f"making {VENV.name} (once; later runs rebuild it only when the sources change)")
        _call([sys.executable, "-m", "venv", "--clear", str(VENV)], "Debian and Ubuntu: apt install python3-venv")
    _say("compiling and installing unibus and its peers; this takes a minute or two")
    with tempfile.TemporaryDirectory(prefix="unibus-bench-") as scratch:
        # A copy, because a build leaves files behind: in the tree they would shadow sources, or outlive them.
        source = shutil.copytree(ROOT, Path(scratch) / "unibus", ignore=_not_for_the_build)
        install = [str(_python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _call(
            [*install, "--upgrade", f"{source}[bench,pipeline,server]"],
            "the reason is above; a C compiler and the headers of Python are needed",
        )
    STAMP.write_text(digest)


def _venv_fits() -> bool:
    settings = VENV / "pyvenv.cfg"
    wanted = f"version = {platform.python_version()}"
    return _python().exists() and settings.is_file() and wanted in settings.read_text().splitlines()


def _not_for_the_build(folder: str, names: list[str]) -> set[str]:
    always = shutil.ignore_patterns(".*", "__pycache__", "*.so", "*.egg-info")(folder, names)
    at_top = {"benchmarks", "build", "dist", "docs", "tests"} if Path(folder) == ROOT else set()
    return always | (at_top & set(names))


def _python() -> Path:
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _call(command: list[str], hint: str) -> None:
    done = subprocess.run(command, stdout=sys.stderr, env=_clean_environment(), check=False)
    if done.returncode:
        _fail(f"{' '.join(command[1:4])} ended with {done.returncode}", hint)


def _clean_environment() -> dict[str, str]:
    """Without what would put the source tree in front of the installed package, or build it uncompiled."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "UNIBUS_PURE"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | {"UNIBUS_REQUIRE_COMPILED": "1"}


def _say(text: str) -> None:
    print(f"benchmarks: {text}", file=sys.stderr, flush=True)


def _fail(what: str, hint: str) -> NoReturn:
    print(f"error: {what}\nhint: {hint}", file=sys.stderr)
    raise SystemExit(1)
