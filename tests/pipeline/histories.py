"""Small histories for tests of the source and the sink: real buses, and captures written by the real writer."""

from pathlib import Path

from unibus.capture.schema import table_of
from unibus.capture.segments import SegmentWriter
from unibus.core.lifecycle.events import Event
from unibus.sync import MessageBus

SECOND_US = 1_000_000
BEGAN_US = 1_790_000_000 * SECOND_US
"""When event 1 happened: 2026-09-21T14:13:20Z. One follows each second."""

KINDS = ("sent", "delivered", "completed")


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def event(seq: int, domain: str = "local") -> Event:
    at_us = BEGAN_US + (seq - 1) * SECOND_US
    channel = "orders" if seq % 3 else "bills"
    return Event(seq, at_us, domain, channel, KINDS[seq % 3], seq, f"m{seq}", attrs={"priority": "50"})


def capture(folder: Path, *sizes: int, domain: str = "local", skip: int = 0) -> Path:
    """Write segments of so many events after those that are there. `skip`: what was forgotten before the first one."""
    writer = SegmentWriter(str(folder), domain)
    try:
        if skip:
            writer.gap(writer.last + 1, writer.last + skip)
        for size in sizes:
            first = writer.last + 1
            writer.write(table_of([event(seq, domain) for seq in range(first, first + size)]))
    finally:
        writer.close()
    return folder


def spoil(folder: Path, number: int) -> Path:
    """Damage one segment in its middle, as a bad disk would."""
    path = sorted((folder / "segments").glob("*.parquet"))[number]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    return path


def small_bus(path: Path, messages: int = 10) -> str:
    """A bus with messages in two queues, some of them received. Gives its URL."""
    with MessageBus(url_of(path)) as bus:
        bus.create_queue("orders")
        bus.create_queue("bills")
        for number in range(messages):
            bus.send("orders", {"n": number}, headers={"number": str(number)}, correlation_id=f"c{number}")
        bus.send("bills", b"\x00raw")
        for message in bus.receive_batch("orders", 3, 1.0):
            message.complete()
    return url_of(path)
