"""Finds Java: in JAVA_HOME, else on the PATH. Spark needs it, and pip cannot install it.

Standard library only, so that a machine without Java or Spark gets an error of one line.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unibus.errors import ExtraMissing

VERSION_MIN: Final = 17
INSTALL_HINT: Final = (
    "on Debian and Ubuntu: apt-get install openjdk-17-jre-headless; elsewhere any Java 17 or newer, with JAVA_HOME set"
)
_RELEASE: Final = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_PRINTED: Final = re.compile(r'version "([^"]+)"')


@dataclass(frozen=True)
class Java:
    """`path` is the program itself; `version` is as Java writes it, for instance 17.0.15."""

    path: Path
    version: str

    @property
    def major(self) -> int:
        """17 of 17.0.15; 8 of 1.8.0_402, as it was written then."""
        numbers = [int(each) for each in re.findall(r"\d+", self.version)[:2]] or [0]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def find_java() -> Java:
    """ExtraMissing, with a hint what to install, if there is no Java or it is too old."""
    path = _program()
    found = Java(path, _version(path))
    if found.major < VERSION_MIN:
        raise ExtraMissing(
            f"Spark needs Java {VERSION_MIN} or newer, and {path} is {found.version or 'unknown'}", INSTALL_HINT
        )
    return found


def _program() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home, "bin", "java")
        if not os.access(path, os.X_OK):
            raise ExtraMissing(f"JAVA_HOME is {home}, which has no bin/java", f"unset it, or: {INSTALL_HINT}")
        return path
    found = shutil.which("java")
    if found is None:
        raise ExtraMissing("Spark needs Java, and there is none on the PATH", INSTALL_HINT)
    return Path(found)


def _version(path: Path) -> str:
    """From the file `release` of the installation; starting the program takes a tenth of a second."""
    try:
        text = path.resolve().parent.parent.joinpath("release").read_text("utf-8", "replace")
        found = _RELEASE.search(text)
    except OSError:
        found = None
    return found[1] if found else _printed_version(path)


def _printed_version(path: Path) -> str:
    try:
        done = subprocess.run([str(path), "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    found = _PRINTED.search(done.stderr + done.stdout)
    return found[1] if found else ""
