# mypyc: compiled
"""The access decision: authenticate the caller, then authorise the operation.

`identify` returns Claims or raises Unauthorised; `permit` returns Granted or raises Forbidden.

A refused caller learns nothing about which rules exist: an unknown name, a disabled rule, a wrong key and a wrong host
have the same error and take the same work. Each check looks at two homes, the entity of the token's scope and the
namespace, and computes two signatures for each, with the keys of a placeholder if there is no rule. Only the holder of
a genuine token learns that it has expired.
"""

import hmac
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from unibus.core.access.connection import Credentials
from unibus.core.access.rights import Right, grants
from unibus.core.access.rules import WELL_KNOWN_KEY, AuthorizationRule, checked_rules, key_of
from unibus.core.access.scope import NAMESPACE, covers, home_of, segments_of
from unibus.core.access.token import parse_token, sign
from unibus.errors import ConfigInvalid, EntityNotFound, Forbidden, Unauthorised
from unibus.limits import ACCESS_NAME_CHARS_MAX

_SECOND_NS: Final = 1_000_000_000
_NO_RULE: Final = AuthorizationRule("none", frozenset({Right.LISTEN}), key_of(bytes(32)), key_of(bytes(32)), False)
"""The placeholder for a rule that does not exist, so that a check takes as long. It is disabled, so it never
matches."""


class Claims(NamedTuple):
    """What a genuine token proves. For the server and its logs: it has no secret, and clients never see it."""

    rule: str
    """The name of the rule."""
    home: tuple[str, ...]
    """Where the rule is defined: the segments of a queue or topic, or none for the namespace."""
    scope: tuple[str, ...]
    """What the token is for."""
    rights: frozenset[Right]
    expires_s: int | None
    """None: a name with its key does not expire."""
    key: str
    """`primary` or `secondary`: shows when an old key is no longer used."""
    is_well_known: bool = False
    """Proved with the emulator's well-known key, which is not secret: the endpoint decides from which networks it is
    accepted."""


class Granted(NamedTuple):
    claims: Claims
    right: Right
    target: str


