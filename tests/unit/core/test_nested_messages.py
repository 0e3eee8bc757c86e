"""Objects of compiled classes deep inside of others: their deallocation must not touch what is not theirs."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
from unibus import Message
from unibus.core.lifecycle.commands import SendResult

MAKES = [
    lambda: Message.new("c", 1),
    lambda: Message.new("c", 1).with_fields({"subject": "s"}),
    lambda: SendResult("q", 1, "id", False),
]
for make in MAKES:
    for depth in range(120):  # Python puts off what is nested 50 times: one of these is at that depth.
        nested = [make() for _ in range(20)]
        for _ in range(depth):
            nested = [nested]
        del nested
"""


@pytest.mark.processes
def test_deeply_nested_messages_are_deallocated() -> None:
    """The debug allocator aborts a program that has written outside of its memory."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONMALLOC": "debug"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
