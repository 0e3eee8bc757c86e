"""What `make` needs before it can work: an environment, a C compiler, the servers of the tests, a compiled package.

Standard library only, because the first step runs before anything is installed. Each step does nothing when its
work is done already, installs through apt only as root and only what is missing, and otherwise says what to install.

    prepare.py venv             .venv with unibus (editable, never compiled) and the tools of the `dev` extra
    prepare.py serve            .venv-serve with unibus (editable, never compiled) and the `server` extra
    prepare.py docs             .venv-docs with what builds the site of the documents: the `docs` extra
    prepare.py compiler         a C compiler and the headers of this Python
    prepare.py servers          what is not Python: servers that are measured beside us, promtool, and Java for Spark
    prepare.py clients          clients of Azure Service Bus that the tests run against our server
    prepare.py compiled         .build/compiled, made again only when a source changed
    prepare.py faults           .build/faults/compiled: the same with points at which tests can raise
    prepare.py expect compiled  fails unless `import unibus.core` finds the compiled package (or `expect plain`)
"""

import hashlib
import importlib
import importlib.metadata
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

VENV = Path(".venv")
SERVER_VENV = Path(".venv-serve")
DOCS_VENV = Path(".venv-docs")
COMPILED = Path(".build/compiled")
FAULTS = Path(".build/faults")
SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")
PYTHON_MINIMUM = (3, 11)
JAVA_MINIMUM = 17
NODE_MINIMUM = 18
AZURE_BEFORE = "7.14.3"
"""The version of Azure's Python client before the one in the environment: the tests run both."""
SOURCES = {".py", ".sql", ".typed", ".html", ".css", ".js", ".svg"}
"""What the compiled package is made of, by the ends of the names."""
JAVASCRIPT = Path(".build/javascript")
JAVASCRIPT_PACKAGES = Path("tests/integration/javascript/package.json")


def fail(what: str, hint: str) -> SystemExit:
    print(f"error: {what}\nhint: {hint}", file=sys.stderr)
    return SystemExit(1)


def run(*command: str | Path, **environment: str) -> bool:
    """Whether the command succeeded. Its output is shown as it comes. It ends with us, and so does what it started."""
    child = subprocess.Popen([str(part) for part in command], env={**os.environ, **environment}, start_new_session=True)
    try:
        return child.wait() == 0
    except BaseException:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()
        raise


