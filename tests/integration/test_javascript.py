"""Azure's unmodified administration clients for JavaScript against our server.

7.9.5 speaks HTTPS, whatever the connection string says, and trusts the CA by a variable of Node.js. 7.10.0-beta.2
speaks plain HTTP to emulators. `everything.mjs` does everything once; here its results are compared.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.namespace import Namespace

SCRIPT = Path(__file__).parent / "javascript" / "everything.mjs"
PACKAGES = Path(".build/javascript").resolve()
VERSIONS = {"service-bus": "7.9.5", "service-bus-beta": "7.10.0-beta.2"}
SECURE = "service-bus"


def run(namespace: Namespace, package: str, trusts: bool) -> subprocess.CompletedProcess[str]:
    assert (PACKAGES / "node_modules" / package).is_dir(), "the clients are missing: python tools/prepare.py clients"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NODE_")}
    if trusts:
        environment["NODE_EXTRA_CA_CERTS"] = str(namespace.ca)
    command = ["node", str(SCRIPT), str(PACKAGES), package]
    given = {"input": namespace.connection_string, "env": environment, "timeout": 120}
    return subprocess.run(command, capture_output=True, text=True, **given)  # type: ignore[call-overload, no-any-return]


@pytest.fixture(scope="module", params=VERSIONS)
def results(request: pytest.FixtureRequest, namespace: Namespace) -> dict[str, Any]:
    package = str(request.param)
    done = run(namespace, package, package == SECURE)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["version"] == VERSIONS[package]
    return found


def rights_in_order(properties: dict[str, Any]) -> dict[str, Any]:
    """Rights are a set."""
    if "authorizationRules" not in properties:
        return properties
    rules = [{**each, "accessRights": sorted(each["accessRights"])} for each in properties["authorizationRules"]]
    return {**properties, "authorizationRules": rules}


@pytest.mark.parametrize("kind", ["queues", "topics", "subscriptions"])
def test_properties_come_back_as_they_were_given(results: dict[str, Any], kind: str) -> None:
    found = {name: rights_in_order(each) for name, each in results[kind].items() if isinstance(each, dict)}
    given, created = found["given"], found["created"]
    assert {name: created[name] for name in given} == given
    assert found["read"] == created
    assert found["wanted"] != created
    assert found["updated"] == found["again"] == found["wanted"]


def test_forwarding(results: dict[str, Any], namespace: Namespace) -> None:
    for kind in ("queues", "subscriptions"):
        for step in ("created", "read", "updated", "again"):
            found = results[kind][step]["forwardDeadLetteredMessagesTo"]
            assert found == f"sb://localhost:{namespace.port}/js-target"


def test_a_queue_with_the_defaults(results: dict[str, Any]) -> None:
    simple = results["queues"]["simple"]
    assert simple["enableBatchedOperations"] is True
    assert [simple["enablePartitioning"], simple["requiresSession"], simple["enableExpress"]] == [False] * 3
    assert (simple["maxDeliveryCount"], simple["maxSizeInMegabytes"], simple["lockDuration"]) == (10, 1024, "PT1M")
    assert (simple["status"], simple["availabilityStatus"]) == ("Active", "Available")
    assert results["queues"]["updatedSimple"] == simple


def test_lists_and_pages(results: dict[str, Any]) -> None:
    queues, topics, subscriptions = (results[kind] for kind in ("queues", "topics", "subscriptions"))
    paged = [f"js-page-{at}" for at in range(3)]
    assert queues["names"] == [*paged, "js-simple", "js-target", "js/all"]
    assert queues["pages"] == [[*paged[:2]], [paged[2], "js-simple"], ["js-target", "js/all"]]
    assert topics["names"] == [*[f"js-t-page-{at}" for at in range(3)], "js-topic"]
    assert [len(page) for page in topics["pages"]] == [3, 1]
    assert subscriptions["names"] == ["all", "page-0", "page-1", "page-2"]
    assert [len(page) for page in subscriptions["pages"]] == [3, 1]
    assert results["rules"]["names"] == ["$Default", "always", "correlation", "never", "sql"]
    assert [len(page) for page in results["rules"]["pages"]] == [3, 2]


@pytest.mark.parametrize("kind", ["queues", "topics", "subscriptions", "rules"])
def test_existence(results: dict[str, Any], kind: str) -> None:
    assert results[kind]["exists"] == [True, False]


def test_runtime_properties(results: dict[str, Any]) -> None:
    for kind, counts in (
        ("queues", ["totalMessageCount", "activeMessageCount", "deadLetterMessageCount", "transferMessageCount"]),
        ("topics", ["sizeInBytes", "subscriptionCount", "scheduledMessageCount"]),
        ("subscriptions", ["totalMessageCount", "activeMessageCount", "transferDeadLetterMessageCount"]),
    ):
        runtime = results[kind]["runtime"]
        assert [runtime[name] for name in counts] == [0] * len(counts)
        assert runtime["createdAt"] <= runtime["modifiedAt"] <= runtime["accessedAt"]
        assert [count for _, count in results[kind]["runtimes"]] == [0] * len(results[kind]["names"])


def test_rules(results: dict[str, Any]) -> None:
    rules = results["rules"]
    for name, filter_ in rules["filters"].items():
        for found in rules["made"][name]:
            assert found == {"name": name, "filter": filter_, "action": rules["action"]}
    assert rules["updated"] == rules["wanted"]
    assert rules["left"] == []
    assert results["subscriptions"]["rule"] == {
        "name": "first",
        "filter": {"sqlExpression": "a = 1"},
        "action": {"sqlExpression": "SET b = 2"},
    }


def test_the_namespace(results: dict[str, Any]) -> None:
    assert (results["namespace"]["name"], results["namespace"]["messagingSku"]) == ("localhost", "Premium")


def test_errors_by_the_names_of_the_client(results: dict[str, Any]) -> None:
    queues = results["queues"]
    assert queues["twice"] == "409 MessageEntityAlreadyExistsError"
    assert queues["missing"] == results["removed"]["missing"] == "404 MessageEntityNotFoundError"
    assert queues["invalid"] == results["rules"]["invalid"] == "400 ServiceError"


def test_everything_can_be_deleted(results: dict[str, Any]) -> None:
    assert results["removed"]["subscriptions"] == ["all", "page-0", "page-1"]
    assert results["removed"]["left"] == []


def test_which_of_them_uses_tls(namespace: Namespace) -> None:
    """That 7.9.5 fails without the CA shows that the results above came through TLS, and the beta's did not."""
    done = run(namespace, SECURE, False)
    assert done.returncode != 0
    assert "UNABLE_TO_VERIFY_LEAF_SIGNATURE" in done.stderr or "self-signed certificate" in done.stderr
