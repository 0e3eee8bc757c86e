"""The Python that Spark runs: an error of one line if it does not have unibus."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unibus.errors import StoreUnavailable, UsageError
from unibus.pipeline import register
from unibus.pipeline.connector.planning import HIDE, check_exists, one_line
from unibus.pipeline.spark_python import check_python


def program(path: Path, code: int) -> str:
    path.write_text(f"#!/bin/sh\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


class FakeSession:
    """As much of a SparkSession as `register` uses."""

    def __init__(self, python: str, master: str = "local[*]") -> None:
        self._sc = SimpleNamespace(master=master, pythonExec=python)
        self.registered: list[Any] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)


def test_a_python_without_unibus_is_named_with_what_to_do(tmp_path: Path) -> None:
    other = program(tmp_path / "python3", 1)
    session = FakeSession(other)
    with pytest.raises(UsageError) as error:
        register(session)  # type: ignore[arg-type]
    assert str(error.value) == (
        f"Spark runs the Python {other}, which has no unibus (set PYSPARK_PYTHON={sys.executable} before the session "
        "starts, or activate the environment of this Python)"
    )
    assert session.registered == []


@pytest.mark.parametrize("master", ["local[*]", "spark://host:7077"])
def test_a_python_with_unibus_gets_the_format(tmp_path: Path, master: str) -> None:
    session = FakeSession(program(tmp_path / "python3", 0 if master == "local[*]" else 1), master)
    register(session)  # type: ignore[arg-type]
    assert [each.name() for each in session.registered] == ["unibus"]


def test_what_is_no_program_is_named() -> None:
    with pytest.raises(UsageError, match="Spark runs the Python 'no-such-python', which is not a program"):
        check_python("no-such-python")
    check_python(sys.executable)


def test_a_path_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    check_exists((str(tmp_path), "sqlite:///nothing.db"))  # A store names its own file.
    with pytest.raises(StoreUnavailable) as error:
        check_exists((f"{tmp_path}/nothing.db",))
    assert str(error.value) == (
        f"there is no file or folder {tmp_path}/nothing.db (load the URL of a store, such as sqlite:////data/bus.db, "
        "or a directory that `unibus capture` wrote)"
    )


@pytest.mark.parametrize("process", ["of Spark", "of the user"])
def test_only_a_process_of_spark_hides_the_traceback(process: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE, "")
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "x")
    if process == "of the user":
        monkeypatch.delenv("PYTHON_WORKER_FACTORY_SECRET")
    with pytest.raises(ZeroDivisionError), one_line():
        raise ZeroDivisionError  # Not ours: its traceback is needed.
    assert not os.environ[HIDE]
    with pytest.raises(UsageError), one_line():
        raise UsageError("wrong")
    assert os.environ[HIDE] == ("1" if process == "of Spark" else "")
