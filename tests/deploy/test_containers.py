"""The Dockerfile and the manifests, without a container engine: all that they name exists, and what they run runs."""

import base64
import configparser
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.dockerfile import Stage, is_ignored, read_stages
from tests.integration.server.running import Running, running
from unibus.config.settings import AMQP_PORT_DEFAULT, PORT_DEFAULT, ServerSettings, setting_fields
from unibus.config.sources import flag_of, read_configuration, variable_of
from unibus.endpoints.http.application.operations import TABLE
from unibus.errors import ConfigInvalid

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KEY = base64.b64encode(bytes(32)).decode()
USER = 10_001
VARIABLES = {variable_of(each.name) for each in setting_fields()}
FLAGS = {flag_of(each.name) for each in setting_fields() if each.metadata["flag"]} | {"--config"}
READY, LIVE = "/servicebus/health/ready", "/servicebus/health/live"


def stages() -> list[Stage]:
    return read_stages((ROOT / "Dockerfile").read_text("utf-8"))


def image() -> Stage:
    return stages()[-1]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return found


def kubernetes(kind: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))
    (found,) = [each for each in documents if each["kind"] == kind]
    return dict(found)


def pod() -> dict[str, Any]:
    return dict(kubernetes("StatefulSet")["spec"]["template"]["spec"])


def container() -> dict[str, Any]:
    (found,) = pod()["containers"]
    return dict(found)


class Unit(configparser.RawConfigParser):
    """A unit of systemd. Of a key that is given several times the last value is seen."""

    def __init__(self, text: str) -> None:
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#", ";"), interpolation=None)
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.read_string(text)


def unit() -> Unit:
    return Unit((DEPLOY / "systemd" / "unibus.service").read_text("utf-8"))


# What each deployment gives to `unibus serve`


def variables_of(deployment: str) -> dict[str, str]:
    if deployment == "systemd":
        return dict(word.split("=", 1) for word in unit()["Service"]["Environment"].split())
    given = image().environment()
    if deployment == "compose":
        given |= compose()["services"]["unibus"]["environment"]
    if deployment == "kubernetes":
        secret = kubernetes("Secret")
        for each in container()["env"]:
            if "value" in each:
                given[each["name"]] = each["value"]
            else:
                reference = each["valueFrom"]["secretKeyRef"]
                assert reference["name"] == secret["metadata"]["name"]
                given[each["name"]] = secret["stringData"][reference["key"]]
    return given


def command_of(deployment: str) -> list[str]:
    program = image().only("ENTRYPOINT").command()
    if deployment == "systemd":
        return unit()["Service"]["ExecStart"].split()
    if deployment == "compose":
        return program + list(compose()["services"]["unibus"]["command"])
    if deployment == "kubernetes":
        assert "command" not in container()
        return program + list(container()["args"])
    return program + image().only("CMD").command()


def settings_of(deployment: str, folder: Path) -> ServerSettings:
    """As the server itself reads them, with the store in a folder of the test and keys where a person puts them."""
    given = {
        name: value.replace("/data", str(folder)).replace("%S/unibus", str(folder)).replace("REPLACE", KEY)
        for name, value in variables_of(deployment).items()
    }
    return read_configuration({"port": "0", "amqp_port": "0"}, given, folder=folder).settings


DEPLOYMENTS = ("image", "compose", "kubernetes", "systemd")


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_commands_and_variables_are_those_of_the_server(deployment: str, tmp_path: Path) -> None:
    assert unknown(command_of(deployment), variables_of(deployment)) == set()
    settings = settings_of(deployment, tmp_path)
    assert {"store"} < settings.given


def unknown(command: list[str], variables: Mapping[str, str]) -> set[str]:
    """What `unibus serve` does not have: commands, options and variables."""
    program, *words = command
    options = {word.partition("=")[0].replace("--no-", "--") for word in words if word.startswith("--")}
    ours = {name for name in variables if name.startswith("UNIBUS_")}
    named = {Path(program).name, *words[:1]}
    return (named - {"unibus", "serve"}) | (options - FLAGS) | (ours - VARIABLES)