class Access:
    """The rules of one namespace and of the entities in it. Without rules everything is refused.

    `rules_of` returns the rules of an entity. It gets untrusted names, in the form of `casefold()`; for an unknown one
    it returns nothing or raises EntityNotFound. `hosts` are the names that a token may be for; without them the host of
    a token is not checked. `skew_s` is how long after its expiry a token is still accepted, for clocks that differ;
    `lifetime_max_s` is how far in the future its expiry may be.
    """

    def __init__(
        self,
        rules: Iterable[AuthorizationRule] = (),
        rules_of: Callable[[str], Sequence[AuthorizationRule]] | None = None,
        hosts: Iterable[str] | None = None,
        skew_s: int = 0,
        lifetime_max_s: int | None = None,
    ) -> None:
        if skew_s < 0 or (lifetime_max_s is not None and lifetime_max_s <= 0):
            raise ConfigInvalid(
                "skew_s must be 0 or more and lifetime_max_s more than 0, "
                f"got skew_s={skew_s} and lifetime_max_s={lifetime_max_s}"
            )
        self._rules: Final = checked_rules(rules)
        self._rules_of: Final = rules_of
        self._hosts: Final = None if hosts is None else frozenset([host.lower() for host in hosts])
        self._skew_ns: Final = skew_s * _SECOND_NS
        self._lifetime_max_ns: Final = None if lifetime_max_s is None else lifetime_max_s * _SECOND_NS

    def check(self, credential: str | Credentials | None, right: Right, target: str, now_ns: int) -> Granted:
        """Both steps: authenticate the credential, then authorise the right on the target. Raises if either fails."""
        return self.permit(self.identify(credential, now_ns), right, target, now_ns)

    def identify(self, credential: str | Credentials | None, now_ns: int) -> Claims:
        """The claims of a token, or of a name with its key. Raises Unauthorised."""
        if not credential:
            raise Unauthorised(
                "the request has no token", "create one with the name and a key of an authorization rule"
            )
        if isinstance(credential, Credentials):
            return self._by_key(credential)
        return self._by_token(credential, now_ns)

    def permit(self, claims: Claims, right: Right, target: str, now_ns: int) -> Granted:
        """Whether the claims cover it. `target` is the name of an entity in the bus; empty for the namespace.

        For endpoints that authenticate a caller once and then authorise often. The claims do not change: that a key was
        replaced takes effect when the caller presents its next token.
        """
        self._check_time(claims, now_ns)
        if not is_for(claims, target):
            raise Forbidden("the token is not for this entity", "its sr must be the entity, or something above it")
        if not grants(claims.rights, right):
            raise Forbidden(
                f"the operation requires the right {right.value}, which the token does not have",
                "use a rule that has it",
            )
        return Granted(claims, right, target)

    def permit_own_scope(self, claims: Claims, right: Right, now_ns: int) -> Granted:
        """Whether the claims have the right on their own scope: a queue, or the namespace. `is_for` says what else the
        scope covers."""
        return self.permit(claims, right, "/".join(claims.scope), now_ns)

    def _by_token(self, text: str, now_ns: int) -> Claims:
        token = parse_token(text, self._hosts)
        found: Claims | None = None
        for home, rule in self._candidates(token.name, token.scope.segments):
            for key, value in (("primary", rule.primary_key), ("secondary", rule.secondary_key)):
                same = hmac.compare_digest(sign(value, token.signed), token.signature)
                if same and rule.enabled and found is None:
                    well_known = value == WELL_KNOWN_KEY
                    found = Claims(rule.name, home, token.scope.segments, rule.rights, token.expires_s, key, well_known)
        if found is None or (self._hosts is not None and token.scope.host not in self._hosts):
            raise _not_valid()
        self._check_time(found, now_ns)
        return found

    def _by_key(self, given: Credentials) -> Claims:
        scope = segments_of(given.entity)
        # Longer than any key. The rest is not compared, so that a long input does not cost work.
        offered = given.key[:ACCESS_NAME_CHARS_MAX].encode("utf-8", "surrogatepass")
        found: Claims | None = None
        for home, rule in self._candidates(given.name, scope):
            for key, value in (("primary", rule.primary_key), ("secondary", rule.secondary_key)):
                same = hmac.compare_digest(value.encode("utf-8"), offered)
                if same and rule.enabled and found is None:
                    found = Claims(rule.name, home, scope, rule.rights, None, key, value == WELL_KNOWN_KEY)
        if found is None:
            raise _not_valid()
        return found

    def _candidates(self, name: str, scope: tuple[str, ...]) -> list[tuple[tuple[str, ...], AuthorizationRule]]:
        """Always two, whatever exists: the rule of that name on the scope's own entity, and on the namespace."""
        home = home_of(scope)
        own = self._named(name, self._rules_on(home)) if home else _NO_RULE
        return [(home, own), (NAMESPACE, self._named(name, self._rules))]

    def _rules_on(self, home: tuple[str, ...]) -> Sequence[AuthorizationRule]:
        try:
            return () if self._rules_of is None else self._rules_of("/".join(home))
        except EntityNotFound:
            return ()

    def _named(self, name: str, rules: Sequence[AuthorizationRule]) -> AuthorizationRule:
        wanted = name.casefold()
        found = _NO_RULE
        for rule in rules:  # No early exit: the time must not depend on whether the rule exists.
            if rule.name.casefold() == wanted:
                found = rule
        return found

    def _check_time(self, claims: Claims, now_ns: int) -> None:
        if claims.expires_s is None:
            return
        left_ns = claims.expires_s * _SECOND_NS - now_ns
        if left_ns + self._skew_ns <= 0:
            raise Unauthorised("the token has expired", "create a new one; if it is new, compare the clocks")
        if self._lifetime_max_ns is not None and left_ns > self._lifetime_max_ns + self._skew_ns:
            raise Unauthorised("the token is valid for longer than is allowed here", "let it expire sooner")


def is_for(claims: Claims, target: str) -> bool:
    """Whether a token is for this entity: its scope is the entity or above it, and its rule is not one of another
    entity."""
    segments = segments_of(target)
    return covers(claims.scope, segments) and (not claims.home or claims.home == home_of(segments))


def _not_valid() -> Unauthorised:
    return Unauthorised("the token is not valid here", "check the rule's name, its key, and what the token is for")
