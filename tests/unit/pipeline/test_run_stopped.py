"""Who ends a run at once does not wait for the job of Spark, which is stopped."""

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from unibus.pipeline import run


class Spark:
    """Has one job, which lasts until it is interrupted by its tag."""

    def __init__(self) -> None:
        self.tags: list[str] = []
        self.interrupted: list[str] = []
        self.ended = threading.Event()

    def addTag(self, tag: str) -> None:
        self.tags.append(tag)

    def interruptTag(self, tag: str) -> None:
        self.interrupted.append(tag)
        self.ended.set()


def test_a_second_ctrl_c_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark()
    monkeypatch.setattr(run, "_answers", lambda spark, tasks: [] if spark.ended.wait(60) else pytest.fail("it waits"))

    def tell(share: float) -> None:
        if spark.tags:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run._run(cast(Any, spark), cast(Any, [None, None]), str(tmp_path / "staging"), tell)
    assert set(spark.interrupted) == set(spark.tags)
    assert spark.ended.is_set()
