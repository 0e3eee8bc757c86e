"""`make pythons` finds every Python of the machine, tries each one once, and fails if one of them is not compiled."""

import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import prepare, pythons
from tools.pythons import Interpreter, Result

Script = Callable[[str, str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A program with a name, made of a line of shell."""

    def make(name: str, line: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
        return str(path)

    return make


def python(version: tuple[int, int, int], path: str = "", kind: str = "") -> Interpreter:
    return Interpreter(version, path or f"python-{version}", kind, "a build")


# Which versions


def test_the_supported_versions_begin_with_the_oldest_that_installs() -> None:
    with open("pyproject.toml", "rb") as file:
        oldest = tomllib.load(file)["project"]["requires-python"]
    versions = pythons.supported()
    assert oldest == f">={versions[0]}"
    assert tuple(map(int, versions[0].split("."))) == prepare.PYTHON_MINIMUM
    assert versions == sorted(versions, key=lambda version: int(version.partition(".")[2]))


def test_types_are_checked_strictly_and_as_the_build_does_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(pythons, "run", lambda *command, **environment: calls.append(command) or True)
    monkeypatch.setattr(pythons, "supported", lambda: ["3.11", "3.99"])
    pythons.types()
    asked = [
        (call[call.index("--python-version") + 1], "--strict" in call, "--no-site-packages" in call) for call in calls
    ]
    assert asked == [("3.11", True, False), ("3.11", False, True), ("3.99", True, False), ("3.99", False, True)]
    assert all("src/unibus/core/flow/queue.py" in call for call in calls if "--strict" not in call)


def test_a_version_that_mypy_rejects_fails_the_check_after_all_were_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(pythons, "run", lambda *command, **environment: calls.append(command) or "3.11" in command)
    monkeypatch.setattr(pythons, "supported", lambda: ["3.99", "3.11"])
    with pytest.raises(SystemExit):
        pythons.types()
    assert len(calls) == 4
    assert "error: mypy rejects src (Python 3.99)" in capsys.readouterr().err


# Finding


def test_pythons_are_looked_for_on_the_path_and_in_pyenv(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [script(name, "") for name in ("one/python3", "one/python3.12", "two/python3.12")]
    wanted.append(script("pyenv/versions/3.13.0/bin/python", ""))
    for name in ("one/python3.12-config", "one/python2", "one/pythonw", "one/ipython3"):
        script(name, "")
    folders = ("one", "missing", "two")
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / folder) for folder in folders))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert list(pythons.candidates()) == [sys.executable, *wanted]


def test_a_python_tells_its_version_and_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(sys.executable)
    for path in (sys.executable, str(tmp_path / "link")):
        found = pythons.probe(path)
        assert found is not None
        assert (found.version, found.path) == (sys.version_info[:3], os.path.realpath(sys.executable))
        assert found.kind == ""


@pytest.mark.parametrize("line", ["exit 1", "echo something else", "echo 7"])
def test_a_launcher_that_leads_nowhere_is_no_python(script: Script, line: str) -> None:
    assert pythons.probe(script("python3.12", line)) is None


def test_a_name_that_is_gone_is_no_python(tmp_path: Path) -> None:
    assert pythons.probe(str(tmp_path / "python3.12")) is None


def test_each_minor_version_is_tried_once_on_its_newest_python() -> None:
    found = [
        python((3, 13, 0)),
        python((3, 11, 2), "system"),
        None,
        python((3, 11, 7), "pyenv"),
        python((3, 11, 7), "pyenv"),
        python((3, 10, 13)),
        python((2, 7, 18)),
        python((3, 14, 0), kind="free-threaded"),
    ]
    chosen, other = pythons.choose(found)
    assert [(each.name, each.path) for each in chosen] == [("3.11.7", "pyenv"), ("3.13.0", "python-(3, 13, 0)")]
    assert [each.name for each in other] == ["3.14.0"]


# Trying


def test_one_that_fails_fails_all_and_the_others_are_tried_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pythons, "candidates", lambda: iter(["a", "b"]))
    monkeypatch.setattr(pythons, "probe", {"a": python((3, 11, 1)), "b": python((3, 13, 0))}.get)
    monkeypatch.setattr(pythons, "supported", lambda: ["3.11", "3.12", "3.13"])
    monkeypatch.setattr(pythons, "result_of", lambda one: Result(one.name, one.minor == "3.13", "some text"))
    with pytest.raises(SystemExit):
        pythons.compile_everywhere()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Python 3.11.1, 3.13.0; this machine does not have 3.12"
    assert lines[-3:] == [
        "Python 3.11.1   FAILED: some text",
        "Python 3.13.0   passed: some text",
        "Python 3.12: not tried, not on this machine",
    ]


def test_a_machine_with_all_of_them_passes_when_all_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pythons, "candidates", lambda: iter(["a", "a"]))
    monkeypatch.setattr(pythons, "probe", {"a": python((3, 11, 1))}.get)
    monkeypatch.setattr(pythons, "supported", lambda: ["3.11"])
    monkeypatch.setattr(pythons, "result_of", lambda one: Result(one.name, True, "some text"))
    pythons.compile_everywhere()
    assert capsys.readouterr().out.splitlines()[-1] == "Python 3.11.1   passed: some text"


def test_one_that_does_not_compile_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def install(one: Interpreter, log: Path) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(pythons, "install", install)
    name, passed, text = pythons.result_of(python((3, 12, 1)))
    assert (name, passed) == ("3.12.1", False)
    assert "3.12.log" in text


@pytest.mark.parametrize(
    ("line", "passed", "text"),
    [("echo all versions", True, "all versions (up to date)"), ("echo wrong >&2; exit 1", False, "smoke.py: wrong")],
)
def test_the_short_program_decides(
    script: Script, monkeypatch: pytest.MonkeyPatch, line: str, passed: bool, text: str
) -> None:
    program = Path(script("python", line))
    monkeypatch.setattr(pythons, "install", lambda one, log: None)
    monkeypatch.setattr(pythons, "interpreter_of", lambda one: program)
    result = pythons.result_of(python((3, 12, 1)))
    assert result.passed is passed
    assert result.text.endswith(text)


def test_a_short_program_that_hangs_is_a_failure(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Path(script("python", "exec sleep 60"))
    monkeypatch.setattr(pythons, "install", lambda one, log: None)
    monkeypatch.setattr(pythons, "interpreter_of", lambda one: program)
    monkeypatch.setattr(pythons, "SMOKE_S_MAX", 0.05)
    result = pythons.result_of(python((3, 12, 1)))
    assert (result.passed, "did not end" in result.text) == (False, True)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What pip was called with, by an `install` that makes nothing but its folder."""
    calls: list[list[str]] = []

    def run(*command: str | Path) -> bool:
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)
        return True

    monkeypatch.setattr(pythons, "FOLDER", tmp_path / "pythons")
    monkeypatch.setattr(pythons, "run", run)
    monkeypatch.setattr(pythons, "succeeds", lambda path, code: True)
    monkeypatch.setattr(pythons, "fingerprint", lambda build: f"sources and {build}")
    monkeypatch.setattr(pythons, "logged", lambda command, log, name: calls.append(command) or True)
    return calls


def test_an_environment_is_made_again_only_when_something_has_changed(
    installed: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    assert pythons.install(python((3, 12, 1)), log) is not None
    assert pythons.install(python((3, 12, 1)), log) is None
    assert len(installed) == 1
    monkeypatch.setattr(pythons, "fingerprint", lambda build: f"other sources and {build}")
    assert pythons.install(python((3, 12, 1)), log) is not None
    assert installed[1][1:4] == ["-m", "pip", "install"]


def test_an_environment_that_was_not_finished_is_made_again(
    installed: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.write_text("why")
    monkeypatch.setattr(pythons, "logged", lambda command, log, name: False)
    for _ in range(2):
        with pytest.raises(SystemExit):
            pythons.install(python((3, 12, 1)), log)
    assert not (tmp_path / "pythons" / "3.12" / "fingerprint").exists()


def test_the_build_has_to_compile_and_sees_no_other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "src")
    monkeypatch.setenv("UNIBUS_PURE", "1")
    names = ("UNIBUS_REQUIRE_COMPILED", "UNIBUS_PURE", "PYTHONPATH")
    code = f"import os; print([os.environ.get(name) for name in {names}])"
    assert pythons.logged([sys.executable, "-c", code], tmp_path / "log", "3.12.1")
    assert (tmp_path / "log").read_text() == "['1', '', None]\n"
    assert not pythons.logged([sys.executable, "-c", "import sys; sys.exit(1)"], tmp_path / "log", "3.12.1")


def test_the_fingerprint_knows_the_python_and_every_file_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyproject.toml", "setup.py", "src/a.py", "src/schema.sql"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one")
    monkeypatch.chdir(tmp_path)
    seen = {prepare.fingerprint("3.11"), prepare.fingerprint("3.12")}
    for name in ("pyproject.toml", "setup.py", "src/a.py", "src/schema.sql"):
        (tmp_path / name).write_text("two")
        seen.add(prepare.fingerprint("3.12"))
    assert len(seen) == 6
