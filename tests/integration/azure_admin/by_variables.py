"""A program as users write it: both clients, and a CA that only variables name. Its argument is a connection string."""

import asyncio
import sys

import azure.servicebus
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncClient
from azure.servicebus.management import ServiceBusAdministrationClient


def synchronous(connection_string: str) -> list[str]:
    with ServiceBusAdministrationClient.from_connection_string(connection_string, retry_total=0) as client:
        client.create_queue("by-variables")
        return [queue.name for queue in client.list_queues()]


async def asynchronous(connection_string: str) -> list[str]:
    async with AsyncClient.from_connection_string(connection_string, retry_total=0) as client:
        found = [queue.name async for queue in client.list_queues()]
        await client.delete_queue("by-variables")
        return found


if __name__ == "__main__":
    names = synchronous(sys.argv[1]), asyncio.run(asynchronous(sys.argv[1]))
    sys.stdout.write(f"{azure.servicebus.__version__} {names}\n")
