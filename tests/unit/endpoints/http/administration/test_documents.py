"""The OpenAPI document of the administration."""

from unibus.bus.api.broker import Broker
from unibus.endpoints.http.administration.table import ADMINISTRATION
from unibus.endpoints.http.application.app import application
from unibus.endpoints.http.operation import COMMON, OperationTable
from unibus.endpoints.http.routing import place_of
from unibus.endpoints.http.service import Service

from tests.unit.endpoints.http.administration.conftest import Gate, Quiet, Serving  # isort: skip


async def test_every_operation_is_documented(broker: Broker) -> None:
    document = application(Service(Serving(broker), Gate(), Quiet(), 1), OperationTable(ADMINISTRATION)).openapi()
    paths = document["paths"]
    assert sum(len(methods) for methods in paths.values()) == sum(len(row.documented) for row in ADMINISTRATION)
    identifiers = [operation["operationId"] for methods in paths.values() for operation in methods.values()]
    assert len(set(identifiers)) == len(identifiers)
    for row in ADMINISTRATION:
        for path in row.documented:
            operation = paths[path][row.method.lower()]
            assert operation["summary"]
            assert {str(status) for status in (*row.statuses, *COMMON)} <= operation["responses"].keys()
            if row.method != "DELETE":
                kinds = operation["responses"][str(row.statuses[0])]["content"]
                assert {"application/atom+xml", "application/json"} <= kinds.keys()
            if row.has_body:
                assert "application/atom+xml" in operation["requestBody"]["content"]


def test_documented_paths_lead_to_their_operation() -> None:
    for row in ADMINISTRATION:
        for path in row.documented:
            address = path.replace("{", "").replace("}", "")
            assert place_of(address.encode()).shape == row.shape, path
