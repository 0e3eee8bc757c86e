"""The dashboard and the alerts ask for series that a running server has, and the alerts fire when they should."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.promql import Unreadable, parse
from tests.deploy.scrape import Scrape
from tests.integration.client import Client
from tests.integration.namespace import namespace_running
from unibus.core.access.rules import WELL_KNOWN_KEY, WELL_KNOWN_NAME
from unibus.core.access.token import make_token

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "unibus.json"
PROMETHEUS = ROOT / "deploy" / "prometheus"
UNIT_TESTS = Path(__file__).with_name("alerts_test.yml")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
VARIABLES = {"$__rate_interval": "5m", "$job": ".*", "$instance": ".*", "$entity": ".*"}


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Scrape:
    """Of a server that was used: each family has at least one sample."""
    with namespace_running(tmp_path_factory.mktemp("certificates")) as namespace, Client(namespace) as client:
        client.create("/servicebus/queues/q")
        client.create("/servicebus/topics/t")
        client.create("/t/subscriptions/s", rules={"r": {"filter": "x = 1"}})
        client.send("/q", "hello")
        client.send("/t", "hello")
        received = client.ask("POST", "/q/messages/head")
        assert client.ask("DELETE", received.headers["location"].partition(str(namespace.port))[2]).status == 200
        elsewhere = make_token("sb://localhost/other", WELL_KNOWN_NAME, WELL_KNOWN_KEY, 4_000_000_000)
        for authorization, status in (("SharedAccessSignature x", 401), (elsewhere, 403)):
            assert client.ask("POST", "/q/messages/head", Authorization=authorization).status == status
        return Scrape.of(client.ask("GET", "/metrics").body.decode())


@cache
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text("utf-8"))
    return found


@cache
def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """(where, PromQL) of everything that is asked for."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            assert variable["definition"] == variable["query"]["query"]
            selector, _, label = variable["definition"].removeprefix("label_values(")[:-1].rpartition(", ")
            yield f"${variable['name']}", f"count by ({label}) ({selector})"
    for rule in rules():
        yield rule["alert"], rule["expr"]


def test_every_metric_and_label_is_in_a_real_scrape(scrape: Scrape) -> None:
    asked = list(expressions())
    assert len(asked) > 50
    problems = [f"{where}: {problem}" for where, text in asked for problem in scrape.problems(text)]
    assert problems == []


def test_the_dashboard_uses_every_family_of_the_server(scrape: Scrape) -> None:
    """A metric without a panel is one that an operator does not see."""
    used = {selector.metric for panel, text in expressions() for selector in parse(text).selectors}
    families = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in scrape.values}
    shown = {name.removesuffix("_bucket") for name in used}
    missing = {name for name in families if name not in shown and f"{name}_count" not in shown}
    assert missing == set()


# A check that cannot fail is worth nothing.
WRONG = {
    "no metric servicebus_sent_total": "sum(rate(servicebus_sent_total[5m]))",
    "no metric b": "rate(servicebus_messages_sent_total[5m]) / b",
    "no label queue of servicebus_active_messages": 'servicebus_active_messages{queue="q"}',
    "no label entity in": "sum by (entity) (servicebus_active_messages)",
    "no label code of": 'unibus_http_requests_total{code="200"}',
    "unibus_health has no status that is 'sick'": 'unibus_health{status="sick"} == 1',
    "servicebus_errors_total has no error_type": 'servicebus_errors_total{error_type=~"forbidden|unauthorized"}',
    "no label le in": "histogram_quantile(0.9, sum by (le) (servicebus_send_duration_seconds_sum))",
    "no metric servicebus_send_duration_seconds": "servicebus_send_duration_seconds",
}


