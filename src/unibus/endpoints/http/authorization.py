"""Authorization of HTTP requests: takes the credentials of a request, and lets `core/access` decide.

    Authorization: SharedAccessSignature sr=…    every operation
    Authorization: Basic (rule name, key)        pages for operators' browsers: metrics, documents, the console `/`
    none                                         those pages, from this machine, while the well-known key is accepted

The rules are those of the store and of the configuration, and the rule of `FILE.serve.json` for commands on this
machine.

The pages only read: a browser attaches Basic credentials automatically, also to a request from another site's page.

Invariants: `core/access` makes every decision, with the current rules; a refused caller reads the same text whether a
rule exists or not. A verified token is cached, because verifying a signature costs more than the rest of a request. The
cache entry is void when the rules change at the scope of the token's rule, so a replaced or removed key is refused at
the next request.
"""

import base64
import binascii
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from unibus.bus.api.broker import Broker
from unibus.bus.management.jobs.job_run import BrokerHolder
from unibus.core.access.connection import Credentials
from unibus.core.access.decide import Access, Claims, is_for
from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule, accepts_well_known_key, well_known_rule
from unibus.core.access.scope import segments_of
from unibus.endpoints.http.peers import TrustedPeers, is_local_host, is_private_host
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.routing import CONSOLE_PAGES, OPERATOR_PAGES, resource_of
from unibus.endpoints.http.settings import HttpSettings
from unibus.errors import EntityNotFound, Unauthorised
from unibus.limits import ACCESS_RULES_MAX, ACCESS_TOKEN_CHARS_MAX

log = logging.getLogger("unibus.http")

VERIFIED_MAX: Final = 4_096
"""Verified tokens in the cache; a client uses one for about an hour. The oldest entry is evicted first."""

FORWARD_HEADERS: Final = ("servicebussupplementaryauthorization", "servicebusdlqsupplementaryauthorization")
"""Tokens for the targets of forwarding, and of forwarding dead-lettered messages, as Azure's clients send them."""

_KEY_HINT: Final = "send a shared access signature of an authorization rule; `unibus access token` creates one"


class _Verified(NamedTuple):
    """The claims of a verified token, and the rules that verified it: those of the namespace (`access`), and those of
    the entity `home` on which the token's rule is."""

    claims: Claims
    access: Access
    home: str
    rules: Sequence[AuthorizationRule]


