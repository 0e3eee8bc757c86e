"""Rules of subscriptions over HTTP."""

import msgspec
import pytest

from tests.unit.endpoints.http.administration.conftest import ATOM, Client, described
from unibus.bus.api.broker import Broker
from unibus.core.filters.actions import SqlRuleAction
from unibus.core.filters.filters import CorrelationFilter, FalseFilter, SqlFilter, TrueFilter
from unibus.core.lifecycle.state.rules import Rule

JSON = {"content-type": "application/json", "accept": "application/json"}
UPDATE = {"if-match": "*"}
RULES = "/t/subscriptions/s/rules"


@pytest.fixture(autouse=True)
async def _subscription(broker: Broker) -> None:
    await broker.create("topic", "t")
    await broker.create("subscription", "t/Subscriptions/s")


def sql(expression: str) -> str:
    return described(
        "RuleDescription", f"<Filter i:type='SqlFilter'><SqlExpression>{expression}</SqlExpression></Filter>"
    )


async def test_create_update_get_delete(http: Client, broker: Broker) -> None:
    made = await http("PUT", f"{RULES}/r", sql("a = 1"))
    assert made.status == 201
    assert made.xml().findtext(f"{ATOM}id") == "http://bus.test:5300/t/Subscriptions/s/Rules/r"
    assert made.xml().findtext(".//{*}SqlExpression") == "a = 1"
    assert (await http("PUT", f"{RULES}/R", sql("a = 2"))).status == 409
    assert (await http("PUT", f"{RULES}/r", sql("a = 3"), UPDATE)).status == 200
    assert (await http("PUT", f"{RULES}/other", sql("a = 3"), UPDATE)).status == 404
    assert await broker.rule("t/Subscriptions/s", "r") == Rule("r", SqlFilter("a = 3"))
    assert (await http("GET", f"{RULES}/R")).xml().findtext(".//{*}SqlExpression") == "a = 3"
    listed = (await http("GET", RULES)).xml()
    assert [each.findtext(f"{ATOM}title") for each in listed.findall(f"{ATOM}entry")] == ["$Default", "r"]
    assert (await http("DELETE", f"{RULES}/$Default")).status == 200
    assert (await http("DELETE", f"{RULES}/$Default")).status == 404
    assert (await http("GET", f"{RULES}/$Default")).status == 404


async def test_the_seeds_address(http: Client) -> None:
    path = "/servicebus/topics/t/subscriptions/s/rules"
    assert (await http("PUT", f"{path}/r", sql("a = 1"))).status == 201
    assert (await http("GET", f"{path}?$skip=1&$top=1")).xml().findtext(f"{ATOM}entry/{ATOM}title") == "r"
    assert (await http("DELETE", f"{path}/r")).status == 200
    assert (await http("PUT", f"{path}/empty")).status == 201


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/none/subscriptions/s/rules/r", sql("a = 1"), 404),
        (f"{RULES}/r", sql("a ="), 400),
        (f"{RULES}/r", sql("a = @x"), 400),
        (f"{RULES}/r", described("QueueDescription"), 400),
        (f"{RULES}/{'x' * 51}", sql("a = 1"), 400),
        (f"{RULES}/r", described("RuleDescription", "<Name>another</Name>"), 400),
        (f"{RULES}/r", described("RuleDescription", "<Filter i:type='CorrelationFilter'/>"), 400),
    ],
)
async def test_rules_that_are_refused(http: Client, broker: Broker, path: str, body: str, status: int) -> None:
    refused = await http("PUT", path, body)
    assert refused.status == status
    assert refused.detail()
    assert [rule.name for rule in await broker.rules("t/Subscriptions/s")] == ["$Default"]


async def test_a_value_that_is_none_of_its_type_is_named(http: Client) -> None:
    pair = "<KeyValueOfstringanyType><Key>k</Key><Value i:type='x:int'>much</Value></KeyValueOfstringanyType>"
    inner = f"<Filter i:type='CorrelationFilter'><Properties>{pair}</Properties></Filter>"
    refused = await http("PUT", f"{RULES}/r", described("RuleDescription", inner))
    assert refused.status == 400
    assert "'k' is 'much', which is not of type int" in refused.detail()


async def test_parameters_keep_the_case_of_their_names(http: Client) -> None:
    pair = "<KeyValueOfstringanyType><Key>@LimIt</Key><Value i:type='x:int'>1</Value></KeyValueOfstringanyType>"
    condition = f"<SqlExpression>a = @limit</SqlExpression><Parameters>{pair}</Parameters>"
    action = f"<SqlExpression>SET a = @LIMIT</SqlExpression><Parameters>{pair}</Parameters>"
    inner = f"<Filter i:type='SqlFilter'>{condition}</Filter><Action i:type='SqlRuleAction'>{action}</Action>"
    assert (await http("PUT", f"{RULES}/r", described("RuleDescription", inner))).status == 201
    found = (await http("GET", f"{RULES}/r")).xml()
    assert [each.text for each in found.iterfind(".//{*}Key")] == ["@LimIt", "@LimIt"]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ('{"filter": true}', Rule("r", TrueFilter())),
        ('{"filter": false}', Rule("r", FalseFilter())),
        ('{"filter": "a = 1", "action": "SET b = 2"}', Rule("r", SqlFilter("a = 1"), SqlRuleAction("SET b = 2"))),
        (
            '{"filter": {"sql": "a = @Limit", "parameters": {"limIT": 1}}, '
            '"action": {"sql": "SET b = @NewB", "parameters": {"NewB": "z"}}}',
            Rule("r", SqlFilter("a = @Limit", {"limit": 1}), SqlRuleAction("SET b = @NewB", {"newb": "z"})),
        ),
        (
            '{"filter": {"subject": "s", "properties": {"n": 1.5}}}',
            Rule("r", CorrelationFilter(properties={"n": 1.5}, subject="s")),
        ),
    ],
)
async def test_json_both_ways(http: Client, broker: Broker, given: str, rule: Rule) -> None:
    made = await http("PUT", f"{RULES}/r", given, JSON)
    assert made.status == 201
    assert await broker.rule("t/Subscriptions/s", "r") == rule
    document = made.document()
    assert {name: document[name] for name in document if name in ("filter", "action")} == msgspec.json.decode(given)
    assert (await http("PUT", f"{RULES}/r", '{"fliter": true}', JSON)).status == 400
