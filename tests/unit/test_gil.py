"""unibus refuses an interpreter that runs without the GIL (decision 0003): the atomic steps of `core` rely on it."""

import importlib
import sys

import pytest

import unibus


def test_an_interpreter_without_a_gil_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(ImportError, match=r"requires the global interpreter lock .* PYTHON_GIL=1"):
        importlib.reload(unibus)


def test_a_free_threaded_build_with_its_gil_enabled_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: True, raising=False)
    assert importlib.reload(unibus) is unibus


def test_a_python_that_has_no_such_question_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "_is_gil_enabled", raising=False)
    assert importlib.reload(unibus) is unibus
