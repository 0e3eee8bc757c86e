"""The credentials of HTTP: which are accepted where, from whom, and for how long."""

import base64
import dataclasses
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from tests.unit.endpoints.http.namespace import (
    ALL,
    ELSEWHERE,
    LATER_S,
    LOOPBACK,
    NOW_S,
    Holding,
    Namespace,
    request,
    rule,
    token,
)
from unibus.core.access import token as tokens
from unibus.core.access.rights import Right
from unibus.core.access.rules import WELL_KNOWN_KEY, WELL_KNOWN_NAME, well_known_rule
from unibus.endpoints.http.authorization import VERIFIED_MAX, SasAuthorization, namespace_rules
from unibus.endpoints.http.settings import HttpSettings
from unibus.errors import AccessRefused, ConfigInvalid, Forbidden, StoreUnavailable, Unauthorised

ROOT = rule("root", ALL, 1)
SENDER = rule("sender", ["Send"], 2)
LISTENER = rule("listener", ["Listen"], 3)
OWN = rule("own", ["Send", "Listen"], 4)
EMULATOR = token("", well_known_rule())
PAGES = ["/metrics", "/servicebus/metrics", "/docs", "/openapi.json", "/servicebus/docs", "/Metrics/"]


def made(namespace: Namespace, **settings: Any) -> SasAuthorization:
    return SasAuthorization(cast(Any, Holding(namespace)), HttpSettings(**settings))


