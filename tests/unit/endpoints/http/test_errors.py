"""One table from errors to statuses, complete by this test, and the two forms of an error's body."""

import inspect
import math
from xml.etree import ElementTree

import pytest

from unibus import errors
from unibus.endpoints.http.errors import STATUSES, code_of, error_response, status_of
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.routing import RoutedPath

ALLOWED = {400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 429, 503}
CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.BusError) and kind is not errors.BusError
]


def request(accept: str) -> Request:
    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "headers": [(b"accept", accept.encode())]}
    return Request(scope, receive, RoutedPath("/"))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_of_its_own(kind: type[errors.BusError]) -> None:
    assert any(base in STATUSES for base in kind.__mro__), "give it a row in endpoints/http/errors.py"
    assert status_of(kind("what", "hint")) in ALLOWED


def test_the_table_has_no_row_for_the_root() -> None:
    assert errors.BusError not in STATUSES
    assert status_of(errors.BusError("x")) == 500


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_both_forms_of_the_body_can_be_read(kind: type[errors.BusError]) -> None:
    error = kind("what <&> \x00 \ud800 ä", "hint ]]>")
    answer = error_response(request("*/*"), error)
    root = ElementTree.fromstring(answer.body)
    assert (root.tag, root.findtext("Code")) == ("Error", str(status_of(error)))
    assert (root.findtext("Detail") or "").startswith(code_of(error))


def test_json_is_written_for_those_who_accept_it() -> None:
    answer = error_response(request("text/html, application/json;q=0.9"), errors.LockLost("gone", "receive again"))
    assert answer.status == 410
    assert answer.body == b'{"error":{"code":"MessageLockLost","message":"gone","details":"receive again"}}'


def test_when_to_come_again() -> None:
    assert ("Retry-After", "3") in error_response(None, errors.RateLimited("x", "", 2.6)).headers
    assert ("Retry-After", "1") in error_response(None, errors.RateLimited("x", "", 0.01)).headers
    assert ("Retry-After", "1") in error_response(None, errors.StoreBusy("x")).headers
    assert error_response(None, errors.RateLimited("x", "", math.inf)).headers == []
    assert error_response(None, errors.LockLost("x")).headers == []
    assert error_response(None, errors.Unauthorised("x")).headers == [("WWW-Authenticate", "SharedAccessSignature")]
