"""The exit codes of the errors of durable queues: scripts use them to decide whether to retry."""

import pytest

from unibus import errors
from unibus.cli.terminal.report import ExitCode, exit_code


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.EntityNotFound, ExitCode.NOTHING_MATCHED),
        (errors.MessageNotFound, ExitCode.NOTHING_MATCHED),
        (errors.SessionNotFound, ExitCode.NOTHING_MATCHED),
        (errors.StoreBusy, ExitCode.CANNOT_CONNECT),
        (errors.StoreVersion, ExitCode.CANNOT_CONNECT),
        (errors.StoreDamaged, ExitCode.CANNOT_CONNECT),
        (errors.SessionRequired, ExitCode.USAGE),
        (errors.SessionNotAllowed, ExitCode.USAGE),
        (errors.StoreFailed, ExitCode.FAILED),
        (errors.QuotaExceeded, ExitCode.FAILED),
        (errors.SessionLockLost, ExitCode.FAILED),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_the_code_of_an_error(kind: type[errors.BusError], code: ExitCode) -> None:
    assert exit_code(kind("x")) is code
