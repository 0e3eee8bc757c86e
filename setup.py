"""How unibus is built: plain Python everywhere, and machine code for the hot files where there is a C compiler.

The hot files are compiled by mypyc as one group, so that calls between them are C calls. The same sources run
as they are when compiling is not possible: the bus is about ten times slower then, and nothing else changes.

    UNIBUS_PURE=1              build without compiling; the wheel fits every platform
    UNIBUS_REQUIRE_COMPILED=1  a build that cannot compile is an error instead of a plain package

An editable install is never compiled, and no build writes into src: a .so left there would shadow the file
beside it. Everything else about the package is in pyproject.toml.
"""

import atexit
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

PACKAGE = "src/unibus"
# Whole folders that are compiled. A file of a MARKABLE folder is compiled when it carries the MARKER as a line of
# its own, so that the source itself tells its reader. tests/tidy reads these three.
HOT = (
    "core/*.py",
    "core/envelope/*.py",
    "core/codec/*.py",
    "core/topics/*.py",
    "core/flow/*.py",
    "codecs/**/*.py",
)
MARKABLE = (
    "bus/**/*.py",
    "core/access/*.py",
    "core/filters/*.py",
    "core/lifecycle/**/*.py",
    "endpoints/http/**/*.py",
    "stores/**/*.py",
)
MARKER = "# mypyc: compiled"

deallocation = re.compile(r"(?ms)^\s*\w+_dealloc\([^)]*self\)\n\s*\{\n.*?^\s*done: ;\n")
"""A function of the generated C, up to its last line."""
trashcan = re.compile(r"(?m)^\s*CPy_TRASHCAN_\w+\(.*\n")

# What mypy reads when it compiles. Types that it does not read cannot stop a build, so it reads as few as possible:
# no packages of others (they are Any: compiled files write out the types that they need of them), no errors in files
# of ours that are not compiled, and not our configuration of mypy, whose strictness is for `make check`. That also
# checks the hot files with these options, for each version of Python that we support (tools/pythons.py).
MYPY_OPTIONS = ("--config-file=", "--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent")


def hot_files() -> list[str]:
    """The files of the compile group, in a stable order."""
    root = Path(PACKAGE)
    hot = {path for pattern in HOT for path in root.glob(pattern)}
    markable = {path for pattern in MARKABLE for path in root.glob(pattern)}
    hot |= {path for path in markable if MARKER in path.read_text(encoding="utf-8").splitlines()}
    return sorted(path.as_posix() for path in hot)


def asked(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def generated(target: str) -> list[Extension]:
    """Translate the hot files to C. mypyc reports a type error by SystemExit, after printing it."""
    from mypyc.build import mypycify

    os.environ.pop("MYPYPATH", None)  # It may lead to types of other packages.
    options = [*MYPY_OPTIONS, f"--cache-dir={os.path.join(target, 'mypy')}"]
    # No -march=native: a wheel travels to machines that have other instructions.
    found = mypycify([*options, *hot_files()], opt_level="3", debug_level="0", target_dir=target, group_name="unibus")
    for extension in found:
        for source in extension.sources:
            leave_out_trashcan(Path(source))
    if os.name == "posix":
        # Looking for warnings takes gcc longer than all the rest, and this C is generated.
        for extension in found:
            extension.extra_compile_args.append("-Wno-all")
    return found


def leave_out_trashcan(source: Path) -> None:
    """Repair the deallocation of classes that are marked as acyclic.

    mypyc lets Python put off the deallocation of deeply nested objects. Python then links them in the header for its
    garbage collector, which these objects do not have: it writes over the memory before them. They hold
    each other only a few levels deep, so nothing needs to be put off.
    """
    text = source.read_text(encoding="utf-8")
    source.write_text(deallocation.sub(lambda found: without_trashcan(found[0]), text), encoding="utf-8")


def without_trashcan(function: str) -> str:
    return function if "PyObject_GC_UnTrack" in function else trashcan.sub("", function)


def reason(error: BaseException) -> str:
    """One line; the output of the compiler itself is above it in the log."""
    if isinstance(error, SystemExit):
        return "mypyc reported the errors printed above"
    return f"compiling failed with {type(error).__name__}: {str(error)[:160]}"


class Build(build):
    """Build in a fresh folder, so that nothing of an earlier build can travel in a later wheel."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_base = tempfile.mkdtemp(prefix="unibus-build-")
        atexit.register(shutil.rmtree, self.build_base, ignore_errors=True)


class BuildExt(build_ext):
    """Compile all hot files or none: half a group would not import."""

    def run(self) -> None:
        required = asked("UNIBUS_REQUIRE_COMPILED")
        if self.editable_mode and not required:
            return
        if self.editable_mode or self.inplace:
            raise SystemExit("unibus: compiled files never go into src; install without --editable or --inplace")
        try:
            self.compile_group()
        except (Exception, SystemExit) as error:
            self.forget_group()
            if required:
                raise SystemExit(f"unibus: UNIBUS_REQUIRE_COMPILED is set, but {reason(error)}") from error
            print(FALLBACK.format(reason=reason(error)), file=sys.stderr)

    def compile_group(self) -> None:
        self.distribution.ext_modules = generated(os.path.join(self.build_temp, "mypyc"))
        # The command was finalized before the extensions were known; C is generated only when something is built.
        self.distribution.reinitialize_command(self)
        self.ensure_finalized()
        super().run()

    def forget_group(self) -> None:
        for extension in self.extensions or ():
            Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
        self.extensions = []


class CompiledDistribution(Distribution):
    """Declares extensions before they exist, so that the wheel gets the name of the platform."""

    def has_ext_modules(self) -> bool:
        return not asked("UNIBUS_PURE")


FALLBACK = """
*** unibus: compiling failed, so this package is plain Python. It behaves the same and is about ten times slower.
*** Reason: {reason}
*** Compiling needs a C compiler and the C headers of Python (Debian and Ubuntu: apt install gcc python3-dev).
*** UNIBUS_PURE=1 builds the plain package without this warning; UNIBUS_REQUIRE_COMPILED=1 makes it an error.
"""

if __name__ == "__main__":
    if asked("UNIBUS_PURE") and asked("UNIBUS_REQUIRE_COMPILED"):
        raise SystemExit("unibus: UNIBUS_PURE and UNIBUS_REQUIRE_COMPILED contradict each other; unset one")
    setup(distclass=CompiledDistribution, cmdclass={"build": Build, "build_ext": BuildExt})