class SasAuthorization:
    """Authorizes by the rules of the namespace (from the store and the configuration) and of the entities."""

    def __init__(self, serving: BrokerHolder, settings: HttpSettings) -> None:
        self._serving: Final = serving
        self._settings: Final = settings
        self._peers: Final = TrustedPeers(settings.allow_networks)
        self._verified: dict[str, _Verified] = {}
        self._stored: Sequence[AuthorizationRule] | None = None
        self._access = Access()
        self._public: Final = Access([well_known_rule()])
        self._local: Final = _local_access(settings)
        self.is_well_known_in_force = False

    def check(self, request: Request, right: Right, target: str) -> str:
        """Return the name of the rule that allows the request; Unauthorised or Forbidden otherwise."""
        broker = self._serving.broker
        access = self._current(broker)
        headers = request.headers
        text = headers.get("authorization")
        if text is None and self._is_open(request):
            return ""
        claims = self._claims(request, text, access, broker)
        if len(claims.scope) > len(segments_of(target)):
            # Azure's JavaScript client creates a token for each address that it requests: of a list, of a rule.
            target = resource_of(request.place)
        access.permit(claims, right, target, broker.now_ns())
        if right is Right.MANAGE:
            for name in FORWARD_HEADERS:
                if name in headers:
                    self._claims(request, headers[name], access, broker)
        return claims.rule

    def check_own_scope(self, request: Request, right: Right) -> str:
        """The same for the scope of the token, whatever that is; `viewer` then says what the caller may see."""
        claims = self._claims_for_own_scope(request, right)
        return "" if claims is None else claims.rule

    def viewer(self, request: Request, right: Right) -> Callable[[str], bool]:
        """A predicate: whether the caller has the right on an entity. Unauthorised or Forbidden if on none."""
        claims = self._claims_for_own_scope(request, right)
        return _all if claims is None or not claims.scope else partial(is_for, claims)

    def _claims_for_own_scope(self, request: Request, right: Right) -> Claims | None:
        """The claims of the caller; None for a page that needs no token here."""
        broker = self._serving.broker
        access = self._current(broker)
        text = request.headers.get("authorization")
        if text is None and self._is_open(request):
            return None
        claims = self._claims(request, text, access, broker)
        access.permit_own_scope(claims, right, broker.now_ns())
        return claims

    def check_forwarding(self, request: Request, forward_to: str, forward_dead_letters_to: str) -> None:
        """Forwarding also needs the right to manage its target. Names of entities, empty for none.

        The token for a target is in a header of its own; without it the token of the request has to cover the target.
        """
        broker = self._serving.broker
        access = self._current(broker)
        for target, header in zip((forward_to, forward_dead_letters_to), FORWARD_HEADERS, strict=True):
            if target:
                text = request.headers.get(header, request.headers.get("authorization"))
                claims = self._claims(request, text, access, broker)
                access.permit(claims, Right.MANAGE, target, broker.now_ns())

    def _is_open(self, request: Request) -> bool:
        shape = request.place.shape
        if shape not in OPERATOR_PAGES or not self.is_well_known_in_force:
            return False
        if shape in CONSOLE_PAGES and not is_local_host(request.headers.get("host", "")):
            return False  # Stricter than _may_be_rebound: only browsers request these pages, so no program breaks.
        return not _may_be_rebound(request) and self._peers.is_local(request.peer, request.headers)

    def _claims(self, request: Request, text: str | None, access: Access, broker: Broker) -> Claims:
        if text is None:
            raise Unauthorised("the request has no token", _KEY_HINT)
        if self._local is not None and self._settings.local_rule_name in text:
            return self._local_claims(request, text, self._local, broker)
        verified = self._verified.get(text)
        if verified is not None and verified.access is access:
            if not verified.home or _rules_on(broker, verified.home) == verified.rules:
                claims = verified.claims
                if claims.is_well_known:
                    self._check_origin(request)
                return claims
        return self._identified(request, text, access, broker)

    def _local_claims(self, request: Request, text: str, local: Access, broker: Broker) -> Claims:
        """The rule of `FILE.serve.json`. Its name is random, so only a reader of that file gets here."""
        claims = local.identify(_credential(request, text), broker.now_ns())
        if not self._peers.is_local(request.peer, request.headers):
            raise Unauthorised("the token is not valid here", _KEY_HINT)
        return claims

    def _identified(self, request: Request, text: str, access: Access, broker: Broker) -> Claims:
        self._verified.pop(text, None)
        now_ns = broker.now_ns()
        credential = _credential(request, text)
        try:
            claims = access.identify(credential, now_ns)
        except Unauthorised:
            self._explain_public_key(credential, now_ns)
            raise
        if claims.is_well_known:
            self._check_origin(request)
        if isinstance(credential, str):
            home = "/".join(claims.home)
            self._remember(text, _Verified(claims, access, home, _rules_on(broker, home) if home else ()))
        return claims

    def _remember(self, text: str, verified: _Verified) -> None:
        if len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[text] = verified

    def _check_origin(self, request: Request) -> None:
        if not self.is_well_known_in_force or not self._peers.is_trusted(request.peer, request.headers):
            raise _public_key_refused()
        if _may_be_rebound(request):
            raise _public_key_refused()

    def _explain_public_key(self, credential: str | Credentials, now_ns: int) -> None:
        """Explain a refused well-known key, with the same text whether it is accepted elsewhere or not: the answer
        reveals nothing about this server."""
        try:
            self._public.identify(credential, now_ns)
        except Unauthorised:
            return
        raise _public_key_refused()

    def _current(self, broker: Broker) -> Access:
        """The access of the current rules. When the namespace's rules have changed, the token cache is cleared."""
        stored = broker.namespace_rules()
        if stored is not self._stored and (self._stored is None or stored != self._stored):
            rules, self.is_well_known_in_force = namespace_rules(stored, self._settings)
            self._access = Access(rules, self._rules_of, self._settings.hosts, self._settings.token_skew_s)
            self._verified.clear()
        self._stored = stored
        return self._access

    def _rules_of(self, name: str) -> Sequence[AuthorizationRule]:
        # Read for each call: a server that reopens its store has a new broker.
        return self._serving.broker.access_rules(name)


