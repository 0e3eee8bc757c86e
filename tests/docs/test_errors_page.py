"""The table of errors in the guide is the tree of errors in the code."""

import inspect
import re
from pathlib import Path

from unibus import errors

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "errors-and-retries.md"
ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (yes|no) \| .+ \|$", re.MULTILINE)


def test_the_guide_lists_every_error_with_its_code_and_whether_to_try_again() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.BusError)]
    written = {(name, code, again == "yes") for name, code, again in ROW.findall(PAGE.read_text("utf-8"))}
    assert written == {(kind.__name__, kind.code, kind.retryable) for kind in kinds}
