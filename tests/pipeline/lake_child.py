"""A process that runs the pipeline, to be killed: `python -m tests.pipeline.lake_child spark|here CAPTURES LAKE`."""

import sys

from unibus.capture.sources import open_sources
from unibus.pipeline.lake import Lake
from unibus.pipeline.run import run_all

MAX_EVENTS = 60


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    engine, captures, lake = sys.argv[1:]
    spark = None
    if engine == "spark":
        from unibus.pipeline.session import local_session

        spark = local_session("2")
    for result in run_all(
        spark,
        Lake(lake),
        open_sources(captures),
        max_events=MAX_EVENTS,
        progress=lambda step, share: say(step),
    ):
        say(f"batch {result.number}")
    say("end")
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
