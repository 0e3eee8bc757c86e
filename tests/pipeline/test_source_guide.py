"""The guide to Spark runs as it is written, cell by cell, in the session that all tests of the pipeline share.

`tests/docs` runs every other page in a process of its own; a session takes too long to start for that.
"""

from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from tests.docs.snippets import Judge, program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "spark.md"


def test_the_cells_of_the_guide_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    judge = Judge(PAGE)
    notebook = ModuleType("notebook")
    notebook.__dict__["print"] = judge.print
    exec(program(PAGE), notebook.__dict__)
    assert judge.verdict() == []
    assert notebook.__dict__["spark"] is spark
