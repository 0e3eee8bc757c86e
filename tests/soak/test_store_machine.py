"""The stores against the model for minutes instead of seconds: longer runs, and many more of them."""

import pytest
from hypothesis import settings

from tests.property.test_store_machine import (
    MODEST,
    JsonFileMachine,
    LateJsonFileMachine,
    LateMemoryMachine,
    LateSqliteMachine,
    MemoryMachine,
    SqliteMachine,
)

LONG = settings(MODEST, max_examples=500, stateful_step_count=80)
LATE = settings(MODEST, max_examples=50, stateful_step_count=80)

TestMemory = pytest.mark.unchecked(MemoryMachine.TestCase)  # Its teardown empties the ready queues.
TestMemory.settings = LONG
TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = LONG
TestJsonFile = JsonFileMachine.TestCase
TestJsonFile.settings = LONG

TestLateMemory = pytest.mark.unchecked(LateMemoryMachine.TestCase)
TestLateMemory.settings = LATE
TestLateSqlite = LateSqliteMachine.TestCase
TestLateSqlite.settings = LATE
TestLateJsonFile = LateJsonFileMachine.TestCase
TestLateJsonFile.settings = LATE
