"""The build compiles whatever the types of other packages look like, and says so when it could not compile."""

import os
from pathlib import Path

import mypy.api
import pytest
from setuptools import Distribution

import setup

# A file of the compile group that misuses a package, and a plain file that misuses another: as mypy sees it when the
# types of these packages have changed.
HOT = """
import msgspec
from plain import size_of

def packed(value: object) -> bytes:
    encoded: bytes = msgspec.json.encode(value, 1, 2, 3)
    return encoded if size_of(encoded) else b""
"""
PLAIN = """
import apsw

def size_of(data: bytes) -> int:
    apsw.Connection(1, 2, 3, 4, 5)
    return "not a number"
"""


def checked(folder: Path, *options: str) -> tuple[str, int]:
    (folder / "hot.py").write_text(HOT)
    (folder / "plain.py").write_text(PLAIN)
    output, _, status = mypy.api.run([*options, f"--cache-dir={folder / 'cache'}", str(folder / "hot.py")])
    return output, status


def test_types_of_other_packages_cannot_stop_the_build(tmp_path: Path) -> None:
    assert checked(tmp_path, *setup.MYPY_OPTIONS) == ("Success: no issues found in 1 source file\n", 0)


def test_mypy_alone_would_stop_at_them(tmp_path: Path) -> None:
    output, status = checked(tmp_path, "--config-file=")
    assert status == 1
    assert "hot.py:6: error: Too many positional arguments" in output
    assert "plain.py:5: error: " in output
    assert "plain.py:6: error: Incompatible return value" in output


def test_an_error_in_a_compiled_file_still_stops_it(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def size_of(data: bytes) -> int:\n    return 'not a number'\n")
    _, _, status = mypy.api.run([*setup.MYPY_OPTIONS, f"--cache-dir={tmp_path / 'cache'}", str(wrong)])
    assert status == 1


def test_the_build_uses_these_options_and_no_path_to_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def mypycify(paths: list[str], **settings: object) -> list[object]:
        given.extend([*paths, os.environ.get("MYPYPATH", "")])
        return []

    monkeypatch.setattr("mypyc.build.mypycify", mypycify)
    monkeypatch.setenv("MYPYPATH", "stubs")
    setup.generated("target")
    assert given[: len(setup.MYPY_OPTIONS)] == list(setup.MYPY_OPTIONS)
    assert given[-1] == ""
    assert "src/unibus/core/flow/queue.py" in given


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> setup.BuildExt:
    def fails(self: setup.BuildExt) -> None:
        raise OSError("no gcc")

    monkeypatch.setattr(setup.BuildExt, "compile_group", fails)
    monkeypatch.delenv("UNIBUS_REQUIRE_COMPILED", raising=False)
    built = setup.BuildExt(Distribution())
    built.ensure_finalized()
    return built


def test_a_build_that_cannot_compile_says_why_and_what_it_costs(
    command: setup.BuildExt, capsys: pytest.CaptureFixture[str]
) -> None:
    command.run()
    warning = capsys.readouterr().err
    assert "this package is plain Python" in warning
    assert "about ten times slower" in warning
    assert "Reason: compiling failed with OSError: no gcc" in warning


def test_a_build_that_has_to_compile_fails_instead(command: setup.BuildExt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIBUS_REQUIRE_COMPILED", "1")
    with pytest.raises(SystemExit, match="UNIBUS_REQUIRE_COMPILED is set, but compiling failed with OSError: no gcc"):
        command.run()


def test_exactly_the_listed_files_are_compiled() -> None:
    """A file that moves out of the patterns of setup.py would run plain, and nothing else would fail.

    A file that is compiled on purpose, or no longer, is added to the list or removed from it.
    """
    listed = Path(__file__).with_name("compiled_files.txt").read_text("utf-8").splitlines()
    found = [name.removeprefix(f"{setup.PACKAGE}/") for name in setup.hot_files()]
    assert sorted(set(listed) - set(found)) == []  # No longer compiled.
    assert sorted(set(found) - set(listed)) == []  # Compiled now.
    assert listed == found
