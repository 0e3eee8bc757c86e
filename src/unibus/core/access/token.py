# mypyc: compiled
"""Shared access signatures: `SharedAccessSignature sr=…&sig=…&se=…&skn=…`.

The signature is HMAC-SHA256, in base64, over `sr`, a line break and `se`; the text of the key is the HMAC key. Clients
escape `sr` in different ways (lower or upper case digits, a plus or %20, all in lower case), and each signs what it
sends. So the signature is computed over the text as it was received, and the text is decoded only to be interpreted.

Parsing is strict: the four fields, each once, in any order, nothing else, all of it visible ASCII. An additional line
break could shift the boundary between the resource and its expiry.
"""

import base64
import hmac
import re
from typing import Final, NamedTuple

from unibus.core.access.percent import escaped, unescaped
from unibus.core.access.scope import Scope, scope_of
from unibus.errors import Unauthorised, UsageError
from unibus.limits import ACCESS_NAME_CHARS_MAX, ACCESS_TOKEN_CHARS_MAX

PREFIX: Final = "SharedAccessSignature "
EXPIRY_S_MAX: Final = 253_402_300_799
"""The end of the year 9999: most languages have no later date."""

_FIELDS: Final = ("sr", "sig", "se", "skn")
_FORM: Final = f"{PREFIX}{'&'.join([f'{field}=…' for field in _FIELDS])}"
_VISIBLE: Final = re.compile(r"[!-~]+")
_EXPIRY: Final = re.compile(r"[0-9]{1,12}")
_SIGNATURE_CHARS: Final = 44


class SasToken(NamedTuple):
    """A token as it was sent: parsed, and not verified yet. Its repr does not show the signature."""

    name: str
    scope: Scope
    expires_s: int
    signed: bytes
    signature: bytes

    def __repr__(self) -> str:
        return f"SasToken(name={self.name!r}, path={self.scope.path!r}, expires_s={self.expires_s})"


def parse_token(text: str, hosts: frozenset[str] | None = None) -> SasToken:
    """Parse a token. Raises Unauthorised, with a text that repeats nothing of the input."""
    fields = _fields(text)
    resource, name = unescaped(fields["sr"]), unescaped(fields["skn"])
    # Base64 has no spaces, so a plus without an escape can only be a plus.
    signature = unescaped(fields["sig"], b"+")
    if resource is None or name is None or signature is None:
        raise broken("has an invalid escape")
    scope = scope_of(resource, hosts)
    if scope is None:
        raise broken("has an sr that is not the address of a resource")
    if _EXPIRY.fullmatch(fields["se"]) is None or int(fields["se"]) > EXPIRY_S_MAX:
        raise broken("has an se that is not a time in whole seconds")
    if len(name) > ACCESS_NAME_CHARS_MAX or len(signature) != _SIGNATURE_CHARS or not signature.isascii():
        raise broken("has an skn or a sig of the wrong length")
    signed = f"{fields['sr']}\n{fields['se']}".encode("ascii")
    return SasToken(name, scope, int(fields["se"]), signed, signature.encode("ascii"))


def make_token(resource: str, name: str, key: str, expires_s: int) -> str:
    """A token for the resource and all below it, signed with a rule's name and key, valid until `expires_s`."""
    if scope_of(resource) is None:
        raise UsageError(f"the resource {resource!r:.80} is not a URI", "give one like sb://host/queue")
    if not name or not key:
        raise UsageError("a token needs the name of a rule and one of its keys")
    if not 0 < expires_s <= EXPIRY_S_MAX:
        raise UsageError(f"expires_s {expires_s} is out of range", "give whole seconds since 1970")
    sr = escaped(resource)
    signature = sign(key, f"{sr}\n{expires_s}".encode("ascii"))
    return f"{PREFIX}sr={sr}&sig={escaped(signature.decode('ascii'))}&se={expires_s}&skn={escaped(name)}"


def sign(key: str, signed: bytes) -> bytes:
    return base64.b64encode(hmac.digest(key.encode("utf-8"), signed, "sha256"))


def broken(what: str) -> Unauthorised:
    return Unauthorised(f"the token {what}", _FORM)


def _fields(text: str) -> dict[str, str]:
    if len(text) > ACCESS_TOKEN_CHARS_MAX or not text.startswith(PREFIX):
        raise broken("is not a shared access signature")
    body = text[len(PREFIX) :]
    if _VISIBLE.fullmatch(body) is None:
        raise broken("has a character that no token can have")
    fields: dict[str, str] = {}
    for pair in body.split("&"):
        field, _, value = pair.partition("=")
        if field not in _FIELDS or field in fields or not value:
            raise broken("has a field that is unknown, empty or given twice")
        fields[field] = value
    if len(fields) < len(_FIELDS):
        raise broken("has a missing field")
    return fields
