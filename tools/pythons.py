"""The Pythons that unibus supports: types for each of them, and the compiled package on those of this machine.

A Python that the package cannot be compiled on gets a package that works and is about ten times slower, so nothing
but these checks would notice it.

    python -m tools.pythons types    mypy for each supported version; needs none of these Pythons
    python -m tools.pythons compile  installs the package, compiled, and runs tools/smoke.py on every Python found

`compile` installs as a user does: `pip install .` with an isolated build, into an environment of its own in
.build/pythons/X.Y. That is kept, and made again when a source has changed. The log of the build is beside it.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import setup
from tools.prepare import PYTHON_MINIMUM, apt_install, fail, fingerprint, run, succeeds

FOLDER: Final = Path(".build/pythons")
SMOKE: Final = Path("tools/smoke.py")
CACHE_OF_BUILDS: Final = ".mypy_cache/build"
PROGRESS_S: Final = 30.0
SMOKE_S_MAX: Final = 300.0  # It takes a second; a deadlock must not stop the others.

_NAME: Final = re.compile(r"python(3(\.\d+)?)?(\.exe)?")
_CLASSIFIER: Final = re.compile(r"Programming Language :: Python :: (3\.\d+)")
_PROBE: Final = """
import json, os, sys, sysconfig
kind = "" if sys.implementation.name == "cpython" else sys.implementation.name
kind = "free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else kind
print(json.dumps([sys.version_info[:3], os.path.realpath(sys.executable), kind, sys.version]))
"""


class Interpreter(NamedTuple):
    version: tuple[int, int, int]
    path: str
    kind: str  # Empty for CPython as it is installed by default, the only one that unibus is compiled for.
    build: str  # The whole of sys.version: it changes when the same version is compiled again.

    @property
    def name(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def minor(self) -> str:
        return ".".join(map(str, self.version[:2]))


class Result(NamedTuple):
    name: str
    passed: bool
    text: str


# Types


def supported() -> list[str]:
    """The versions that pyproject.toml promises."""
    with open("pyproject.toml", "rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    return [found[1] for text in classifiers if (found := _CLASSIFIER.fullmatch(text))]


def types() -> None:
    """Both ways to look at the types: strictly at all files, and as the build looks at the files that it compiles."""
    mypy = (sys.executable, "-m", "mypy")
    build = (*setup.MYPY_OPTIONS, f"--cache-dir={CACHE_OF_BUILDS}", *setup.hot_files())
    failed = []
    for version in supported():
        for what, options in (("src", ("--strict", "src")), ("the compiled files, as the build checks them", build)):
            print(f"mypy for Python {version}: {what}")
            if not run(*mypy, "--python-version", version, *options, MYPYPATH=""):
                failed.append(f"{what} (Python {version})")
    if failed:
        raise fail(f"mypy rejects {', '.join(failed)}", "see above")


# Finding Pythons


def candidates() -> Iterator[str]:
    """The running Python, every Python on the path, and the versions of pyenv, which are on no path."""
    yield sys.executable
    for folder in os.get_exec_path():
        if os.path.isdir(folder):
            yield from (os.path.join(folder, name) for name in sorted(os.listdir(folder)) if _NAME.fullmatch(name))
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from (str(path) for path in sorted(pyenv.glob("versions/*/bin/python")))


def probe(path: str) -> Interpreter | None:
    """None if it does not run. A name on the path may be a launcher for a version that is not installed."""
    try:
        told = subprocess.run([path, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=60, check=True)
        version, real, kind, build = json.loads(told.stdout)
        return Interpreter(tuple(version), real, kind, build)
    except (OSError, subprocess.SubprocessError, TypeError, ValueError):
        return None


def choose(found: Iterable[Interpreter | None]) -> tuple[list[Interpreter], list[Interpreter]]:
    """One Python for each minor version, the newest; and those that unibus is not compiled for."""
    chosen: dict[str, Interpreter] = {}
    other: dict[str, Interpreter] = {}
    for python in found:
        if python is None or python.version < PYTHON_MINIMUM:
            continue
        if python.kind:
            other[python.path] = python
        elif python.minor not in chosen or python.version > chosen[python.minor].version:
            chosen[python.minor] = python
    return sorted(chosen.values()), sorted(other.values())


# Compiling


def compile_everywhere() -> None:
    pythons, other = choose(map(probe, dict.fromkeys(candidates())))
    for python in other:
        print(f"Python {python.name} ({python.kind}) is left out: {python.path}")
    names = ", ".join(python.name for python in pythons)
    missing = ", ".join(sorted(set(supported()) - {python.minor for python in pythons}))
    print(f"Python {names}" + (f"; this machine does not have {missing}" if missing else ""))
    results = [result_of(python) for python in pythons]
    print("\n=== the compiled package ===")
    for name, passed, text in results:
        print(f"Python {name:8} {'passed' if passed else 'FAILED'}: {text}")
    if missing:
        print(f"Python {missing}: not tried, not on this machine")
    if not all(result.passed for result in results):
        raise SystemExit(1)


def result_of(python: Interpreter) -> Result:
    log = FOLDER / f"{python.minor}.log"
    try:
        took_s = install(python, log)
    except SystemExit:  # The reason is printed. The other Pythons are tried all the same.
        return Result(python.name, False, f"it was not installed compiled; see {log}")
    program = [str(interpreter_of(python)), "-I", str(SMOKE)]
    try:
        told = subprocess.run(program, capture_output=True, text=True, timeout=SMOKE_S_MAX)
    except subprocess.TimeoutExpired:
        return Result(python.name, False, f"{SMOKE} did not end within {SMOKE_S_MAX:.0f} s")
    if told.returncode:
        print(told.stdout + told.stderr)
        return Result(python.name, False, f"{SMOKE}: {(told.stderr.strip() or 'no message').splitlines()[-1]}")
    when = "up to date" if took_s is None else f"installed in {took_s:.0f} s"
    return Result(python.name, True, f"{told.stdout.strip()} ({when})")


def interpreter_of(python: Interpreter) -> Path:
    return FOLDER / python.minor / "bin" / "python"


def install(python: Interpreter, log: Path) -> float | None:
    """The seconds that it took; None if the environment was up to date."""
    folder = FOLDER / python.minor
    stamp = folder / "fingerprint"
    wanted = fingerprint(python.build)
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    started = time.monotonic()
    # Run by the Python itself: it knows which headers it needs.
    if not run(python.path, "tools/prepare.py", "compiler"):
        raise SystemExit(1)
    if not succeeds(python.path, "from ensurepip import version"):
        apt_install(f"the venv module of Python {python.minor}", f"python{python.minor}-venv")
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # And with it the stamp: an interrupted run starts over.
    if not run(python.path, "-m", "venv", folder):
        raise fail(f"{folder} could not be created", f"see above; `{python.path} -m venv {folder}` has to work")
    print(f"Python {python.name}: compiling unibus, which takes some minutes; the log is {log}")
    command = [str(interpreter_of(python)), "-m", "pip", "install", "--verbose", "--disable-pip-version-check", "."]
    if not logged(command, log, python.name):
        print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-20:]))
        raise fail(f"unibus does not compile on Python {python.name}", f"see above, and {log}")
    stamp.write_text(wanted)
    took_s = time.monotonic() - started
    print(f"Python {python.name}: installed in {took_s:.0f} s")
    return took_s


def logged(command: list[str], log: Path, name: str) -> bool:
    """Run a command that takes minutes: its output goes to a file, and we say that it is alive. It ends with us."""
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
    environment |= {"UNIBUS_REQUIRE_COMPILED": "1", "UNIBUS_PURE": ""}
    started = time.monotonic()
    with open(log, "wb") as output:
        child = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            while True:
                try:
                    return child.wait(PROGRESS_S) == 0
                except subprocess.TimeoutExpired:
                    print(f"Python {name}: compiling, {time.monotonic() - started:.0f} s so far")
        except BaseException:
            os.killpg(child.pid, signal.SIGTERM)
            child.wait()
            raise


STEPS: Final = {"types": types, "compile": compile_everywhere}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.stdout.reconfigure(line_buffering=True)  # So that our lines come before those of the commands they announce.
    if sys.argv[1:2] not in [[step] for step in STEPS]:
        raise fail("which step?", f"one of: {', '.join(STEPS)}")
    STEPS[sys.argv[1]]()