def basic(name: str, key: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{key}".encode()).decode()


@contextmanager
def signatures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Every signature that is computed meanwhile."""
    computed: list[bytes] = []
    genuine = hmac.digest

    def digest(key: bytes, message: bytes, kind: str) -> bytes:
        computed.append(message)
        return genuine(key, message, kind)

    monkeypatch.setattr(tokens.hmac, "digest", digest)
    yield computed
    monkeypatch.undo()


# Tokens


def test_a_token_opens_what_its_rule_allows() -> None:
    authorization = made(Namespace([ROOT, SENDER], {"q1": (OWN,)}))
    assert authorization.check(request(authorization=token("", ROOT)), Right.MANAGE, "q1") == "root"
    assert authorization.check(request(authorization=token("q1", SENDER)), Right.SEND, "q1") == "sender"
    assert authorization.check(request(authorization=token("q1", OWN)), Right.LISTEN, "Q1/$DeadLetterQueue") == "own"
    with pytest.raises(Forbidden):
        authorization.check(request(authorization=token("q1", SENDER)), Right.LISTEN, "q1")
    with pytest.raises(Forbidden):
        authorization.check(request(authorization=token("q1", SENDER)), Right.SEND, "q10")
    with pytest.raises(Unauthorised):
        authorization.check(request(authorization=token("q10", OWN)), Right.SEND, "q10")


def test_without_a_token_and_without_rules_everything_is_refused() -> None:
    for authorization in (made(Namespace()), made(Namespace([ROOT]))):
        with pytest.raises(Unauthorised):
            authorization.check(request(), Right.SEND, "q1")


def test_bearer_tokens_are_refused_with_a_reason() -> None:
    with pytest.raises(Unauthorised, match="Entra ID is not supported"):
        made(Namespace([ROOT])).check(request(authorization="Bearer eyJ0eXAi"), Right.SEND, "q1")


def test_a_refusal_does_not_tell_which_rules_exist() -> None:
    authorization = made(Namespace([ROOT, SENDER.switched(False)], {"q1": (OWN,)}))
    forged = [
        token("q1", dataclasses.replace(ROOT, primary_key=LISTENER.primary_key)),
        token("q1", dataclasses.replace(SENDER, primary_key=LISTENER.primary_key)),
        token("q1", SENDER),
        token("q1", LISTENER),
        token("nowhere", OWN),
    ]
    texts = set()
    for text in forged:
        with pytest.raises(Unauthorised) as refused:
            authorization.check(request(authorization=text), Right.SEND, "q1")
        texts.add(str(refused.value))
    assert len(texts) == 1


# The memory of verified tokens


def test_a_repeated_token_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    authorization = made(Namespace([ROOT], {"q1": (OWN,)}))
    for text in (token("", ROOT), token("q1", OWN)):
        with signatures(monkeypatch) as computed:
            authorization.check(request(authorization=text), Right.SEND, "q1")
            first = len(computed)
            authorization.check(request(authorization=text), Right.LISTEN, "q1")
        assert first > 0
        assert len(computed) == first


def test_a_remembered_token_is_still_checked_for_right_scope_and_time() -> None:
    namespace = Namespace([SENDER])
    authorization = made(namespace)
    text = token("q1", SENDER)
    authorization.check(request(authorization=text), Right.SEND, "q1")
    with pytest.raises(Forbidden):
        authorization.check(request(authorization=text), Right.LISTEN, "q1")
    with pytest.raises(Forbidden):
        authorization.check(request(authorization=text), Right.SEND, "q2")
    namespace.now_s = LATER_S
    with pytest.raises(Unauthorised, match="expired"):
        authorization.check(request(authorization=text), Right.SEND, "q1")


@pytest.mark.parametrize("change", ["rotated twice", "disabled", "removed"])
@pytest.mark.parametrize("place", ["namespace", "entity"])
def test_the_next_request_after_a_change_of_the_rules_is_refused(place: str, change: str) -> None:
    namespace = Namespace([ROOT, OWN] if place == "namespace" else [ROOT], {"q1": (OWN,) if place == "entity" else ()})
    authorization = made(namespace)
    text = token("q1", OWN)
    assert authorization.check(request(authorization=text), Right.SEND, "q1") == "own"
    changed = {
        "rotated twice": [OWN.rotated(bytes(range(32))).rotated(bytes(range(1, 33)))],
        "disabled": [OWN.switched(False)],
        "removed": [],
    }[change]
    if place == "namespace":
        namespace.rules = [ROOT, *changed]
    else:
        namespace.entities = {"q1": changed}
    with pytest.raises(Unauthorised):
        authorization.check(request(authorization=text), Right.SEND, "q1")


def test_a_key_that_was_rotated_once_still_counts_as_the_secondary() -> None:
    namespace = Namespace([OWN])
    authorization = made(namespace)
    authorization.check(request(authorization=token("q1", OWN)), Right.SEND, "q1")
    namespace.rules = [OWN.rotated(bytes(range(32)))]
    assert authorization.check(request(authorization=token("q1", OWN)), Right.SEND, "q1") == "own"


def test_rights_that_were_taken_away_are_gone_for_tokens_that_were_remembered() -> None:
    namespace = Namespace([ROOT, OWN])
    authorization = made(namespace)
    authorization.check(request(authorization=token("q1", OWN)), Right.SEND, "q1")
    namespace.rules = [ROOT, dataclasses.replace(OWN, rights=frozenset({Right.LISTEN}))]
    with pytest.raises(Forbidden):
        authorization.check(request(authorization=token("q1", OWN)), Right.SEND, "q1")


def test_an_entity_that_was_deleted_takes_its_tokens_along() -> None:
    namespace = Namespace([ROOT], {"q1": (OWN,)})
    authorization = made(namespace)
    authorization.check(request(authorization=token("q1", OWN)), Right.SEND, "q1")
    namespace.entities = {}
    with pytest.raises(Unauthorised):
        authorization.check(request(authorization=token("q1", OWN)), Right.SEND, "q1")


def test_the_memory_is_bounded_and_holds_no_refused_token() -> None:
    authorization = made(Namespace([ROOT]))
    for number in range(VERIFIED_MAX + 10):
        authorization.check(request(authorization=token("", ROOT, LATER_S + number)), Right.SEND, "q1")
    assert len(authorization._verified) == VERIFIED_MAX
    before = set(authorization._verified)
    with pytest.raises(Unauthorised):
        authorization.check(request(authorization=token("", SENDER)), Right.SEND, "q1")
    assert set(authorization._verified) == before


def test_a_store_that_is_opened_again_has_its_own_rules() -> None:
    holding = Holding(Namespace([ROOT], {"q1": (OWN,)}))
    authorization = SasAuthorization(cast(Any, holding), HttpSettings())
    authorization.check(request(authorization=token("q1", OWN)), Right.SEND, "q1")
    holding.broker = Namespace([ROOT], {"q1": ()})
    with pytest.raises(Unauthorised):
        authorization.check(request(authorization=token("q1", OWN)), Right.SEND, "q1")


def test_without_a_store_nothing_is_decided() -> None:
    class Reopening:
        @property
        def broker(self) -> object:
            raise StoreUnavailable("the store is being opened again")

    authorization = SasAuthorization(cast(Any, Reopening()), HttpSettings(authorization_rules=(ROOT,)))
    with pytest.raises(StoreUnavailable):
        authorization.check(request(authorization=token("", ROOT)), Right.SEND, "q1")


# The well-known key


@pytest.mark.parametrize("peer", [LOOPBACK, "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_on_this_machine_a_namespace_without_rules_takes_the_well_known_key(peer: str) -> None:
    authorization = made(Namespace())
    assert authorization.check(request(authorization=EMULATOR, peer=peer), Right.MANAGE, "q1") == WELL_KNOWN_NAME


@pytest.mark.parametrize("peer", [ELSEWHERE, "10.0.0.1", "::ffff:10.0.0.1", "fe80::1", "", "testclient", "127.0.0.1.x"])
def test_from_elsewhere_it_is_refused_also_after_a_local_peer_has_used_it(peer: str) -> None:
    authorization = made(Namespace())
    authorization.check(request(authorization=EMULATOR, peer=LOOPBACK), Right.SEND, "q1")
    with pytest.raises(Unauthorised, match="well-known key is not accepted here"):
        authorization.check(request(authorization=EMULATOR, peer=peer), Right.SEND, "q1")


def test_networks_that_are_named_are_trusted_with_it() -> None:
    authorization = made(Namespace(), allow_networks=("172.16.0.0/12", "fd00::/8"))
    for peer in ("172.17.0.1", "::ffff:172.17.0.1", "fd00::7"):
        assert authorization.check(request(authorization=EMULATOR, peer=peer), Right.SEND, "q1")
    with pytest.raises(Unauthorised):
        authorization.check(request(authorization=EMULATOR, peer="192.168.0.1"), Right.SEND, "q1")
    with pytest.raises(ConfigInvalid):
        HttpSettings(allow_networks=("172.16.0.0/33",))


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_a_request_that_a_local_proxy_passed_on_is_not_local(header: str) -> None:
    passed_on = request(authorization=EMULATOR, peer=LOOPBACK, headers={header: "for=203.0.113.9"})
    with pytest.raises(Unauthorised):
        made(Namespace()).check(passed_on, Right.SEND, "q1")
    assert made(Namespace(), allow_networks=("127.0.0.0/8",)).check(passed_on, Right.SEND, "q1")


PRIVATE = [
    *("localhost:5300", "127.0.0.1:5300", "[::1]:5300", "bus.localhost.", "unibus:5300", "BUS", "192.168.7.4"),
    *("host.docker.internal:5300", "bus.default.svc.cluster.local", "[fe80::1]"),
]
PUBLIC = ["evil.example:5300", "127.0.0.1.evil.example", "localhost.evil.example", "", "[evil]:1"]


@pytest.mark.parametrize("host", PRIVATE)
def test_the_well_known_key_is_accepted_by_private_names(host: str) -> None:
    authorization = made(Namespace(), allow_networks=("203.0.113.0/24",))
    for peer in (LOOPBACK, "203.0.113.9"):
        asked = request(authorization=EMULATOR, peer=peer, headers={"Host": host})
        assert authorization.check(asked, Right.SEND, "q1") == WELL_KNOWN_NAME
    assert authorization.check(request("/metrics", peer=LOOPBACK, headers={"Host": host}), Right.LISTEN, "") == ""


@pytest.mark.parametrize("host", PUBLIC)
def test_a_site_that_was_made_to_lead_here_cannot_use_the_well_known_key(host: str) -> None:
    """DNS rebinding: the script of a web page, in a browser on this machine, signs with the key that is no secret."""
    authorization = made(Namespace(), allow_networks=("203.0.113.0/24",))
    authorization.check(request(authorization=EMULATOR, peer=LOOPBACK), Right.SEND, "q1")  # Remembered from now on.
    for peer in (LOOPBACK, "203.0.113.9"):
        asked = request(authorization=EMULATOR, peer=peer, headers={"Host": host})
        with pytest.raises(Unauthorised, match="well-known key is not accepted here"):
            authorization.check(asked, Right.SEND, "q1")
    for path in PAGES:
        with pytest.raises(Unauthorised):
            authorization.check(request(path, peer=LOOPBACK, headers={"Host": host}), Right.LISTEN, "")


def test_a_key_of_ones_own_and_tls_may_have_any_name() -> None:
    host = {"Host": "bus.example.com"}
    asked = request(authorization=token("", ROOT), headers=host)
    assert made(Namespace([ROOT])).check(asked, Right.SEND, "q1") == ROOT.name
    encrypted = request(authorization=EMULATOR, peer=LOOPBACK, headers=host)
    encrypted.scope["scheme"] = "https"
    assert made(Namespace()).check(encrypted, Right.SEND, "q1") == WELL_KNOWN_NAME


def test_rules_of_its_own_end_the_well_known_key() -> None:
    for namespace, given in ((Namespace([SENDER]), ()), (Namespace(), (SENDER,))):
        with pytest.raises(Unauthorised):
            made(namespace, authorization_rules=given).check(
                request(authorization=EMULATOR, peer=LOOPBACK), Right.SEND, "q1"
            )


def test_a_configuration_that_names_the_well_known_key_keeps_it_for_trusted_peers() -> None:
    keeping = made(Namespace([SENDER]), authorization_rules=(well_known_rule(),))
    assert keeping.check(request(authorization=EMULATOR, peer=LOOPBACK), Right.SEND, "q1") == WELL_KNOWN_NAME
    with pytest.raises(Unauthorised):
        keeping.check(request(authorization=EMULATOR, peer=ELSEWHERE), Right.SEND, "q1")
    replaced = made(Namespace([rule(WELL_KNOWN_NAME, ALL, 8)]), authorization_rules=(well_known_rule(),))
    with pytest.raises(Unauthorised):
        replaced.check(request(authorization=EMULATOR, peer=LOOPBACK), Right.SEND, "q1")


def test_a_rule_that_is_added_ends_it_at_once() -> None:
    namespace = Namespace()
    authorization = made(namespace)
    authorization.check(request(authorization=EMULATOR, peer=LOOPBACK), Right.SEND, "q1")
    namespace.rules = [SENDER]
    with pytest.raises(Unauthorised):
        authorization.check(request(authorization=EMULATOR, peer=LOOPBACK), Right.SEND, "q1")


def test_a_stored_rule_with_the_well_known_key_counts_no_more_than_the_key() -> None:
    mixed = dataclasses.replace(ROOT, secondary_key=WELL_KNOWN_KEY)
    text = token("", ROOT, key=WELL_KNOWN_KEY)
    authorization = made(Namespace([mixed]))
    assert authorization.check(request(authorization=token("", ROOT)), Right.SEND, "q1")
    with pytest.raises(Unauthorised):
        authorization.check(request(authorization=text, peer=LOOPBACK), Right.SEND, "q1")
    on_entity = made(Namespace([], {"q1": (mixed,)}))
    with pytest.raises(Unauthorised):
        on_entity.check(request(authorization=token("q1", ROOT, key=WELL_KNOWN_KEY)), Right.SEND, "q1")


def test_the_refusal_of_the_well_known_key_is_the_same_whether_it_is_in_force() -> None:
    texts = set()
    for namespace in (Namespace(), Namespace([ROOT])):
        with pytest.raises(Unauthorised) as refused:
            made(namespace).check(request(authorization=EMULATOR), Right.SEND, "q1")
        texts.add(str(refused.value))
    assert len(texts) == 1


# Rules of the configuration


def test_the_configuration_adds_rules_and_never_replaces_stored_ones() -> None:
    impostor = rule("ROOT", ALL, 9)
    authorization = made(Namespace([ROOT]), authorization_rules=(impostor, SENDER))
    assert authorization.check(request(authorization=token("", ROOT)), Right.SEND, "q1")
    assert authorization.check(request(authorization=token("", SENDER)), Right.SEND, "q1")
    with pytest.raises(Unauthorised):
        authorization.check(request(authorization=token("", impostor)), Right.SEND, "q1")


def test_more_rules_than_a_namespace_may_have_leave_the_stored_ones_in_force(caplog: pytest.LogCaptureFixture) -> None:
    stored = [rule(f"r{number}", ["Send"], 20 + number) for number in range(12)]
    rules, in_force = namespace_rules(stored, HttpSettings(authorization_rules=(ROOT,)))
    assert rules == stored
    assert not in_force
    assert "configured rule root is ignored" in caplog.text
    assert ROOT.primary_key not in caplog.text


# The pages of operators


@pytest.mark.parametrize("path", PAGES)
def test_pages_of_operators_take_http_basic(path: str) -> None:
    authorization = made(Namespace([ROOT, LISTENER, SENDER]))
    page = lambda given: request(path, given, method="GET")  # noqa: E731
    assert authorization.check(page(basic("listener", LISTENER.secondary_key)), Right.LISTEN, "") == "listener"
    assert authorization.check(page(token("", ROOT)), Right.LISTEN, "") == "root"
    with pytest.raises(Forbidden):
        authorization.check(page(basic("sender", SENDER.primary_key)), Right.LISTEN, "")
    for wrong in (basic("listener", ROOT.primary_key), basic("", ""), "Basic !", "Basic", basic("listener", "")):
        with pytest.raises(Unauthorised) as refused:
            authorization.check(page(wrong), Right.LISTEN, "")
        assert ROOT.primary_key not in str(refused.value)


def test_elsewhere_http_basic_is_refused() -> None:
    with pytest.raises(Unauthorised, match="only accepted for metrics"):
        made(Namespace([ROOT])).check(request(authorization=basic("root", ROOT.primary_key)), Right.SEND, "q1")


@pytest.mark.parametrize("path", PAGES)
def test_pages_of_operators_are_open_on_this_machine_while_the_well_known_key_is_in_force(path: str) -> None:
    authorization = made(Namespace())
    assert authorization.check(request(path, peer=LOOPBACK, method="GET"), Right.LISTEN, "") == ""
    assert authorization.check(request(path, basic(WELL_KNOWN_NAME, WELL_KNOWN_KEY), LOOPBACK, "GET"), Right.LISTEN, "")
    refused = [
        (authorization, request(path, peer=ELSEWHERE, method="GET")),
        (authorization, request(path, peer=LOOPBACK, method="GET", headers={"X-Forwarded-For": ELSEWHERE})),
        (authorization, request(path, basic("a", "b"), LOOPBACK, "GET")),
        (made(Namespace([ROOT])), request(path, peer=LOOPBACK, method="GET")),
    ]
    for refusing, each in refused:
        with pytest.raises(Unauthorised):
            refusing.check(each, Right.LISTEN, "")


def test_other_paths_are_not_open_on_this_machine() -> None:
    for path in ("/q1/messages", "/metrics/messages", "/unibus/v1/reset", "/$Resources/queues"):
        with pytest.raises(Unauthorised):
            made(Namespace()).check(request(path, peer=LOOPBACK), Right.LISTEN, "")


# Forwarding


def test_forwarding_needs_the_right_to_manage_its_target() -> None:
    manage_q1 = rule("m1", ALL, 11)
    manage_q2 = rule("m2", ALL, 12)
    send_q2 = rule("s2", ["Send"], 13)
    authorization = made(Namespace([ROOT], {"q1": (manage_q1,), "q2": (manage_q2, send_q2)}))
    own = token("q1", manage_q1)
    authorization.check_forwarding(request("/q1", token("", ROOT)), "q2", "q3")
    authorization.check_forwarding(request("/q1", own), "", "")
    with_target = {"ServiceBusSupplementaryAuthorization": token("q2", manage_q2)}
    authorization.check_forwarding(request("/q1", own, headers=with_target), "q2", "")
    for headers in ({}, {"ServiceBusSupplementaryAuthorization": token("q2", send_q2)}):
        with pytest.raises(Forbidden):
            authorization.check_forwarding(request("/q1", own, headers=headers), "q2", "")
    with pytest.raises(Forbidden):
        authorization.check_forwarding(request("/q1", own, headers=with_target), "", "q2")
    for_dead = {"ServiceBusDlqSupplementaryAuthorization": token("q2", manage_q2)}
    authorization.check_forwarding(request("/q1", own, headers=for_dead), "", "q2")


@pytest.mark.parametrize("header", ["ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization"])
def test_a_supplementary_token_is_verified_wherever_it_comes_with_a_change(header: str) -> None:
    authorization = made(Namespace([ROOT]))
    for wrong in (token("q2", SENDER), "Bearer x", "nonsense", token("q2", ROOT, NOW_S)):
        with pytest.raises(AccessRefused):
            authorization.check(request("/q1", token("", ROOT), headers={header: wrong}), Right.MANAGE, "q1")
    good = request("/q1", token("", ROOT), headers={header: token("q2", ROOT)})
    assert authorization.check(good, Right.MANAGE, "q1") == "root"


# Tokens for one address, as Azure's JavaScript client makes them: the whole URL of each request, with its query

ADDRESSES = [
    ("/$Resources/queues", "$resources/queues?api-version=2021-05&%24skip=0", ""),
    ("/$Resources/topics", "$resources/topics?api-version=2021-05", ""),
    ("/$namespaceinfo", "$namespaceinfo?api-version=2021-05", ""),
    ("/q1", "q1?api-version=2021-05", "q1"),
    ("/t/Subscriptions", "t/subscriptions/?api-version=2021-05", "t"),
    ("/t/Subscriptions/s/Rules", "t/subscriptions/s/rules?api-version=2021-05", "t/Subscriptions/s"),
    ("/t/Subscriptions/s/Rules/r", "t/subscriptions/s/rules/r?api-version=2021-05", "t/Subscriptions/s"),
]


@pytest.mark.parametrize(("path", "signed", "entity"), ADDRESSES)
def test_a_token_for_the_address_of_the_request(path: str, signed: str, entity: str) -> None:
    authorization = made(Namespace([ROOT]))
    assert authorization.check(request(path, token(signed, ROOT)), Right.MANAGE, entity) == "root"


@pytest.mark.parametrize(
    ("path", "signed", "entity"),
    [
        ("/$Resources/queues", "$resources/topics", ""),
        ("/$Resources/queues", "queues", ""),
        ("/$Resources/queues", "q1", ""),
        ("/$namespaceinfo", "$resources/queues", ""),
        ("/metrics", "metrics", ""),
        ("/q1", "q1/rules", "q1"),
        ("/t/Subscriptions", "t/subscriptions/s", "t"),
        ("/t/Subscriptions/s", "t/subscriptions/s/rules/r", "t/Subscriptions/s"),
        ("/t/Subscriptions/s/Rules/r", "t/subscriptions/s/rules/r2", "t/Subscriptions/s"),
        ("/t/Subscriptions/s/Rules/r", "t/subscriptions/s/rules/r/x", "t/Subscriptions/s"),
        # A queue may be called a/messages: its token is not one for the messages of a.
        ("/a/messages", "a/messages", "a"),
        ("/a/messages/head", "a/messages", "a"),
    ],
)
def test_a_token_for_another_address(path: str, signed: str, entity: str) -> None:
    authorization = made(Namespace([ROOT]))
    with pytest.raises(Forbidden, match="not for this entity"):
        authorization.check(request(path, token(signed, ROOT)), Right.LISTEN, entity)


def test_a_key_of_one_entity_signs_the_addresses_below_it() -> None:
    manager = rule("manager", ALL, 5)
    authorization = made(Namespace([ROOT], {"t": (manager,)}))
    for path, signed, entity in ADDRESSES[4:]:
        assert authorization.check(request(path, token(signed, manager)), Right.MANAGE, entity) == "manager"
    with pytest.raises(Unauthorised):
        authorization.check(request("/$Resources/queues", token("$resources/queues", manager)), Right.MANAGE, "")


# The rule of FILE.serve.json

LOCAL = rule("local-7", ALL, 7)


def local(namespace: Namespace) -> SasAuthorization:
    return made(namespace, local_rule_name=LOCAL.name, local_key=LOCAL.primary_key)


@pytest.mark.parametrize("rules", [[], [ROOT], [rule(f"r{at}", ALL, at) for at in range(20, 32)]], ids=len)
def test_the_local_rule_is_in_force_beside_those_of_the_store(rules: list[Any]) -> None:
    authorization = local(Namespace(rules))
    asked = request(authorization=token("", LOCAL), peer=LOOPBACK)
    assert authorization.check(asked, Right.MANAGE, "q1") == LOCAL.name
    assert authorization.check(asked, Right.LISTEN, "") == LOCAL.name


def test_the_local_rule_leaves_the_well_known_key_in_force() -> None:
    authorization = local(Namespace())
    assert authorization.check(request(authorization=EMULATOR, peer=LOOPBACK), Right.SEND, "q1")
    assert authorization.is_well_known_in_force


def test_the_local_rule_is_for_this_machine_only() -> None:
    authorization = local(Namespace())
    for asked in (
        request(authorization=token("", LOCAL)),
        request(authorization=token("", LOCAL), peer=LOOPBACK, headers={"X-Forwarded-For": "10.0.0.1"}),
    ):
        with pytest.raises(Unauthorised):
            authorization.check(asked, Right.LISTEN, "q1")


def test_a_token_that_only_names_the_local_rule_is_refused() -> None:
    authorization = local(Namespace([ROOT]))
    forged = token("", dataclasses.replace(LOCAL, primary_key=ROOT.primary_key))
    with pytest.raises(Unauthorised):
        authorization.check(request(authorization=forged, peer=LOOPBACK), Right.LISTEN, "q1")
    with pytest.raises(Unauthorised):
        made(Namespace()).check(request(authorization=token("", LOCAL), peer=LOOPBACK), Right.LISTEN, "q1")


def test_the_local_key_is_in_no_text_of_the_settings() -> None:
    settings = HttpSettings(local_rule_name=LOCAL.name, local_key=LOCAL.primary_key)
    assert LOCAL.primary_key not in repr(settings)
