"""Minutes of damaged requests: `make fuzz` runs this alone."""

from collections.abc import Callable
from pathlib import Path

from tests.integration.server.test_malformed import fuzz


def test_no_damaged_request_makes_the_server_fail(
    tmp_path: Path, seconds: float, report: Callable[[str], None]
) -> None:
    count = fuzz(tmp_path, seconds / 4)
    report(f"damaged requests over HTTP: {count}, no failure")
    assert count > 100