def test_what_the_server_does_not_have_is_found() -> None:
    command = ["/opt/unibus", "serve", "--allowed-networks", "10.0.0.0/8", "--no-tls", "--port=1"]
    variables = {"UNIBUS_ALLOWED_NETWORKS": "10.0.0.0/8", "UNIBUS_PORT": "1", "HOME": "/"}
    assert unknown(command, variables) == {"--allowed-networks", "UNIBUS_ALLOWED_NETWORKS"}
    assert unknown(["unibus", "server"], {}) == {"server"}


@contextmanager
def served(settings: ServerSettings) -> Iterator[Running]:
    with running(settings, build_app=None, make_broker=None) as found:
        yield found


def status_of(port: int, path: str, scheme: str = "http") -> int:
    """As a probe asks: without a key, and without a look at the certificate."""
    context = ssl._create_unverified_context() if scheme == "https" else None
    with urllib.request.urlopen(f"{scheme}://127.0.0.1:{port}{path}", timeout=30, context=context) as answer:
        return int(answer.status)


@pytest.mark.parametrize("deployment", ["compose", "kubernetes", "systemd"])
def test_a_server_with_these_settings_starts_and_answers_probes(deployment: str, folder: Path) -> None:
    settings = settings_of(deployment, folder)
    assert Path(settings.store).parent == folder
    with served(settings) as server:
        assert [port for _, port in server.server.addresses]
        for path in (READY, LIVE, "/health"):
            assert [status_of(server.server.port, path, scheme) for scheme in ("http", "https")] == [200, 200]
    assert Path(settings.store).exists()


def test_the_image_alone_refuses_to_serve_a_network_without_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="without a key"), served(settings_of("image", tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_placeholders_of_the_secret_are_no_keys() -> None:
    with pytest.raises(ConfigInvalid, match="authorization_rules"):
        read_configuration({}, variables_of("kubernetes"))


# The image


def test_the_image_is_built_in_two_stages_from_one_pinned_base() -> None:
    build, final = stages()
    assert build.base == final.base
    found = re.fullmatch(r"python:(3\.\d+)-slim-\w+", build.base)
    assert found is not None, build.base
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"Programming Language :: Python :: {found[1]}" in project["classifiers"]


def test_the_build_has_everything_that_the_package_needs_and_compiles() -> None:
    build = stages()[0]
    assert build.environment()["UNIBUS_REQUIRE_COMPILED"] == "1"
    copied = [source for each in build.all("COPY") for source in each.words()[:-1]]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {"pyproject.toml", "setup.py", "src", project["readme"], *project["license-files"]} == set(copied)
    ignored = (ROOT / ".dockerignore").read_text("utf-8")
    for source in copied:
        assert (ROOT / source).exists()
        assert not is_ignored(source, ignored)
    order = build.order()
    assert max(index for index, name in enumerate(order) if name == "COPY") < len(order) - 1 - order[::-1].index("RUN")
    wheel = build.all("RUN")[-1].rest
    extra = re.search(r"pip wheel .*\"\.\[(\w+)\]\"", wheel)
    assert extra is not None
    assert extra[1] in project["optional-dependencies"]


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("src/unibus/core/envelope/message.py", False),
        ("src/unibus/stores/sqlite/schema/1.sql", False),
        ("src/unibus/core/__pycache__/message.pyc", True),
        ("unibus.db", True),
        ("deploy/kubernetes.yaml", True),
        (".git/config", True),
        ("src/unibus/core/envelope/message.so", True),
    ],
)
def test_only_sources_are_sent_to_the_build(path: str, ignored: bool) -> None:
    assert is_ignored(path, (ROOT / ".dockerignore").read_text("utf-8")) == ignored


def test_the_image_takes_only_wheels_over() -> None:
    final = image()
    assert final.all("COPY") == []
    install = final.all("RUN")[0].rest
    assert f"from={stages()[0].name}" in install
    assert "--no-index" in install
    assert "apt-get" not in " ".join(each.rest for each in final.all("RUN"))


def test_the_image_runs_as_a_user_that_owns_its_volume() -> None:
    final = image()
    order = final.order()
    assert final.only("USER").rest == f"{USER}:{USER}"
    assert max(index for index, name in enumerate(order) if name == "RUN") < order.index("USER") < order.index("CMD")
    (volume,) = final.only("VOLUME").words()
    assert f"install -d -o {USER} -g {USER} -m 0700 {volume}" in final.all("RUN")[-1].rest
    assert final.only("WORKDIR").rest == volume
    assert Path(final.environment()["UNIBUS_STORE"]).parent == Path(volume)
    assert final.only("EXPOSE").words() == [str(PORT_DEFAULT), str(AMQP_PORT_DEFAULT)]


