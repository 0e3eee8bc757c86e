"""A server reports that it serves only after Spark is warm."""

from pathlib import Path
from typing import Any

import pytest

from unibus.pipeline.lake import Lake
from unibus.pipeline.reports.answer import Answer
from unibus.pipeline.reports.asking import REPORTS
from unibus.pipeline.reports.request import ReportRequest
from unibus.pipeline.serving import server
from unibus.pipeline.serving.client import address_of, ask


class Sessions:
    """Replaces a Spark session; it creates others of its kind."""

    def newSession(self) -> "Sessions":
        return self


def test_every_report_was_answered_before_a_client_finds_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[tuple[str, bool]] = []

    def note(spark: Any, lake: Lake, request: ReportRequest, gone: Any = None) -> Answer:
        answered.append((request.question, address_of(tmp_path) is not None))
        return Answer([], [])

    monkeypatch.setattr(server, "answer", note)
    sessions: Any = Sessions()
    with server.answering(tmp_path, Lake(str(tmp_path)), sessions, "sc://x") as address:
        before = list(answered)
        assert address_of(tmp_path) == address
        assert ask(tmp_path, ReportRequest("sql", text="SELECT 1")) is not None
    assert {question for question, _ in before} == {*REPORTS, "sql"}
    assert not any(is_open for _, is_open in before)
    assert answered[len(before) :] == [("sql", True)]


def test_a_report_that_fails_does_not_end_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(spark: Any, lake: Lake, request: ReportRequest, gone: Any = None) -> Answer:
        raise RuntimeError("no files yet")

    monkeypatch.setattr(server, "answer", fail)
    sessions: Any = Sessions()
    with server.answering(tmp_path, Lake(str(tmp_path)), sessions, "sc://x"):
        reply = ask(tmp_path, ReportRequest("channels"))
        assert reply is not None
        assert reply.refusal is not None
