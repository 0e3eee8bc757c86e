"""Ctrl-C waits for a call whose outcome must be known, and takes effect right after it."""

import signal
import threading
from collections.abc import Iterator

import pytest

from unibus.cli.terminal.signals import undisturbed


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    """The process that runs the tests may ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(done: list[str], error: type[Exception] | None = None) -> None:
    with undisturbed():
        signal.raise_signal(signal.SIGINT)
        done.append("finished")
        if error is not None:
            raise error


def test_ctrl_c_comes_after_the_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(done)
    assert done == ["finished"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_stays_the_error() -> None:
    with pytest.raises(ZeroDivisionError):
        interrupted([], ZeroDivisionError)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with undisturbed():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_have_no_signals_to_put_off() -> None:
    done = []

    def work() -> None:
        with undisturbed():
            done.append("finished")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == ["finished"]
