"""What users of Microsoft's emulator have asked for and not been given, each as a test against our server.

The numbers are those of its issues: github.com/Azure/azure-service-bus-emulator-installer.
"""

import asyncio
import datetime as dt
import json
import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.servicebus.management import AuthorizationRule, ServiceBusAdministrationClient, SqlRuleAction, SqlRuleFilter

from tests.integration.client import Client, token_for
from tests.integration.namespace import KEY, Namespace, namespace_running
from tests.integration.server.running import PATIENCE_S, fail
from unibus.codecs.atom.schema import ELEMENTS, QUEUE
from unibus.core.access.rules import WELL_KNOWN_KEY, WELL_KNOWN_NAME
from unibus.errors import ConfigInvalid


@pytest.fixture
def own(certificates: Path) -> Iterator[Namespace]:
    """A server for one test alone."""
    with namespace_running(certificates, request_log=False, audit=False) as found:
        yield found


def azure(namespace: Namespace, port: int = 0) -> ServiceBusAdministrationClient:
    text = namespace.connection_string.replace(f":{namespace.port}", f":{port or namespace.port}")
    return ServiceBusAdministrationClient.from_connection_string(
        text, connection_verify=str(namespace.ca), retry_total=0
    )


# Numbers


def test_a_thousand_entities(own: Namespace) -> None:
    """#48: not more than 50."""
    with Client(own) as client, azure(own) as admin:
        for at in range(400):
            client.create(f"/servicebus/queues/q{at:03}")
            client.create(f"/servicebus/topics/t{at:03}")
        for at in range(200):
            client.create(f"/servicebus/topics/t{at:03}/subscriptions/s")
        for name in ("q000", "q399", "t000", "t199"):
            client.send(f"/{name}", name)
        for path, body in (("q399", b"q399"), ("t199/subscriptions/s", b"t199")):
            assert client.ask("DELETE", f"/{path}/messages/head").body == body
        assert [each.name for each in admin.list_queues()] == [f"q{at:03}" for at in range(400)]
        found = {each.name: each.subscription_count for each in admin.list_topics_runtime_properties()}
        assert found == {f"t{at:03}": int(at < 200) for at in range(400)}


async def test_a_thousand_connections_that_wait(own: Namespace) -> None:
    """#58: not more than 10. Each of these waits for a message, and each gets one of its own."""
    own.call(lambda: own.broker.create("queue", "q"))
    count, token = 1_000, token_for(own.port)
    request = f"DELETE /q/messages/head?timeout=60 HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\n\r\n".encode()
    connections = [await asyncio.open_connection("127.0.0.1", own.port) for _ in range(count)]
    for _, writer in connections:
        writer.write(request)
    server = own.running.server
    await asyncio.to_thread(own.running.until, lambda: len(server.connections) == count)

    def send() -> object:
        broker = own.broker
        return broker.send_many("q", [broker.message("q", str(at).encode(), {}) for at in range(count)])

    await asyncio.to_thread(own.call, send)
    async with asyncio.timeout(PATIENCE_S):
        bodies = [await _body(reader) for reader, _ in connections]
    assert sorted(map(int, bodies)) == list(range(count))
    assert len(server.connections) == count
    for _, writer in connections:
        writer.close()


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 200"), head
    return await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))


def test_a_hundred_deliveries(own: Namespace) -> None:
    """A max delivery count above 10 (Particular/NServiceBus.Transport.AzureServiceBus)."""
    with Client(own) as client:
        client.create("/servicebus/queues/q", max_delivery_count=100)
        client.send("/q", "stubborn")
        for number in range(1, 101):
            locked = client.ask("POST", "/q/messages/head")
            assert (locked.status, locked.properties["DeliveryCount"]) == (201, number)
            assert client.ask("PUT", urlsplit(locked.headers["location"]).path).status == 200
        assert client.ask("POST", "/q/messages/head").status == 204
        (dead,) = client.ask("GET", "/q/$DeadLetterQueue/messages").json
        assert (dead["Body"], dead["UserProperties"]["DeadLetterReason"]) == ("stubborn", "MaxDeliveryCountExceeded")


def test_a_message_of_a_hundred_megabytes(own: Namespace) -> None:
    """#80, with what goes around a body taken off."""
    body = b"x" * (100 * 1024 * 1024 - 64 * 1024)
    with Client(own) as client:
        client.create("/servicebus/queues/q", max_message_size_kb=102_400)
        assert client.ask("POST", "/q/messages", body).status == 201
        assert client.ask("DELETE", "/q/messages/head").body == body
        assert client.ask("POST", "/q/messages", body + b"x" * 128 * 1024).status == 413


# Addresses