def test_the_image_serves_is_healthy_and_ends_cleanly_at_its_signal(folder: Path) -> None:
    """Its own commands, in its own environment, as a process."""
    final = image()
    variables = {name: value.replace("/data", str(folder)) for name, value in final.environment().items()}
    variables |= {"UNIBUS_PORT": "0", "UNIBUS_AMQP_PORT": "off", "UNIBUS_ALLOW_NETWORKS": "127.0.0.0/8"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UNIBUS_")}
    environment = {**kept, **variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    _, *arguments = command_of("image")
    command = [sys.executable, "-W", "error", "-m", "unibus", *arguments]
    with subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://localhost:(\d+)", process.stdout.readline())
            assert found is not None
            assert is_healthy(final.only("HEALTHCHECK").command(), found[1])
        finally:
            process.send_signal(getattr(signal, final.only("STOPSIGNAL").rest))
            process.communicate(timeout=60)
    assert process.returncode == 0
    assert not is_healthy(final.only("HEALTHCHECK").command(), found[1])
    assert {path.name for path in folder.iterdir()} >= {"unibus.db", "unibus.db-certificates"}


def is_healthy(command: list[str], port: str) -> bool:
    assert command[0] == "python"
    environment = {**os.environ, "UNIBUS_PORT": port}
    return subprocess.run([sys.executable, *command[1:]], env=environment, capture_output=True).returncode == 0


# Compose


def test_compose_trusts_its_own_network_and_no_more() -> None:
    found = compose()
    (network,) = found["networks"]["unibus"]["ipam"]["config"]
    service = found["services"]["unibus"]
    assert service["environment"]["UNIBUS_ALLOW_NETWORKS"] == network["subnet"]
    assert ip_network(network["subnet"]).is_private
    assert service["networks"] == list(found["networks"])
    ports = [f"127.0.0.1:{port}:{port}" for port in (PORT_DEFAULT, AMQP_PORT_DEFAULT)]
    assert service["ports"] == ports


def test_compose_keeps_the_store_in_a_volume_and_checks_its_health() -> None:
    found = compose()
    service = found["services"]["unibus"]
    (name, path) = service["volumes"][0].split(":")
    assert name in found["volumes"]
    assert [path] == image().only("VOLUME").words()
    assert (DEPLOY / service["build"]["context"]).resolve() == ROOT
    kind, *command = service["healthcheck"]["test"]
    assert kind == "CMD"
    assert (f":{PORT_DEFAULT}{READY}" in command[-1], command[0]) == (True, "python")
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert seconds(service["stop_grace_period"]) > read_configuration({}, {}).settings.drain_deadline_s


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)s", text)
    assert found is not None
    return int(found[1])


def test_the_health_check_of_compose_asks_a_real_server(folder: Path) -> None:
    _, *command = compose()["services"]["unibus"]["healthcheck"]["test"]
    with served(settings_of("compose", folder)) as server:
        port = str(server.server.port)
        asked = [each.replace(str(PORT_DEFAULT), port) for each in command]
        assert is_healthy(asked, port)
        assert not is_healthy([each.replace("/ready", "/none") for each in asked], port)


# Kubernetes


def test_kubernetes_has_one_owner_for_its_store() -> None:
    found = kubernetes("StatefulSet")["spec"]
    assert found["replicas"] == 1
    (claim,) = found["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert claim["spec"]["resources"]["requests"]["storage"]
    mounts = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == image().only("VOLUME").rest
    assert {"data", "tmp"} == mounts.keys()
    assert pod()["terminationGracePeriodSeconds"] > read_configuration({}, {}).settings.drain_deadline_s


def test_kubernetes_names_fit_together() -> None:
    stateful, service = kubernetes("StatefulSet"), kubernetes("Service")
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert stateful["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    assert stateful["spec"]["serviceName"] == service["metadata"]["name"]
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    assert ports == {"https": PORT_DEFAULT, "amqp": AMQP_PORT_DEFAULT}
    assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == ports
    assert pod()["enableServiceLinks"] is False
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert container()["image"] == f"unibus:{version}"


def test_kubernetes_probes_ask_what_they_should() -> None:
    for probe, path in (("startupProbe", READY), ("readinessProbe", READY), ("livenessProbe", LIVE)):
        asked = container()[probe]["httpGet"]
        assert asked == {"path": path, "port": "https", "scheme": "HTTPS"}
        operation = TABLE.find(path, "GET")
        assert operation is not None
        assert operation.right is None  # A probe has no key.


def test_kubernetes_runs_without_privileges() -> None:
    of_pod, own = pod()["securityContext"], container()["securityContext"]
    assert (of_pod["runAsNonRoot"], of_pod["runAsUser"], of_pod["fsGroup"]) == (True, USER, USER)
    assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod()["automountServiceAccountToken"] is False
    assert container()["resources"]["limits"]["memory"]


def test_the_memory_alert_is_for_the_limit_of_the_manifests() -> None:
    limits = (container()["resources"]["limits"]["memory"], compose()["services"]["unibus"]["mem_limit"])
    assert limits == ("1Gi", "1g")
    assert "> 0.8 * 1024 * 1024 * 1024" in (DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8")


# systemd

EXPOSURE_MAX = 2.0
"""Of `systemd-analyze security`: from 0, which cannot do anything, to 10."""
DIRECTIVES = {
    "Unit": {"Description", "Wants", "After"},
    "Install": {"WantedBy"},
    "Service": {
        *("Type", "ExecStart", "Environment", "EnvironmentFile", "WorkingDirectory", "Restart", "RestartSec"),
        *("KillSignal", "TimeoutStopSec", "LimitNOFILE", "MemoryHigh", "DynamicUser", "StateDirectory"),
        *("StateDirectoryMode", "UMask", "ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices"),
        *("PrivateUsers", "NoNewPrivileges", "CapabilityBoundingSet", "AmbientCapabilities", "ProtectClock"),
        *("ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules"),
        *("ProtectKernelTunables", "ProtectProc", "ProcSubset", "LockPersonality", "MemoryDenyWriteExecute"),
        *("RemoveIPC", "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID"),
        *("SystemCallArchitectures", "SystemCallErrorNumber", "SystemCallFilter"),
    },
}
"""Of systemd.unit(5), systemd.service(5), systemd.exec(5) and systemd.resource-control(5)."""


def test_the_unit_has_only_directives_that_systemd_knows() -> None:
    found = unit()
    assert {name: set(found[name]) - known for name, known in DIRECTIVES.items()} == {
        name: set() for name in DIRECTIVES
    }
    assert found.sections() == ["Unit", "Service", "Install"]


def test_the_unit_keeps_its_store_where_it_may_write() -> None:
    service = unit()["Service"]
    variables = variables_of("systemd")
    assert service["StateDirectory"] == "unibus"
    assert Path(variables["UNIBUS_STORE"]).parent == Path(service["WorkingDirectory"]) == Path("%S/unibus")
    assert (service["DynamicUser"], service["ProtectSystem"]) == ("yes", "strict")
    defaults = {each.name: each.default for each in fields(ServerSettings)}
    assert seconds(service["TimeoutStopSec"]) > defaults["drain_deadline_s"]
    assert int(service["LimitNOFILE"]) > defaults["connections_max"] + 128


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Where there is systemd; the table above is for the other machines."""
    program = shutil.which("systemd-analyze")
    if program is None:
        return
    text = (DEPLOY / "systemd" / "unibus.service").read_text("utf-8")
    copy = tmp_path / "unibus.service"
    copy.write_text(text.replace("/opt/unibus/bin/unibus", sys.executable))
    assert analyzed(program, "verify", copy) == ""
    shown = analyzed(program, "security", "--offline=yes", "--no-pager", copy)
    exposure = re.search(r"exposure level for unibus.service: ([\d.]+)", shown)
    assert exposure is not None, shown
    assert float(exposure[1]) <= EXPOSURE_MAX
    copy.write_text(copy.read_text().replace("ProtectClock=", "ProtectClocks="))
    assert "ProtectClocks" in analyzed(program, "verify", copy)


def analyzed(*command: object) -> str:
    environment: Mapping[str, str] = {**os.environ, "SYSTEMD_COLORS": "0", "LC_ALL": "C.UTF-8"}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment)
    return done.stdout + done.stderr
