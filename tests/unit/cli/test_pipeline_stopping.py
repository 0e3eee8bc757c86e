"""The first Ctrl-C of a run lets the batch finish, the second does not; and a token goes to its own server only."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from unibus.cli.main import app
from unibus.cli.pipeline.options import Where
from unibus.cli.terminal.signals import stopping
from unibus.pipeline.reports.request import Reply
from unibus.pipeline.serving.protocol import serve_requests


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before


def stopped_by(done: list[bool], *numbers: signal.Signals) -> None:
    with stopping("ending") as stop:
        assert not stop.is_set()
        for number in numbers:
            signal.raise_signal(number)
        done.append(stop.is_set())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_told_by_the_exit_code(number: signal.Signals) -> None:
    done: list[bool] = []
    with pytest.raises(typer.Exit) as ended:
        stopped_by(done, number)
    assert done == [True]
    assert ended.value.exit_code == 128 + number


def test_the_second_one_ends_at_once() -> None:
    done: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        stopped_by(done, signal.SIGINT, signal.SIGINT)
    assert not done


def test_what_fails_because_of_a_ctrl_c_is_a_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a block calls Spark again, over a connection that Ctrl-C has cut."""

    def cut(lake: object, id: object, source: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("the answer is empty")

    monkeypatch.setattr("unibus.cli.pipeline.report._found", cut)
    result = CliRunner().invoke(app, ["pipeline", "trace", "x"], prog_name="unibus")
    assert (result.exit_code, result.output) == (130, "")


def test_without_a_signal_nothing_is_told() -> None:
    done: list[bool] = []
    stopped_by(done)
    assert done == [False]


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("sc://localhost:15002", "sc://localhost:15002/;token=t"),
        ("sc://127.0.0.1:15002/", "sc://localhost:15002/;token=t"),
        ("sc://localhost:15003", "sc://localhost:15003"),
        ("sc://elsewhere:15002", "sc://elsewhere:15002"),
        ("sc://localhost:15002/;token=mine", "sc://localhost:15002/;token=mine"),
        (None, None),
    ],
)
def test_the_token_of_a_server_goes_to_that_server_only(given: str | None, used: str | None, tmp_path: Path) -> None:
    with serve_requests(tmp_path, "sc://localhost:15002/;token=t", lambda request, gone: Reply()):
        assert Where(connect=given)._with_token(tmp_path) == used
    assert Where(connect=given)._with_token(tmp_path) == given