@contextmanager
def mapped_port(target: int) -> Iterator[int]:
    """A port of its own that leads to another, as Docker maps the ports of a container."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))

    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(connected, "127.0.0.1", 0), loop).result(PATIENCE_S)

    async def close() -> None:
        server.close()
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(close(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


def test_administration_through_a_mapped_port(own: Namespace) -> None:
    """#117: the port that the client knows is not the one that the server has."""
    with mapped_port(own.port) as port:
        with azure(own, port) as admin:
            for at in range(5):
                admin.create_queue(f"q{at}", forward_to="q0" if at else None)
            assert [each.name for each in admin.list_queues(max_page_size=2)] == [f"q{at}" for at in range(5)]
            assert admin.get_queue("q1").forward_to == f"sb://localhost:{port}/q0"
            admin.update_queue(admin.get_queue("q1"), max_delivery_count=3)
            assert admin.get_queue("q1").forward_to == f"sb://localhost:{port}/q0"
        with Client(own, port) as client:
            following = client.ask("GET", "/$Resources/queues?$top=2", Accept="application/json").json["next"]
            assert urlsplit(following).port == port
            found = client.ask("GET", following.partition(f":{port}")[2], Accept="application/json").json
            assert [each["name"] for each in found["items"]] == ["q2", "q3"]


@pytest.mark.parametrize("host", ["servicebus-emulator", "host.docker.internal:31234", "192.0.2.1", "[2001:db8::1]:80"])
def test_any_host_header(own: Namespace, host: str) -> None:
    """#117: names of containers and of machines that the server has never heard of."""
    with Client(own) as client:
        assert client.ask("PUT", "/servicebus/queues/q", {}, Host=host).status == 201
        assert client.ask("POST", "/q/messages", "x", Host=host).status == 201
        locked = client.ask("POST", "/q/messages/head", Host=host)
        assert locked.headers["location"].startswith(f"http://{host}/q/messages/")
        assert client.ask("GET", "/q", Host=host).status == 200


def test_the_certificate_has_the_names_that_were_asked_for(tmp_path: Path) -> None:
    """From other containers the server is called by the name of its own."""
    with namespace_running(tmp_path, certificate_names=("servicebus-emulator", "10.1.2.3")) as found:
        context = ssl.create_default_context(cafile=str(found.ca))
        for name in ("servicebus-emulator", "10.1.2.3", "localhost"):
            with found.running.connect() as opened:
                context.wrap_socket(opened, server_hostname=name).close()
        with found.running.connect() as opened, pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(opened, server_hostname="another")
        assert found.get("/unibus/v1/ca.pem") == found.ca.read_text()


# Answers


def test_an_update_answers_every_property(own: Namespace) -> None:
    """#118: an update that names one property has all of them in its answer."""
    document = (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">'
        "<MaxDeliveryCount>3</MaxDeliveryCount></QueueDescription></content></entry>"
    )
    always = {name for name in ELEMENTS[QUEUE] if name not in ("ForwardTo", "ForwardDeadLetteredMessagesTo")}
    with Client(own) as client:
        client.create("/servicebus/queues/q")
        answer = client.ask("PUT", "/q", document, If_Match="*", Content_Type="application/atom+xml")
        assert answer.status == 200
        text = answer.body.decode()
        assert "<MaxDeliveryCount>3</MaxDeliveryCount>" in text
        assert {name for name in always if f"<{name}" not in text} <= {"UserMetadata", "MaxMessageSizeInKilobytes"}
        for name, value in (("EnableBatchedOperations", "true"), ("EnablePartitioning", "false")):
            assert f"<{name}>{value}</{name}>" in text


# Configuration

CONFIG = """\
{
  "UserConfig": {
    // As Microsoft ships it, comments and all.
    "Namespaces": [
      {
        "Name": "sbemulatorns",
        "Queues": [
          { "Name": "queue.1", "Properties": { "LockDuration": "PT1M", "MaxDeliveryCount": 100 } }
        ],
        "Topics": [
          {
            "Name": "topic.1",
            "Properties": { "DefaultMessageTimeToLive": "PT1H" },
            "Subscriptions": [
              {
                "Name": "subscription.1",
                "Properties": { "LockDuration": "PT1M", "RequiresSession": false },
                "Rules": [ { "Name": "r", "Properties": { "FilterType": "Correlation",
                  "CorrelationFilter": { "ContentType": "application/json" } } } ]
              }
            ]
          }
        ]
      }
    ],
    "Logging": { "Type": "File" }
  }
}
"""


def test_the_emulators_own_file(certificates: Path, tmp_path: Path) -> None:
    file = tmp_path / "Config.json"
    file.write_text(CONFIG)
    with namespace_running(certificates, entities=str(file)) as found, azure(found) as admin:
        assert admin.get_queue("queue.1").max_delivery_count == 100
        assert admin.get_topic("topic.1").default_message_time_to_live == dt.timedelta(hours=1)
        assert [each.name for each in admin.list_rules("topic.1", "subscription.1")] == ["r"]


