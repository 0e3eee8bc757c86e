"""Without Java the error names what to install; a Java that is too old is rejected."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unibus.errors import ExtraMissing
from unibus.pipeline.java import find_java


def java_in(home: Path, version: str, release: bool = True) -> Path:
    """A Java that only prints its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("25.0.1", 25)])
@pytest.mark.parametrize("release", [True, False])
def test_java_home_counts(
    version: str, major: int, release: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_in(tmp_path / "jdk", version, release)))
    monkeypatch.setenv("PATH", os.defpath)  # The program is a script of the shell.
    found = find_java()
    assert (found.version, found.major, found.path) == (version, major, tmp_path / "jdk" / "bin" / "java")


def test_the_path_counts_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(java_in(tmp_path / "jdk", "17.0.1") / "bin"))
    assert find_java().major == 17


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402", "nonsense"])
def test_an_old_java_is_not_taken(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_in(tmp_path / "jdk", version)))
    with pytest.raises(ExtraMissing, match=r"needs Java 17 or newer, and .* is") as told:
        find_java()
    assert "apt-get install" in told.value.hint


def test_a_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ExtraMissing, match="has no bin/java"):
        find_java()


def test_without_java_the_command_says_what_to_install(tmp_path: Path) -> None:
    """The whole program, with a PATH that has no Java."""
    code = (
        "from pathlib import Path\nfrom unibus.cli.pipeline.options import Where\n"
        "from unibus.cli.terminal.report import report\n"
        "try:\n    Where().session(Path('lake'))\n"
        "except Exception as error:\n    raise SystemExit(int(report(error, False)))"
    )
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    environment = {"PATH": str(tmp_path), "PYTHONPATH": paths, "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    what, hint = done.stderr.splitlines()
    assert what == "error: Spark needs Java, and there is none on the PATH"
    assert "openjdk-17-jre-headless" in hint