@pytest.mark.parametrize("problem", WRONG)
def test_a_wrong_name_is_found(scrape: Scrape, problem: str) -> None:
    found = list(scrape.problems(WRONG[problem]))
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_promql_is_read_where_it_has_metrics() -> None:
    text = """sum by (a, b) (rate(x_total{k="un{it}", l=~"by|on"}[5m])) / on (c) group_left y
        unless ignoring (d) -z offset 5m > bool 0.5 * 1e3 and topk(3, count without (e) (w))"""
    found = parse(text)
    assert [selector.metric for selector in found.selectors] == ["x_total", "y", "z", "w"]
    assert found.selectors[0].matchers == {"k": ("=", "un{it}"), "l": ("=~", "by|on")}
    assert found.grouped == {"a", "b", "c", "d", "e"}


NO_PROMQL = ["", "sum(", "x)", "x{a}", "x{a=b}", "x[5 minutes]", "{a='b'}", "x # y", "1 + 2", "by(a,(b))"]


@pytest.mark.parametrize("text", NO_PROMQL)
def test_what_is_no_promql_is_not_read(text: str) -> None:
    with pytest.raises(Unreadable):
        parse(text)


# The dashboard


def test_the_dashboard_has_the_shape_that_grafana_imports() -> None:
    found = dashboard()
    assert (found["uid"], found["title"]) == ("unibus", "unibus")
    assert "id" not in found  # Grafana gives one; a given id would replace another dashboard.
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids))
    for panel in panels():
        assert panel["datasource"] == DATASOURCE
        assert all(target["datasource"] == DATASOURCE for target in panel["targets"])
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references))
        assert panel["description"].strip()
    assert [variable["name"] for variable in found["templating"]["list"]] == ["datasource", "job", "instance", "entity"]


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]


# Prometheus's own tool


def promtool(*arguments: object, folder: Path = ROOT) -> str:
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: `python tools/prepare.py servers` installs it"
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules_and_the_configuration(tmp_path: Path) -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", PROMETHEUS / "alerts.yml")
    for name in ("alerts.yml", "prometheus.yml"):
        shutil.copy(PROMETHEUS / name, tmp_path)
    (tmp_path / "unibus.key").write_text("key")
    assert "SUCCESS" in promtool("check", "config", tmp_path / "prometheus.yml")


def test_promtool_accepts_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    """As recording rules: promtool reads expressions nowhere else."""
    made = []
    for number, (_, text) in enumerate(expressions()):
        for name, value in VARIABLES.items():
            text = text.replace(name, value)
        made.append({"record": f"dashboard:expression:{number}", "expr": text})
    path = tmp_path / "dashboard.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": made}]}))
    assert f"{len(made)} rules found" in promtool("check", "rules", path)


def test_the_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    shutil.copy(PROMETHEUS / "alerts.yml", tmp_path)
    shutil.copy(UNIT_TESTS, tmp_path)
    assert "SUCCESS" in promtool("test", "rules", UNIT_TESTS.name, folder=tmp_path)


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires: set[str] = set()
    is_silent: set[str] = set()
    for group in yaml.safe_load(UNIT_TESTS.read_text("utf-8"))["tests"]:
        for test in group["alert_rule_test"]:
            (fires if test.get("exp_alerts") else is_silent).add(test["alertname"])
    names = {rule["alert"] for rule in rules()}
    assert (fires, is_silent) == (names, names)


def test_a_wrong_expectation_is_found(tmp_path: Path) -> None:
    shutil.copy(PROMETHEUS / "alerts.yml", tmp_path)
    tests = yaml.safe_load(UNIT_TESTS.read_text("utf-8"))
    del tests["tests"][1:]
    tests["tests"][0]["alert_rule_test"][1]["eval_time"] = "0m"  # Before the alert may fire.
    (tmp_path / UNIT_TESTS.name).write_text(yaml.safe_dump(tests))
    with pytest.raises(AssertionError, match="FAILED"):
        promtool("test", "rules", UNIT_TESTS.name, folder=tmp_path)


def test_alerts_say_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert {"summary", "description"} == rule["annotations"].keys(), rule["alert"]


def test_the_job_is_the_one_that_the_alerts_name() -> None:
    jobs = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    assert [job["job_name"] for job in jobs] == ["unibus"]
    matchers = [selector.matchers for rule in rules() for selector in parse(rule["expr"]).selectors]
    assert {each["job"] for each in matchers if "job" in each} == {("=", "unibus")}
