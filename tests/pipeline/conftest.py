"""One Spark session for all tests of the pipeline: it takes seconds to start."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from unibus.pipeline.session import SETTINGS, open_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    # Each query runs a few times only, so a Java that compiles more takes twice the processor time; everything else is
    # as in a session that is not quick.
    settings = {**SETTINGS, "spark.sql.warehouse.dir": str(warehouse)}
    session = open_session("local[2]", settings=settings, quick=True)
    yield session
    session.stop()
