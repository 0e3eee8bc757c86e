"""The socket of a pipeline server: requests and answers for its own user only, and what a killed server leaves."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from tests.unit.cli.programs import PATIENCE_S, environment
from unibus.errors import QueryInvalid, StoreBusy
from unibus.pipeline.reports.answer import Answer, Column
from unibus.pipeline.reports.request import Reply, ReportRefusal, ReportRequest
from unibus.pipeline.serving.client import address_of, ask, is_alive
from unibus.pipeline.serving.protocol import serve_requests

KILLED = """
import os, sys
from pathlib import Path
from unibus.pipeline.reports.request import Reply
from unibus.pipeline.serving.protocol import serve_requests
with serve_requests(Path(sys.argv[1]), "sc://x", lambda request, gone: Reply()):
    print("open", flush=True)
    os.kill(os.getpid(), 9)
"""


def echo(request: ReportRequest, gone: threading.Event) -> Reply:
    if request.question == "wrong":
        return Reply(refusal=ReportRefusal.of(QueryInvalid("no", "ask otherwise")))
    return Reply(answer=Answer([Column("text")], [[request.text]]))


def test_a_question_and_its_answer(tmp_path: Path) -> None:
    assert ask(tmp_path, ReportRequest("sql")) is None
    with serve_requests(tmp_path, "sc://x/;token=t", echo) as address:
        reply = ask(tmp_path, ReportRequest("sql", text="é\n"))
        assert reply is not None
        assert reply.answer is not None
        assert reply.answer.rows == [["é\n"]]
        refused = ask(tmp_path, ReportRequest("wrong"))
        assert refused is not None
        assert refused.refusal is not None
        error = refused.refusal.as_error()
        assert (type(error), error.what, error.hint) == (QueryInvalid, "no", "ask otherwise")
        assert address_of(tmp_path) == address
        assert is_alive(address)
    assert ask(tmp_path, ReportRequest("sql")) is None
    assert address_of(tmp_path) is None
    assert [path.name for path in tmp_path.iterdir()] == ["serve.lock"]


def test_only_the_owner_may_open_it(tmp_path: Path) -> None:
    with serve_requests(tmp_path, "sc://x", echo) as address:
        for path in (Path(address.socket), tmp_path / "serve.json"):
            assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_no_question_is_refused_and_the_door_stays_open(tmp_path: Path) -> None:
    with serve_requests(tmp_path, "sc://x", echo) as address:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(address.socket)
            line.sendall(b'{"question": 7}\nrm -rf\n')
            with line.makefile("rb") as file:
                assert b"the request cannot be decoded" in file.readline()
                assert b"the request cannot be decoded" in file.readline()
        assert ask(tmp_path, ReportRequest("sql", text="still")) is not None


def test_one_server_for_a_lake(tmp_path: Path) -> None:
    with serve_requests(tmp_path, "sc://x", echo):
        with pytest.raises(StoreBusy, match="already runs: "), serve_requests(tmp_path, "sc://y", echo):
            pass
        assert ask(tmp_path, ReportRequest("sql")) is not None  # The first one still answers.


def test_what_a_killed_server_left_is_recognised_and_taken_over(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stdout) == (-9, "open\n")
    address = address_of(tmp_path)
    assert address is not None
    assert os.path.exists(address.socket)
    assert not is_alive(address)
    assert ask(tmp_path, ReportRequest("sql")) is None
    with serve_requests(tmp_path, "sc://x", echo):
        assert ask(tmp_path, ReportRequest("sql")) is not None


def test_a_lake_with_a_long_name(tmp_path: Path) -> None:
    lake = tmp_path / ("long" * 40)
    lake.mkdir()
    with serve_requests(lake, "sc://x", echo) as address:
        assert not address.socket.startswith(str(lake))
        assert ask(lake, ReportRequest("sql")) is not None
    assert not os.path.exists(os.path.dirname(address.socket))


def test_a_copied_lake_is_not_answered_by_the_server_of_the_first(tmp_path: Path) -> None:
    lake, copy, link = tmp_path / "lake", tmp_path / "copy", tmp_path / "link"
    lake.mkdir()
    copy.mkdir()
    link.symlink_to(lake)
    with serve_requests(lake, "sc://x", echo):
        (copy / "serve.json").write_bytes((lake / "serve.json").read_bytes())
        assert address_of(copy) is None
        assert ask(copy, ReportRequest("sql")) is None
        assert ask(link, ReportRequest("sql")) is not None  # The same one by another name.


def test_whoever_answers_is_told_that_nobody_waits(tmp_path: Path) -> None:
    told = threading.Event()

    def slow(request: ReportRequest, gone: threading.Event) -> Reply:
        if gone.wait(PATIENCE_S if request.text == "slow" else 0):
            told.set()
        return Reply(answer=Answer([], []))

    with serve_requests(tmp_path, "sc://x", slow) as address:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(address.socket)
            line.sendall(msgspec.json.encode(ReportRequest("sql", text="slow")) + b"\n")
        assert told.wait(PATIENCE_S)
        told.clear()
        assert ask(tmp_path, ReportRequest("sql", text="quick")) is not None
        assert not told.is_set()


@pytest.mark.parametrize("part", [b"", b'{"answer"'])
def test_a_server_that_ends_meanwhile_has_not_answered(part: bytes, tmp_path: Path) -> None:
    with serve_requests(tmp_path, "sc://x", echo) as address:
        os.unlink(address.socket)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address.socket)
            server.listen()
            thread = threading.Thread(target=hang_up, args=(server, part))
            thread.start()
            assert ask(tmp_path, ReportRequest("sql", text="x" * 100)) is None
            thread.join()


def hang_up(server: socket.socket, part: bytes) -> None:
    """Unread data turns the close into a reset."""
    line, _ = server.accept()
    line.recv(1)
    line.sendall(part)
    line.close()
