"""1,000 peers that send nothing, or a byte each second, beside a healthy client: each in a process of its own.

The healthy client's p99 at most doubles, every slow peer is cut at the deadline, and the server's memory is bounded.
"""

import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.server.running import read_answer, status_of
from tests.integration.server.test_command import Command

PEERS = 1_000
DEADLINE_S = 5
ROUNDS = 3
REQUESTS = 3_000
GROWTH_MB = {"plain": 64, "tls": 256}
"""A handshake has buffers: uvloop takes about 150 KB for each that is under way, and nothing for one that is silent."""

NOISE_S = 0.001
"""What a shared machine adds to a p99 by itself: below it twice of nearly nothing is no measure."""

# Half of them are silent. They connect again when they are cut, and count how often that was. With TLS all of them
# begin a handshake, and half of them go on with it.
SLOW = f"""
import select, socket, sys, time
port, ends = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
request = b"GET /slow HTTP/1.1\\r\\nhost: a\\r\\nx: " + b"y" * 1000
if sys.argv[3] == "tls":
    request = b"\\x16\\x03\\x01\\x02\\x00\\x01\\x00\\x01\\xfc\\x03\\x03" + b"y" * 400
opened, cut, longest = [], 0, 0.0
def connect():
    made = socket.create_connection(("127.0.0.1", port), 60)
    if sys.argv[3] == "tls":
        made.send(request[:5])
    return [made, 5 if sys.argv[3] == "tls" else 0, time.monotonic()]
opened = [connect() for _ in range({PEERS})]
print("connected", flush=True)
while time.monotonic() < ends:
    for number, peer in enumerate(opened):
        try:
            if number % 2:
                peer[0].send(request[peer[1]:peer[1] + 1])
                peer[1] += 1
            if select.select([peer[0]], [], [], 0)[0] and not peer[0].recv(1):
                raise ConnectionResetError
        except ConnectionError:
            cut, longest = cut + 1, max(longest, time.monotonic() - peer[2])
            peer[0].close()
            opened[number] = connect()
        if number % 100 == 0:
            time.sleep(0.1)
print(cut, longest, flush=True)
"""


def p99(port: int) -> float:
    times = []
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        for _ in range(REQUESTS):
            started = time.perf_counter()
            client.sendall(b"GET /healthy HTTP/1.1\r\nhost: a\r\n\r\n")
            assert status_of(read_answer(client)) == 200
            times.append(time.perf_counter() - started)
    return sorted(times)[int(0.99 * REQUESTS)]


def memory_mb(process: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_slow_peers(tmp_path: Path, report: Callable[[str], None], kind: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * PEERS)), hard))  # The children inherit it.
    options = ("--port", "0", "--amqp-port", "off", "--head-deadline-s", str(DEADLINE_S))
    # Nothing reads its log here, and a pipe that is full would stop it.
    server = Command(tmp_path, "serve", "memory://", "--log-level", "error", *options)
    slow = None
    try:
        server.read_until("Ctrl-C")
        p99(server.port)
        alone = min(p99(server.port) for _ in range(ROUNDS))
        before = memory_mb(server.process.pid)
        seconds = 4 * DEADLINE_S
        slow = subprocess.Popen(
            [sys.executable, "-c", SLOW, str(server.port), str(seconds), kind], stdout=subprocess.PIPE, text=True
        )
        assert slow.stdout is not None
        assert slow.stdout.readline() == "connected\n"
        started, beside = time.monotonic(), []
        while time.monotonic() < started + seconds - 1 or len(beside) < ROUNDS:
            beside.append(p99(server.port))
        grown = memory_mb(server.process.pid) - before
        cut, longest = slow.stdout.readline().split()
        report(
            f"slow peers, {kind}: p99 {1e3 * alone:.2f} ms alone, {1e3 * min(beside):.2f} ms beside {PEERS};"
            f" {cut} cut, the last after {float(longest):.1f} s; {grown:.0f} MB more"
        )
        assert int(cut) >= 2 * PEERS
        # The sweep comes up to a second later, and the peer looks once a second.
        assert float(longest) < DEADLINE_S + 5
        assert grown < GROWTH_MB[kind]
        assert min(beside) <= max(2 * alone, NOISE_S)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in (slow, server.process):
            if each is not None:
                each.kill()
                each.communicate()