def apt_install(what: str, *packages: str) -> None:
    """Install `packages`, or end with the command that a person has to give."""
    command = f"apt-get install {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise fail(f"{what} is missing", f"on Debian and Ubuntu, as root: {command}")
    print(f"{what} is missing; as root, so: {command}")
    # Run level 1 keeps a package from starting a server for the whole machine, which was not requested.
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    run("apt-get", "-qq", "update", **quiet)  # A failing mirror shows in the next line, where it matters.
    if not run("apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages, **quiet):
        raise fail(f"apt-get could not install {what}", f"see above; then try again: {command}")


def version_name() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def venv() -> None:
    make_venv(VENV, "dev", "its development tools")


def serve() -> None:
    """What a user of the server installs, and nothing else: in seconds, where the tools take minutes.

    Editable, so never compiled: compiling takes longer than a first look at the server should.
    """
    make_venv(SERVER_VENV, "server", "the packages of its server")


def docs() -> None:
    """Zensical in an environment of its own: no test and no server needs it."""
    make_venv(DOCS_VENV, "docs", "what builds the site")


def make_venv(folder: Path, extra: str, what: str) -> None:
    python = folder / "bin" / "python"
    if not usable(python):
        # Debian ships venv without the part that puts pip into a new environment.
        if not succeeds(sys.executable, "from ensurepip import version"):
            apt_install("Python's venv module", f"{version_name()}-venv")
        print(f"creating {folder} with {version_name()}")
        if not run(sys.executable, "-m", "venv", "--clear", folder):
            raise fail(f"{folder} could not be created", f"see above; `{sys.executable} -m venv {folder}` has to work")
    print(f"installing unibus (editable) and {what}")
    if not run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--editable", f".[{extra}]"):
        raise fail("the packages could not be installed", "see above; pip needs its package index, or a mirror of it")


def usable(python: Path) -> bool:
    """Whether this environment's Python runs, is new enough and has pip: not so after an interrupted start."""
    return succeeds(python, f"import pip, sys; sys.exit(sys.version_info < {PYTHON_MINIMUM})")


def succeeds(python: str | Path, code: str) -> bool:
    return Path(python).exists() and subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def compiler() -> None:
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(shlex.split(command)[0]) is None:
        apt_install("a C compiler", "gcc", "libc6-dev", f"{version_name()}-dev")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        apt_install("Python.h, the C headers of Python,", "libc6-dev", f"{version_name()}-dev")


def servers() -> None:
    # Chromium opens the page of a server, promtool checks its alerts.
    programs = {"redis-server": "redis-server", "wrk": "wrk", "promtool": "prometheus", "chromium": "chromium"}
    for program, package in programs.items():
        if shutil.which(program) is None:
            apt_install(program, package)
    for package in ("default-jre-headless", f"openjdk-{JAVA_MINIMUM}-jre-headless"):
        if not has_java():  # What a system calls its default may be too old.
            apt_install(f"Java {JAVA_MINIMUM} or newer", package)


def has_java() -> bool:
    """Whether there is one that Spark runs on. JAVA_HOME counts before the path, as it does for Spark."""
    home = os.environ.get("JAVA_HOME")
    program = Path(home, "bin", "java") if home else shutil.which("java")
    if program is None or not Path(program).exists():
        return False
    told = subprocess.run([str(program), "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', told)
    return found is not None and int(found[1]) >= JAVA_MINIMUM


def clients() -> None:
    """Azure's clients in versions and languages of their own, in folders that nothing else sees."""
    target = Path(".build", f"azure-servicebus-{AZURE_BEFORE}")
    if is_stale(target, AZURE_BEFORE):
        options = ("--quiet", "--disable-pip-version-check", "--target", target)
        if not run(sys.executable, "-m", "pip", "install", *options, f"azure-servicebus=={AZURE_BEFORE}"):
            raise fail("azure-servicebus could not be installed", "see above; pip needs its package index, or a mirror")
        stamp_of(target).write_text(AZURE_BEFORE)
    if not has_node():
        apt_install(f"Node.js {NODE_MINIMUM} or newer with npm", "nodejs", *([] if shutil.which("npm") else ["npm"]))
    wanted = JAVASCRIPT_PACKAGES.read_text()
    if is_stale(JAVASCRIPT, wanted):
        JAVASCRIPT.mkdir(parents=True)
        shutil.copy(JAVASCRIPT_PACKAGES, JAVASCRIPT)
        options = ("--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error")
        # Node has certificate authorities of its own; a machine may know its package index by another one.
        is_set = "NODE_EXTRA_CA_CERTS" in os.environ or not SYSTEM_CA.exists()
        trusted = {} if is_set else {"NODE_EXTRA_CA_CERTS": str(SYSTEM_CA)}
        if not run("npm", "install", *options, "--prefix", JAVASCRIPT, **trusted):
            raise fail("the JavaScript clients could not be installed", "see above; npm needs its registry")
        stamp_of(JAVASCRIPT).write_text(wanted)


def is_stale(folder: Path, wanted: str) -> bool:
    """Whether a folder has to be made, with `wanted` in its stamp at the end. What is left of it is removed."""
    stamp = stamp_of(folder)
    if stamp.exists() and stamp.read_text() == wanted:
        print(f"{folder} is up to date")
        return False
    stamp.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"installing into {folder}")
    return True


def stamp_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.stamp")


def has_node() -> bool:
    if shutil.which("node") is None or shutil.which("npm") is None:
        return False
    found = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    return int(found.lstrip("v").partition(".")[0] or 0) >= NODE_MINIMUM


def compiled() -> None:
    compile_into(COMPILED, Path("."))


def faults() -> None:
    """The compiled package with a point in each function at which a test can raise."""
    compile_into(FAULTS / "compiled", FAULTS / "source")


def compile_into(target: Path, source: Path) -> None:
    print_of_sources, stamp = fingerprint(), target.with_name(f"{target.name}.sha256")
    if stamp.exists() and stamp.read_text() == print_of_sources:
        print(f"{target} is up to date")
        return
    compiler()
    print(f"compiling into {target}")
    started = time.monotonic()
    stamp.unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    if source != Path(".") and not run(sys.executable, "tools/fault_points.py", source):
        raise fail("the fault points could not be written", "see above")
    # Without isolation, so that the mypy that checks is the mypy that compiles, and nothing is fetched again.
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--target", target)
    switches = {"UNIBUS_REQUIRE_COMPILED": "1", "UNIBUS_PURE": ""}
    if not run(sys.executable, "-m", "pip", "install", *options, f"./{source}", **switches):
        raise fail("the package does not compile", "see above; the plain package may work all the same")
    stamp.write_text(print_of_sources)
    print(f"compiled in {time.monotonic() - started:.0f} s")


def fingerprint(python: str = sys.version) -> str:
    """Of all that the compiled package depends on. Times of files say too little: a deleted file has none."""
    digest = hashlib.sha256(f"{python} {importlib.metadata.version('mypy')}".encode())
    sources = (path for path in Path("src").rglob("*") if path.is_file() and path.suffix in SOURCES)
    for path in sorted([*sources, Path("pyproject.toml"), Path("setup.py")]):
        digest.update(f"{path.as_posix()} {path.stat().st_size} ".encode() + path.read_bytes())
    return digest.hexdigest()


def expect(kind: str) -> None:
    core = importlib.import_module("unibus.core")
    found = "compiled" if core.COMPILED else "plain"
    print(f"unibus.core is {found}: {core.__file__}")
    if found != kind:
        raise fail(f"this run needs the {kind} package", "a leftover .so in src, or PYTHONPATH, hides it: make clean")


STEPS = {
    "venv": venv,
    "serve": serve,
    "docs": docs,
    "compiler": compiler,
    "servers": servers,
    "clients": clients,
    "compiled": compiled,
    "faults": faults,
    "expect": expect,
}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.stdout.reconfigure(line_buffering=True)  # So that our lines stand before those of the commands they announce.
    if len(sys.argv) < 2 or sys.argv[1] not in STEPS:
        raise fail("which step?", f"one of: {', '.join(STEPS)}")
    STEPS[sys.argv[1]](*sys.argv[2:])
