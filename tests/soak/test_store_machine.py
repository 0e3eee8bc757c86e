"""The stores against the model for minutes instead of seconds: longer runs, and many more of them."""

from hypothesis import settings

from tests.property.test_store_machine import MODEST, JsonFileMachine, MemoryMachine, SqliteMachine

LONG = settings(MODEST, max_examples=500, stateful_step_count=80)

TestMemory = MemoryMachine.TestCase
TestMemory.settings = LONG
TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = LONG
TestJsonFile = JsonFileMachine.TestCase
TestJsonFile.settings = LONG
