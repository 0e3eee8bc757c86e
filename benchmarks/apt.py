"""Programs that are no Python packages: found on the path, or installed by apt where this process may do that."""

import os
import shutil
import subprocess
import sys


class NoProgram(RuntimeError):
    """The program is not on this machine, and why it could not be installed."""


def executable(program: str) -> str:
    """Where the program of that name is. Its Debian package has the same name."""
    found = shutil.which(program)
    if found is None:
        _install(program)
        found = shutil.which(program)
    if found is None:
        raise NoProgram(f"{program} was installed, but is not on the path")
    return found


def _install(program: str) -> None:
    command = f"apt-get install {program}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoProgram(f"{program} is missing; on Debian and Ubuntu, as root: {command}")
    print(f"benchmarks: {program} is missing; as root, so: {command}", file=sys.stderr, flush=True)
    _apt("update")  # A failing mirror shows in the next line, where it matters.
    if not _apt("install", "-y", "--no-install-recommends", program):
        raise NoProgram(f"apt-get could not install {program}; see above, then try again: {command}")


def _apt(*arguments: str) -> bool:
    # Run level 1 keeps a package from starting a server for the whole machine.
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    # Standard output is for results only.
    done = subprocess.run(["apt-get", "-qq", *arguments], stdout=sys.stderr, env=os.environ | quiet, check=False)
    return done.returncode == 0
