"""Azure's own administration clients for Python, synchronous and asynchronous, over HTTPS."""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import azure.servicebus
import pytest
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncClient
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.integration.conftest import CERTIFICATES
from tests.integration.namespace import Namespace


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """For test runs in another process: which client is used."""
    terminalreporter.write_line(f"azure-servicebus {azure.servicebus.__version__}")


def options_of(namespace: Namespace) -> dict[str, Any]:
    """Without retries. The CA is given by hand, except where variables name it, as for most users."""
    options: dict[str, Any] = {"retry_total": 0}
    return options if CERTIFICATES in os.environ else options | {"connection_verify": str(namespace.ca)}


@pytest.fixture
def client(namespace: Namespace) -> Iterator[ServiceBusAdministrationClient]:
    text, options = namespace.connection_string, options_of(namespace)
    with ServiceBusAdministrationClient.from_connection_string(text, **options) as opened:
        yield opened
        for queue in list(opened.list_queues()):
            opened.delete_queue(queue.name)
        for topic in list(opened.list_topics()):
            opened.delete_topic(topic.name)


@pytest.fixture
async def async_client(namespace: Namespace) -> AsyncIterator[AsyncClient]:
    text, options = namespace.connection_string, options_of(namespace)
    async with AsyncClient.from_connection_string(text, **options) as opened:
        yield opened
        async for queue in opened.list_queues():
            await opened.delete_queue(queue.name)
        async for topic in opened.list_topics():
            await opened.delete_topic(topic.name)
