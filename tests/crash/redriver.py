"""The process that is killed while it redrives dead-lettered messages: `python -m tests.crash.redriver`, a nursery as
in child.py."""

import threading
import traceback

from tests.crash.child import Wire, births
from unibus.bus.api.sync_bus import SyncMessageBus

REVIEW = "review"


def live(order: dict[str, object]) -> None:
    """Move what is dead, tell how far it is, and wait for the end."""
    wire = Wire()
    try:
        bus = SyncMessageBus(str(order["path"]))
        wire.say("ready")
        if order["planted"]:
            in_two_steps(bus)
        else:
            move(bus, wire, str(order["verb"]), int(str(order["batch_size"])))
        wire.say("done")
        threading.Event().wait()
    except BaseException:
        wire.say("error", text=traceback.format_exc())


def move(bus: SyncMessageBus, wire: Wire, verb: str, batch_size: int) -> None:
    letters = bus.dead_letter_queue()

    def progress(done: int, total: int) -> None:
        wire.say("progress", done=done)

    if verb == "redirect":
        result = letters.redirect_all(target=REVIEW, batch_size=batch_size, progress=progress)
    else:
        result = letters.retry_all(batch_size=batch_size, progress=progress)
    assert (result.skipped, result.manual_review, result.errors) == (0, 0, []), result


def in_two_steps(bus: SyncMessageBus) -> None:
    """How it must not be done: there is a moment in which the message is in both places."""
    letters = bus.dead_letter_queue()
    for letter in letters.list_messages():
        bus.send(REVIEW, letter.original.body, message_id=letter.id)
        letters.discard_message(letter)


if __name__ == "__main__":
    births(live)
