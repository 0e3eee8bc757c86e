"""One Spark session for all tests of the pipeline: it takes seconds to start."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from unibus.pipeline.session import local_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    session = local_session("2", {"spark.sql.warehouse.dir": str(warehouse)})
    yield session
    session.stop()
