"""Chromium without a window, driven by the DevTools protocol: as much of it as tests and pictures of the page need.

The browser has a profile of its own that is deleted with it, and reaches nothing but the addresses that it is sent to.
"""

import base64
import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

PROGRAM = "chromium"
PATIENCE_S = 30.0
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--disable-dev-shm-usage", "--remote-debugging-port=0", "--ignore-certificate-errors"),
)


class Page:
    """One page. `evaluate` gives the value of an expression; `until` waits for one to become true."""

    def __init__(self, line: ClientConnection) -> None:
        self._line = line
        self._numbers = itertools.count(1)
        self.console: list[str] = []
        """What the page has logged, with errors that were not caught and what its policy has refused."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: Any) -> Any:
        number = next(self._numbers)
        self._line.send(json.dumps({"id": number, "method": method, "params": given}))
        while True:
            said = json.loads(self._line.recv(PATIENCE_S))
            if said.get("id") == number:
                assert "error" not in said, said["error"]
                return said["result"]
            self._note(said)

    def _note(self, said: dict[str, Any]) -> None:
        given = said.get("params", {})
        if said.get("method") == "Runtime.exceptionThrown":
            self.console.append(str(given["exceptionDetails"].get("exception", given["exceptionDetails"])))
        elif said.get("method") == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(each.get("value", "")) for each in given["args"]))
        elif said.get("method") == "Log.entryAdded":
            self.console.append(given["entry"]["text"])

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        """Looked at again and again, because the page knows nothing of tests."""
        end_s = time.monotonic() + PATIENCE_S
        while not self.evaluate(expression):
            assert time.monotonic() < end_s, f"never: {expression}; {self.evaluate('document.body.innerText')[:2000]}"
            time.sleep(0.02)

    def open(self, url: str, name: str = "", key: str = "") -> None:
        """With a name and a key as a person gives them when the browser asks."""
        if name:
            encoded = base64.b64encode(f"{name}:{key}".encode()).decode()
            self.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {encoded}"})
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def look(self, width: int, height: int, scheme: str = "light", scale: float = 1) -> None:
        """The size of the window, and the colour scheme that a person prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def browser() -> Iterator[Page]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with connect(_address(Path(profile), process), max_size=None, proxy=None, ping_interval=None) as line:
                yield Page(line)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def _address(profile: Path, process: "subprocess.Popen[bytes]") -> str:
    """Of the one page that it opens with."""
    port_file, end_s = profile / "DevToolsActivePort", time.monotonic() + PATIENCE_S
    while not (port_file.exists() and port_file.read_text().count("\n")):
        assert process.poll() is None, f"{PROGRAM} has ended with {process.returncode}"
        assert time.monotonic() < end_s, f"{PROGRAM} does not answer"
        time.sleep(0.02)
    port = port_file.read_text().split("\n")[0]
    while True:
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE_S) as answer:
            pages = [each for each in json.load(answer) if each["type"] == "page"]
        if pages:
            return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.02)
