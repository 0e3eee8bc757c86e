"""The stores against the model for minutes instead of seconds: longer runs, and many more of them."""

import pytest
from hypothesis import settings

from tests.property.test_store_machine import MODEST, JsonFileMachine, MemoryMachine, SqliteMachine

LONG = settings(MODEST, max_examples=500, stateful_step_count=80)

TestMemory = pytest.mark.unchecked(MemoryMachine.TestCase)  # Its teardown empties the ready queues.
TestMemory.settings = LONG
TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = LONG
TestJsonFile = JsonFileMachine.TestCase
TestJsonFile.settings = LONG
