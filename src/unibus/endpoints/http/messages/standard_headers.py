# mypyc: compiled
"""Header names that are never custom properties: those of HTTP, of proxies and browsers, and our own.

The list applies in both directions. A request header in this list is not a property of the message. A property with
such a name is never written as an answer header: it could change the framing of the answer, or the access to it.
"""

from typing import Final

_NAMES: Final = """
authorization brokerproperties unibus-properties host connection keep-alive te trailer transfer-encoding upgrade via
expect date user-agent server cookie cookie2 set-cookie set-cookie2 origin referer from dnt pragma cache-control range
max-forwards forwarded http2-settings early-data upgrade-insecure-requests alt-svc alt-used age allow etag expires
last-modified link location refresh retry-after vary warning www-authenticate strict-transport-security nel report-to
timing-allow-origin clear-site-data x-real-ip x-request-id x-requested-with x-correlation-id correlation-id
x-frame-options x-powered-by x-ua-compatible x-xss-protection x-content-type-options x-dns-prefetch-control
x-http-method-override traceparent tracestate baggage save-data device-memory dpr width viewport-width ect rtt downlink
servicebussupplementaryauthorization servicebusdlqsupplementaryauthorization
"""

STANDARD: Final = frozenset(_NAMES.split())
STANDARD_PREFIXES: Final = (
    "content-",
    "accept",
    "if-",
    "x-ms-",
    "x-forwarded-",
    "x-envoy-",
    "x-amzn-",
    "sec-",
    "proxy-",
    "access-control-",
    "cross-origin-",
    "cf-",
    ":",
)


def is_standard(name: str) -> bool:
    """`name` in lower case."""
    return name in STANDARD or name.startswith(STANDARD_PREFIXES)