def _local_access(settings: HttpSettings) -> Access | None:
    """Separate from the rules of the namespace: it does not count towards ACCESS_RULES_MAX, and does not switch the
    well-known key off."""
    if not settings.local_key:
        return None
    key = settings.local_key
    rule = AuthorizationRule(settings.local_rule_name, frozenset(Right), key, key)
    return Access([rule], None, settings.hosts, settings.token_skew_s)


def namespace_rules(
    stored: Sequence[AuthorizationRule], settings: HttpSettings
) -> tuple[list[AuthorizationRule], bool]:
    """The effective rules, and whether the well-known key is accepted. Stored rules first, then the configured ones.

    The key is accepted while no rule has a key of its own, and if the configuration has a rule with that key; but never
    if the setting `well_known_key` is off.
    """
    rules = list(stored)
    for rule in settings.authorization_rules:
        if _is_named(rule.name, rules):
            continue
        if len(rules) == ACCESS_RULES_MAX:
            log.warning(
                "the configured rule %s is ignored: the namespace already has %d rules, the most that are allowed; "
                "remove one: `unibus access remove`",
                rule.name,
                len(rules),
            )
            break
        rules.append(rule)
    is_accepted = settings.well_known_key and accepts_well_known_key(stored, rules[len(stored) :])
    if not rules:
        rules.append(well_known_rule())
    return rules, is_accepted


def _all(name: str) -> bool:
    return True


def _may_be_rebound(request: Request) -> bool:
    """Whether this may be a script of a web page whose host name was made to resolve to this machine (DNS rebinding).

    The script runs in a browser on a trusted machine, and can sign with a key that is no secret. With TLS the browser
    rejects our certificate for that host name. Without TLS the Host header, which every browser sends, reveals it.
    """
    host = request.headers.get("host")
    return host is not None and not request.is_encrypted and not is_private_host(host)


def _is_named(name: str, rules: Sequence[AuthorizationRule]) -> bool:
    return name.casefold() in [rule.name.casefold() for rule in rules]


def _rules_on(broker: Broker, home: str) -> Sequence[AuthorizationRule]:
    try:
        return broker.access_rules(home)
    except EntityNotFound:
        return ()


def _credential(request: Request, text: str) -> str | Credentials:
    scheme, _, rest = text.partition(" ")
    scheme = scheme.casefold()
    if scheme == "bearer":
        raise Unauthorised("Bearer tokens are not accepted: Microsoft Entra ID is not supported", _KEY_HINT)
    if scheme != "basic":
        return text
    if request.place.shape not in OPERATOR_PAGES:
        raise Unauthorised("HTTP Basic is only accepted for metrics, documents and the console", _KEY_HINT)
    return _basic(rest.strip())


def _basic(encoded: str) -> Credentials:
    try:
        if len(encoded) > ACCESS_TOKEN_CHARS_MAX:
            raise ValueError
        name, found, key = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        # Without the cause, which may quote the key.
        raise Unauthorised("the HTTP Basic credentials cannot be read", "send the base64 of RULE:KEY") from None
    if not found or not name or not key:
        raise Unauthorised("the HTTP Basic credentials cannot be read", "send the base64 of RULE:KEY")
    return Credentials(name, key)


def _public_key_refused() -> Unauthorised:
    return Unauthorised(
        "the emulator's well-known key is not accepted here",
        "it is accepted from the server's machine and from the networks of --allow-networks, while the namespace has "
        "no rules of its own, and without TLS only by a private host name such as localhost; else create a token with "
        "a rule of your own: `unibus access token --connection-string …`",
    )
