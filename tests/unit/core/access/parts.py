"""What the tests of access share: a namespace with a queue and a topic, their rules, and a moment."""

import base64
import hashlib
import hmac

from unibus.core.access.decide import Access
from unibus.core.access.rules import AuthorizationRule
from unibus.core.access.token import make_token

HOST = "ns.servicebus.windows.net"
ALL = ("Send", "Listen", "Manage")
NOW_S = 1_800_000_000
NOW_NS = NOW_S * 1_000_000_000
LATER_S = NOW_S + 3600


def rule(name: str, rights: tuple[str, ...], seed: int) -> AuthorizationRule:
    """The same seed gives the same keys; different ones have none in common."""
    return AuthorizationRule.generated(name, rights, hashlib.sha512(bytes([seed])).digest())


ROOT = rule("RootManageSharedAccessKey", ALL, 1)
SENDER = rule("sender", ("Send",), 2)
LISTENER = rule("listener", ("Listen",), 3)
OFF = rule("off", ALL, 4).switched(False)
ON_Q1 = rule("own", ("Send", "Listen"), 5)
ON_TOPIC = rule("own", ALL, 6)

ENTITIES = {"q1": (ON_Q1,), "topic": (ON_TOPIC,), "q10": (), "orders": (ON_Q1,)}


def access(**options: object) -> Access:
    return Access([ROOT, SENDER, LISTENER, OFF], lambda name: ENTITIES.get(name, ()), **options)  # type: ignore[arg-type]


def token(path: str, by: AuthorizationRule = ROOT, expires_s: int = LATER_S, key: str = "") -> str:
    return make_token(f"sb://{HOST}/{path}", by.name, key or by.primary_key, expires_s)


def signed_raw(sr: str, se: str, skn: str, key: str) -> str:
    """A token over any text, signed with nothing of ours."""
    digest = hmac.new(key.encode(), f"{sr}\n{se}".encode(), "sha256").digest()
    signature = base64.b64encode(digest).decode().replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    return f"SharedAccessSignature sr={sr}&sig={signature}&se={se}&skn={skn}"
