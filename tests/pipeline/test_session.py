"""A session has the settings that the pipeline counts on, and its machine is out of reach of a Ctrl-C."""

import os
import sys

import pytest
from pyspark.sql import SparkSession

from unibus.errors import StoreUnavailable, UsageError
from unibus.pipeline.session import SETTINGS, local_session, open_session


def test_a_session_computes(spark: SparkSession) -> None:
    assert spark.range(1000).selectExpr("sum(id)").collect()[0][0] == 499_500
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert {spark.conf.get(name) for name in SETTINGS if name.startswith("spark.ui")} == {"false"}
    assert "PYSPARK_GATEWAY_PORT" not in os.environ  # No other program may find this JVM.


def test_who_asks_again_gets_the_same_machine(spark: SparkSession) -> None:
    assert local_session("2").sparkContext is spark.sparkContext
    assert open_session().sparkContext is spark.sparkContext


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell")
def test_the_machine_has_a_session_of_its_own(spark: SparkSession) -> None:
    """So that a signal to the terminal's processes does not end it in the middle of a write."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    pid = int(getattr(jvm, "java.lang.ProcessHandle").current().pid())
    assert os.getsid(pid) != os.getsid(0)


def test_a_cluster_that_nobody_has_described_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="needs the configuration of the cluster") as caught:
        open_session("yarn")
    assert "HADOOP_CONF_DIR" in caught.value.hint


@pytest.mark.parametrize("master", ["spark://", "spark://host:no", "http://host", "nonsense"])
def test_a_master_that_is_none(master: str) -> None:
    with pytest.raises(UsageError, match="is not a Spark address"):
        open_session(master)


def test_of_several_masters_one_has_to_answer() -> None:
    with pytest.raises(StoreUnavailable, match="no Spark master answers"):
        open_session("spark://127.0.0.1:1,127.0.0.1:2")
