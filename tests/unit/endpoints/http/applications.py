"""FastAPI applications that tests share: making one costs more than most tests that send a request to it.

An application is bound to one `Service` when it is made. So each table has one application with a service of its own,
and that service takes over the state of the service that a test brings: both are then the same but for their identity.
Only the last service that was given is served; tests of `application` itself make their own.
"""

from functools import cache
from typing import Any, cast

from fastapi import FastAPI

from unibus.endpoints.http.application.app import Asgi, Front, application
from unibus.endpoints.http.operation import OperationTable
from unibus.endpoints.http.service import Service


@cache
def _made(table: OperationTable) -> tuple[Service, FastAPI]:
    nothing = cast(Any, None)
    service = Service(nothing, nothing, nothing, 0)
    return service, application(service, table)


def shared_application(service: Service, table: OperationTable) -> FastAPI:
    """As `application(service, table)`, until the next call for the same table."""
    inner, app = _made(table)
    inner.__dict__ = service.__dict__
    service.document = app.openapi
    return app


def dispatchers(service: Service, table: OperationTable) -> dict[str, Asgi]:
    """The two ways to the operations of a table, over the same service."""
    documented = shared_application(service, table)
    return {"front": Front(service, table, documented), "fastapi": documented}
