"""A capture that is killed: a process of its own that captures one store into one directory until it is killed.

`python -m tests.crash.capture_child` waits for orders as `tests.crash.child` does, and forks for each of them.
"""

import threading
import traceback
from contextlib import closing

import pyarrow as pa

from tests.crash.child import Wire, births
from unibus.capture import capturing, compacting
from unibus.capture.capturing import Capturing
from unibus.capture.settings import Rotation
from unibus.stores.schemes import open_history


def live(order: dict[str, object]) -> None:
    """Seal small segments, and put them together all the time."""
    wire = Wire()
    try:
        capturing.TEND_S = 0.01
        capturing.LOOK_S_MAX = 0.003
        compacting.NEIGHBOURS = 4
        roll = Rotation(rows=int(str(order["rows"])), every_s=0.002)
        with closing(open_history(str(order["url"]))) as reader:
            capture = Capturing(reader, str(order["folder"]), roll)
            wire.say("ready")
            capture.run(threading.Event())
    except BaseException:
        wire.say("error", text=traceback.format_exc())


if __name__ == "__main__":
    pa.array(["warm"])  # Imports more than it looks like, which no child should have to do.
    births(live)
