"""A package that is not compiled says so where people look, once, and a checkout does not sound like a problem."""

import importlib.util
import inspect
import logging
import py_compile
from pathlib import Path

import pytest

from unibus.bus import build_kind
from unibus.core import COMPILED


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an installed package that could not be compiled, before its first bus."""
    monkeypatch.setattr(build_kind, "COMPILED", False)
    monkeypatch.setattr(build_kind, "is_checkout", lambda: False)
    monkeypatch.setattr(build_kind, "_is_logged", False)


def test_a_compiled_package_has_nothing_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_kind, "COMPILED", True)
    assert (build_kind.describe_build(), build_kind.build_hint()) == ("compiled", "")


@pytest.mark.usefixtures("plain")
def test_a_plain_package_tells_its_price_and_what_to_do() -> None:
    assert build_kind.describe_build() == "plain Python, about ten times slower than compiled"
    assert "pip install -v" in build_kind.build_hint()


@pytest.mark.usefixtures("plain")
def test_a_checkout_is_plain_on_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_kind, "is_checkout", lambda: True)
    assert (build_kind.describe_build(), build_kind.build_hint()) == ("plain Python, from a checkout", "")


def test_a_checkout_is_known_by_its_build_script(tmp_path: Path) -> None:
    package = tmp_path / "src" / "unibus"
    package.mkdir(parents=True)
    assert not build_kind.is_checkout(package)
    (tmp_path / "setup.py").touch()
    assert build_kind.is_checkout(package)
    assert not build_kind.is_checkout(tmp_path / "site-packages" / "unibus")


@pytest.mark.usefixtures("plain")
def test_the_first_bus_logs_it_and_no_other(face: type, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "unibus"):
        for _ in range(2):
            face()
    said = [record for record in caplog.records if "plain Python" in record.message]
    assert [record.levelname for record in said] == ["INFO"]
    assert "about ten times slower than compiled; install it again" in said[0].message


@pytest.mark.usefixtures("plain")
def test_a_bus_of_a_checkout_logs_no_advice(
    face: type, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_kind, "is_checkout", lambda: True)
    with caplog.at_level(logging.INFO, "unibus"):
        face()
    assert [record.message for record in caplog.records] == ["unibus is plain Python, from a checkout"]


def test_a_compiled_bus_logs_nothing(
    face: type, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_kind, "COMPILED", True)
    monkeypatch.setattr(build_kind, "_is_logged", False)
    with caplog.at_level(logging.INFO, "unibus"):
        face()
    assert caplog.records == []


def test_health_has_a_word_for_it_and_no_problem(face: type) -> None:
    health = face().health_check()
    assert (health.status, health.problem) == ("healthy", "")
    assert health.build == ("compiled" if COMPILED else "plain")


def test_a_package_without_its_sources_is_not_taken_for_a_compiled_one(tmp_path: Path) -> None:
    """Bytecode without .py files is plain Python: it needs the lock, and says that it is plain."""
    source = Path(inspect.getfile(build_kind)).parents[1] / "core" / "atomic.py"
    if not source.is_file():
        pytest.skip("the compiled package has no source to make bytecode of")
    py_compile.compile(str(source), str(tmp_path / "atomic.pyc"), doraise=True)
    spec = importlib.util.spec_from_file_location("atomic", tmp_path / "atomic.pyc")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.__file__ == str(tmp_path / "atomic.pyc")
    assert module.COMPILED is False
