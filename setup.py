"""How unibus is built: plain Python everywhere, and machine code for the hot rooms where a C compiler is at hand.

The hot rooms are compiled by mypyc as one group, so that calls between them are C calls. The same sources run
as they are when compiling is not possible: the bus is slower then, and nothing else changes.

    UNIBUS_PURE=1              build without compiling; the wheel fits every platform
    UNIBUS_REQUIRE_COMPILED=1  a build that cannot compile is an error instead of a plain package

An editable install is never compiled, and no build writes into src: a .so left there would shadow the file
beside it. Everything else about the package stands in pyproject.toml.
"""

import atexit
import os
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
HOT = ("core/*.py", "codecs/**/*.py")
MARKABLE = ("bus/**/*.py", "core/access/*.py", "core/filters/*.py", "core/life/*.py", "stores/**/*.py")
MARKER = "# mypyc: compiled"


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

    # Without our configuration of mypy: strictness is for `make check`, and what a later mypy finds to complain
    # about must not turn a user's build into a plain one.
    options = ["--config-file=", f"--cache-dir={os.path.join(target, 'mypy')}"]
    # No -march=native: a wheel travels to machines that have other instructions.
    found = mypycify([*options, *hot_files()], opt_level="3", debug_level="0", target_dir=target, group_name="unibus")
    if os.name == "posix":
        # gcc takes longer to look for what it could warn about than for all the rest, and nobody wrote this C.
        for extension in found:
            extension.extra_compile_args.append("-Wno-all")
    return found


def reason(error: BaseException) -> str:
    """One line; the compiler's own output stands above it in the log."""
    if isinstance(error, SystemExit):
        return "mypyc found errors in the hot rooms, printed above"
    return f"compiling failed: {type(error).__name__}: {str(error)[:160]}"


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
    """Says that there will be extensions before they exist, so that the wheel gets the platform's name."""

    def has_ext_modules(self) -> bool:
        return not asked("UNIBUS_PURE")


FALLBACK = """
*** unibus: the hot rooms could not be compiled, so this is the plain Python package.
*** It does the same, only slower. The reason: {reason}
*** A C compiler and the headers of Python are needed (Debian: apt install gcc python3-dev).
*** UNIBUS_PURE=1 asks for the plain package without this note; UNIBUS_REQUIRE_COMPILED=1 makes it an error.
"""

if __name__ == "__main__":
    if asked("UNIBUS_PURE") and asked("UNIBUS_REQUIRE_COMPILED"):
        raise SystemExit("unibus: UNIBUS_PURE and UNIBUS_REQUIRE_COMPILED contradict each other; unset one")
    setup(distclass=CompiledDistribution, cmdclass={"build": Build, "build_ext": BuildExt})
