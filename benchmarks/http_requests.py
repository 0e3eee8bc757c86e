"""The requests of the HTTP benchmarks as bytes: the same for us and for the limits, but for the paths."""

import json
from collections.abc import Mapping

BATCH = 100
BODY_BYTES = 200
BATCH_TYPE = "application/vnd.microsoft.servicebus.json"
JSON_TYPE = "application/json"
BROKER_PROPERTIES = {"Label": "order", "CorrelationId": "c-1"}

COMPACT = json.JSONEncoder(separators=(",", ":")).encode
"""As FastAPI and msgspec write it, so that a message has the same size wherever it comes from."""

ORDER = {"id": 1, "customer": "c-1", "amount": 9.5, "note": ""}
ORDER["note"] = "x" * (BODY_BYTES - len(COMPACT(ORDER)))
BODY = COMPACT(ORDER)


def request(method: str, path: str, token: str, body: str = "", **headers: str) -> bytes:
    """`headers` by their names with underscores for hyphens."""
    content = body.encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: {token}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body or method in ("POST", "PUT"):
        lines.append(f"Content-Length: {len(content)}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + content


def send(path: str, token: str, properties: Mapping[str, str] | None = None) -> bytes:
    """One message of BODY_BYTES with BrokerProperties."""
    text = COMPACT(BROKER_PROPERTIES | dict(properties or {}))
    return request("POST", path, token, BODY, Content_Type=JSON_TYPE, BrokerProperties=text)


def send_batch(path: str, token: str, content_type: str = BATCH_TYPE, count: int = BATCH) -> bytes:
    """A list of messages; their bodies are text, as Azure's batch has them."""
    items = [{"Body": BODY, "BrokerProperties": BROKER_PROPERTIES}] * count
    return request("POST", path, token, COMPACT(items), Content_Type=content_type)