@pytest.mark.parametrize(
    ("right", "wrong", "line", "names"),
    [
        ('"MaxDeliveryCount": 100', '"MaxDeliveryCuont": 100', 8, "MaxDeliveryCuont"),
        ('"LockDuration": "PT1M", "MaxD', '"LockDuration": "soon", "MaxD', 8, "lock_duration is 'soon'"),
        ('"RequiresSession": false', '"RequiresSession": false,,', 17, ""),
        ('"Logging": {', '"Logging": ', 26, ""),
    ],
)
def test_an_invalid_file_is_named_by_line(
    certificates: Path, tmp_path: Path, right: str, wrong: str, line: int, names: str
) -> None:
    """#131: it said "Out of memory"."""
    assert CONFIG.count(right) == 1
    file = tmp_path / "Config.json"
    file.write_text(CONFIG.replace(right, wrong))
    with (
        pytest.raises(ConfigInvalid, match=rf"Config\.json, line {line}: .*{names}"),
        namespace_running(certificates, entities=str(file)),
    ):
        pass


# Health


@pytest.mark.unchecked
def test_healthy_only_when_a_send_would_work(certificates: Path, folder: Path) -> None:
    """#135. The body is the emulator's own, for which Testcontainers and Aspire wait."""
    path = folder / "a.db"
    with namespace_running(certificates, store=str(path), request_log=False) as found, Client(found) as client:
        client.create("/servicebus/queues/q")

        def state() -> tuple[int, object, int]:
            health = client.ask("GET", "/health")
            return health.status, health.json, client.ask("POST", "/q/messages", "x").status

        healthy = (200, {"status": "healthy", "message": "Service is healthy."}, 201)
        assert state() == healthy
        os.rename(path, folder / "away.db")  # So that it cannot be opened before the test has looked.
        found.running.do(lambda: fail(found.running))
        assert client.ask("POST", "/q/messages", "x").status == 503
        assert state() == (503, {"status": "unhealthy", "message": "Service is unhealthy."}, 503)
        os.rename(folder / "away.db", path)
        found.running.until(lambda: not found.running.server.serving.problem)
        assert state() == healthy
        assert client.ask("GET", "/q/messages?count=10").json[-1]["Body"] == "x"


# Restart


def everything(admin: ServiceBusAdministrationClient) -> str:
    """All settings of all entities and rules, as text: some values have no equality."""
    topics = [each.name for each in admin.list_topics()]
    found: list[object] = [dict(each) for each in (*admin.list_queues(), *admin.list_topics())]
    for topic in topics:
        for subscription in admin.list_subscriptions(topic):
            found += [dict(subscription), *[vars(each) for each in admin.list_rules(topic, subscription.name)]]
    return json.dumps(found, default=lambda value: vars(value) if hasattr(value, "__dict__") else str(value))


def test_everything_survives_a_restart(certificates: Path, folder: Path) -> None:
    """Microsoft's emulator keeps nothing."""
    store = str(folder / "a.db")
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule", rights=["Send"], key_name="own", primary_key=KEY, secondary_key=KEY
    )
    with namespace_running(certificates, store=store) as found, azure(found) as admin, Client(found) as client:
        port = found.port
        admin.create_queue("q", max_delivery_count=100, user_metadata="m", enable_partitioning=True)
        admin.create_queue("keys", authorization_rules=[rule])
        admin.create_topic("t", enable_batched_operations=False)
        admin.create_subscription("t", "s", lock_duration="PT30S")
        condition = SqlRuleFilter("a = @x", {"@x": 5})
        admin.create_rule("t", "s", "r", filter=condition, action=SqlRuleAction(sql_expression="SET b = 1"))
        client.send("/q", "kept")
        before = everything(admin)
    with (
        namespace_running(certificates, store=store, port=port) as found,
        azure(found) as admin,
        Client(found) as client,
    ):
        assert everything(admin) == before
        assert client.ask("DELETE", "/q/messages/head").body == b"kept"


def test_a_key_that_everyone_knows_is_not_for_elsewhere(own: Namespace) -> None:
    """What makes all this convenient is only for this machine: behind a proxy that names another it is refused."""
    assert (WELL_KNOWN_NAME, WELL_KNOWN_KEY) == ("RootManageSharedAccessKey", "SAS_KEY_VALUE")
    with Client(own) as client:
        assert client.ask("GET", "/$Resources/queues").status == 200
        assert client.ask("GET", "/$Resources/queues", X_Forwarded_For="203.0.113.9").status == 401
