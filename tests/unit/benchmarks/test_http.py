"""What the HTTP benchmark measures was really done, and its figures name what they are compared with."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import http_idle, http_inprocess, http_operations, http_requests, http_servers, wrk
from benchmarks.http_client import connected
from benchmarks.http_figures import BARE, FASTAPI, IN_PROCESS, OURS, VARIANTS, bars, figures_of, variants
from benchmarks.http_limits import APPLICATIONS
from benchmarks.http_operations import OPERATIONS, Operation, check_count
from benchmarks.http_servers import NoServer, Server
from benchmarks.measure import Undelivered
from benchmarks.wrk import Load, LoadFailed

CONNECTIONS = (32, 1)


@pytest.fixture(scope="module", params=APPLICATIONS)
def limit(request: pytest.FixtureRequest) -> Iterator[Server]:
    with http_servers.limit(request.param) as server:
        yield server


# What a load is


def test_the_last_line_of_the_script_is_the_load() -> None:
    load = wrk.parsed("Running 1s test\n  Requests/sec: 1\n\nmeasured 2000 500000 0 0 10 20 30\n", cpu_used_s=0.1)
    assert load == Load(2_000, pytest.approx(4_000.0), pytest.approx(50.0), 10, 20, 30)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("measured 2000 500000 0 7 10 20 30", "7 were refused"),
        ("measured 2000 500000 3 0 10 20 30", "3 connections broke"),
        ("measured 3 500000 0 0 10 20 30", "only 3 requests"),
        ("unable to connect", "did not report"),
    ],
)
def test_a_load_that_went_wrong_is_no_figure(line: str, why: str) -> None:
    with pytest.raises(LoadFailed, match=why):
        wrk.parsed(f"\n{line}\n", cpu_used_s=0.1)


def test_the_best_of_every_figure_counts() -> None:
    found = wrk.best([Load(10, 10.0, 5.0, 30, 40, 90), Load(20, 20.0, 9.0, 10, 50, 60)])
    assert found == Load(20, 20.0, 5.0, 10, 40, 60)


def test_calls_without_a_server_have_the_same_figures() -> None:
    load = wrk.load_of([float(number) for number in range(100)], elapsed_s=0.5, cpu_used_s=0.01)
    assert load == Load(100, pytest.approx(200.0), pytest.approx(100.0), 50.0, 95.0, 99.0)
    with pytest.raises(LoadFailed, match="only 3"):
        wrk.load_of([1.0, 2.0, 3.0], elapsed_s=0.5, cpu_used_s=0.01)


@pytest.mark.parametrize(("found", "right"), [(99, False), (100, True), (132, True), (133, False)])
def test_what_was_in_flight_at_the_end_may_have_been_done(found: int, right: bool) -> None:
    if right:
        check_count(found, 100, 32)
    else:
        with pytest.raises(Undelivered):
            check_count(found, 100, 32)


def test_a_bounded_load_ends_with_its_last_request(limit: Server) -> None:
    sent = http_requests.send("/orders/messages", limit.token)
    load = wrk.run(limit.address, limit.pid, [sent], connections=4, seconds=2, requests_max=200)
    assert 200 - 4 <= load.requests <= 200
    assert load.rate > 200 / 2  # By its own end, not by that of the two seconds.
    assert load.cpu > 0


def test_a_refusal_fails_the_load() -> None:
    with http_servers.limit("fastapi") as server, pytest.raises(LoadFailed, match="refused"):
        wrk.run(server.address, server.pid, [http_requests.request("POST", "/orders/messages", "t", "{}")], 2, 1, 50)


# What the contenders do


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_the_limits_answer_every_operation(limit: Server, operation: Operation) -> None:
    sent = operation.limit(limit.token)
    head, _, body = sent.partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    method, path, _ = line.split()
    connection = http.client.HTTPConnection("127.0.0.1", limit.port, timeout=10)
    connection.request(method, path, body, dict(each.split(": ", 1) for each in headers))
    response = connection.getresponse()
    content = response.read()
    connection.close()
    receives = operation.name.startswith("receive")
    assert response.status == (200 if operation.name in ("complete", "receive, by 100") else 201)
    assert len(content) >= 200 if receives else not content


def test_a_message_has_the_size_that_is_said() -> None:
    assert len(http_requests.BODY) == http_requests.BODY_BYTES
    assert http_requests.send_batch("/q/messages", "t", count=3).count(b"BrokerProperties") == 3


def test_batches_in_process_have_a_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(http_inprocess, "MESSAGES_MAX", 3_000)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("benchmarks.disk.check_disk", lambda folder, mounts: None)
    load = http_inprocess.receive(tasks=2, seconds=60)
    assert load.requests == 30
    assert 0 < load.p50 <= load.p99


def test_idle_connections_have_a_size(limit: Server) -> None:
    assert 100 < http_idle.idle_bytes(limit, connections=200) < 1_000_000


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    command = ("-c", "raise SystemExit('no such thing')")
    with pytest.raises(NoServer, match="no such thing"), http_servers.unibus(tmp_path / "bus.db", command=command):
        pass


# What the figures say


def loads() -> dict[tuple[str, int, str], Load]:
    found: dict[tuple[str, int, str], Load] = {}
    for operation in OPERATIONS:
        for connections in CONNECTIONS:
            found[operation.name, connections, OURS] = Load(1_000, 6_000.0, 60.0, 600, 900, 7_000)
            found[operation.name, connections, FASTAPI] = Load(1_000, 4_000.0, 100.0, 1_200, 1_500, 9_000)
            found[operation.name, connections, BARE] = Load(1_000, 15_000.0, 30.0, 200, 300, 1_000)
            if operation.in_process is not None:
                found[operation.name, connections, IN_PROCESS] = Load(1_000, 10_000.0, 40.0, 400, 500, 600)
            for variant in VARIANTS:
                found[operation.name, connections, variant] = Load(1_000, 5_000.0, 70.0, 700, 900, 7_000)
    return found


def test_every_operation_is_told_against_both_limits() -> None:
    found = {figure.figure: figure for figure in figures_of(loads(), CONNECTIONS)}
    send = found["send, 32 connections"]
    assert (send.ours, send.target, send.peers, send.limit) == (6_000.0, 10_000.0, {FASTAPI: 4_000.0}, 15_000.0)
    batches = found["send, by 100, 32 connections"]
    assert (batches.ours, batches.peers) == (600_000.0, {FASTAPI: 400_000.0, IN_PROCESS: 1_000_000.0})
    assert found["complete, 1 connection, processor time"].ratio_limit == pytest.approx(0.5)


def test_latency_is_told_as_a_difference_to_the_limit_at_one_connection() -> None:
    found = {figure.figure: figure for figure in figures_of(loads(), CONNECTIONS)}
    median, last = (found[f"send, 1 connection, {part} above the limit"] for part in ("p50", "p99"))
    assert (median.ours, median.target, median.reaches_target) == (400.0, 500.0, True)
    assert (last.ours, last.target, last.reaches_target) == (6_000.0, 5_000.0, False)


def test_bars_are_shares_that_have_to_be_reached() -> None:
    found = [(figure.ours, figure.target, figure.reaches_target) for figure in bars(loads())]
    assert found == [(1.5, 1.0, True), (0.4, 0.3, True), (2.0, 1.0, True), (0.6, 0.5, True)]
    slower = loads()
    slower["send", 32, OURS] = Load(1_000, 3_000.0, 60.0, 1_300, 1_400, 1_500)
    assert [figure.reaches_target for figure in bars(slower)] == [False, False, False, True]


def test_a_variant_is_told_against_the_usual_server() -> None:
    found = variants(loads(), CONNECTIONS)
    assert len(found) == len(VARIANTS) * len(CONNECTIONS) * 2
    assert found[0].ratio_best_peer == pytest.approx(5 / 6)
    assert found[1].ratio_best_peer == pytest.approx(6 / 7)


# On a server of ours


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with http_servers.unibus(tmp_path_factory.mktemp("served") / "bus.db") as server:
        yield server


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_does_on_our_server_what_it_counts(
    ours: Server, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_operations, "SINGLE_MOST", 640)
    monkeypatch.setattr(http_operations, "BATCHED_MOST", 5_000)
    load = operation.ours(ours, 4, 1)  # Checks the counts of messages itself.
    assert load.requests >= wrk.FEWEST
    with connected(ours) as client:
        left = [json.loads(client.call("GET", f"/servicebus/{family}"))["items"] for family in ("queues", "topics")]
    assert left == [[], []]  # Each load deletes its entity.


def test_a_server_with_commits_on_the_loop_sends(tmp_path: Path) -> None:
    with http_servers.unibus(tmp_path / "bus.db", command=http_servers.ON_LOOP) as server:
        assert http_operations.send(server, connections=2, seconds=1).requests >= wrk.FEWEST
