"""Pictures of the server's page for the documents: docs/images/page-light.png and page-dark.png.

    python -m tools.screenshots

Starts a server in memory with a few busy queues, looks at its page with Chromium for a while, and writes what it sees.
"""

import asyncio
import contextlib
import logging
import tempfile
import time
from pathlib import Path
from typing import Final

from tools.browser import Page, browser
from unibus.bus.api.broker import Broker
from unibus.config.settings import ServerSettings
from unibus.endpoints.log_lines import log_event
from unibus.endpoints.server.server import Server

FOLDER: Final = Path("docs/images")
WATCHED_S: Final = 60
SIZES: Final = {"page-light": (1200, 860, "light"), "page-dark": (1200, 860, "dark")}
QUEUES: Final = {"orders": 60, "payments": 42, "invoices": 9, "emails": 25, "returns": 0}


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = ServerSettings(store=f"{folder}/shop.db", port=0, amqp_port=None, tls=False)
        server: Server[Broker] = Server(settings)
        await server.start()
        server.serving.control.store_url = "sqlite:///shop.db"
        working = [asyncio.ensure_future(each) for each in await work(server.serving.broker)]
        try:
            await asyncio.to_thread(take, f"http://localhost:{server.port}/")
        finally:
            for each in working:
                each.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            await server.stop()


async def work(broker: Broker) -> "list[asyncio.Future[None]]":
    """Queues with producers and consumers, a topic, a few dead-lettered messages and two lines in the log."""
    for name in QUEUES:
        await broker.create("queue", name)
    await broker.create("topic", "shipments")
    for name in ("audit", "billing"):
        await broker.create("subscription", f"shipments/Subscriptions/{name}")
    for number in range(3):
        await broker.send("returns", broker.message("returns", {"return": number}, {}))
        claimed = (await broker.receive("returns"))[0]
        await broker.settle("dead_letter", claimed.token, entity="returns")
    for number in range(7):
        await broker.send("returns", broker.message("returns", {"return": number}, {}))
    log = logging.getLogger("unibus.server")
    log_event(log, logging.WARNING, "connection refused", reason="TLS handshake: wrong version", peer="192.0.2.7:51844")
    log_event(log, logging.WARNING, "more connections refused", count=12)
    tasks = [produce(broker, name, rate) for name, rate in QUEUES.items() if rate]
    tasks += [consume(broker, name, rate) for name, rate in QUEUES.items() if rate and name != "invoices"]
    tasks += [produce(broker, "shipments", 14), consume(broker, "shipments/Subscriptions/audit", 14)]
    return [asyncio.ensure_future(each) for each in tasks]


async def produce(broker: Broker, name: str, rate: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        # More and less, so that there is a line to see.
        factor = 0.6 + 0.4 * (1 + int(loop.time() / 3) % 4) / 2
        await broker.send(name, broker.message(name, {"at": loop.time()}, {}))
        await asyncio.sleep(1 / (rate * factor))


async def consume(broker: Broker, name: str, rate: float) -> None:
    while True:
        for claimed in await broker.receive(name, 5, timeout_s=1):
            await asyncio.sleep(0.8 / rate)
            with contextlib.suppress(Exception):
                await broker.settle("complete", claimed.token, entity=name)


def take(url: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with browser() as page:
        page.look(1200, 860)
        page.open(url)
        page.until("document.getElementById('link').dataset.state === 'live'")
        time.sleep(WATCHED_S)  # A minute of rates is what the page draws.
        for name, (width, height, scheme) in SIZES.items():
            save(page, FOLDER / f"{name}.png", width, height, scheme)


def save(page: Page, path: Path, width: int, height: int, scheme: str) -> None:
    page.look(width, height, scheme)
    page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 300)))")
    path.write_bytes(page.picture())
    print(path, path.stat().st_size)


if __name__ == "__main__":
    asyncio.run(main())
