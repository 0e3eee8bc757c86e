"""The page `/docs`: every operation of the OpenAPI document, rendered by the server as one HTML page.

It loads no script, font or style from elsewhere, so it works without a network, and its Content-Security-Policy allows
nothing but its own style. Every text is escaped by `_text`: the host name in the examples comes from the client.
"""

import base64
import hashlib
import re
import shlex
from collections.abc import Mapping
from html import escape
from typing import Final

from unibus.endpoints.http.monitoring.description import (
    BodyContent,
    DescribedOperation,
    OperationParameter,
    ParameterSchema,
    operations_of,
)

_STYLE: Final = """
:root{color-scheme:light dark;--page:#fff;--text:#1c2128;--soft:#59636e;--line:#d1d9e0;--box:#f6f8fa;--link:#0969da;
--get:#0969da;--post:#1a7f37;--put:#9a6700;--delete:#cf222e}
@media (prefers-color-scheme:dark){:root{--page:#0d1117;--text:#e6edf3;--soft:#9198a1;--line:#3d444d;--box:#151b23;
--link:#4493f8;--get:#4493f8;--post:#3fb950;--put:#d29922;--delete:#f85149}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:60rem;padding:2rem 1rem 4rem;background:var(--page);color:var(--text);
font:1rem/1.5 system-ui,sans-serif}
h1{margin:0;font-size:1.75rem}h2{margin:2.5rem 0 .75rem;font-size:1.25rem;text-transform:capitalize}
h3{margin:1rem 0 .25rem;font-size:.875rem;color:var(--soft);font-weight:600}
a{color:var(--link)}p{margin:.5rem 0}nav{display:flex;flex-wrap:wrap;gap:.25rem 1rem;text-transform:capitalize}
code,pre{font:.875rem/1.5 ui-monospace,monospace}
pre{margin:0;padding:.75rem;overflow-x:auto;background:var(--box);border:1px solid var(--line);border-radius:6px}
details{margin:.5rem 0;border:1px solid var(--line);border-radius:6px;background:var(--page)}
summary{display:flex;flex-wrap:wrap;gap:.25rem .75rem;align-items:baseline;padding:.5rem .75rem;cursor:pointer}
summary:hover{background:var(--box)}details[open] summary{border-bottom:1px solid var(--line)}
details div{padding:0 .75rem .75rem}
.method{min-width:4.5rem;font:600 .8125rem ui-monospace,monospace}
.GET{color:var(--get)}.POST{color:var(--post)}.PUT{color:var(--put)}.DELETE{color:var(--delete)}
.path{overflow-wrap:anywhere}.about{color:var(--soft)}
table{width:100%;border-collapse:collapse;font-size:.875rem}
th,td{padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{color:var(--soft);font-weight:600}
ul{margin:0;padding-left:1.25rem;overflow-wrap:anywhere}
""".strip()

_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")

HEADERS: Final = (
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)

_PART: Final = re.compile(r"{(\w+)}")
_EXAMPLES: Final = {
    "entity": "orders",
    "queue": "orders",
    "topic": "news",
    "subscription": "red",
    "rule": "hue",
    "session": "SESSION",
    "message": "ID",
    "token": "LOCK-TOKEN",
    "sequence": "1",
}
"""Values of path parameters in examples. Capitals: a value from a former answer."""

_CONTINUED: Final = " \\\n    "
_JSON: Final = "application/json"
_BODIES: Final = {_JSON: "{}", "text/plain": "hello", "application/octet-stream": "hello"}


def docs_page(document: Mapping[str, object], base_url: str) -> bytes:
    """The whole page. `base_url` is where the examples send their requests."""
    groups = operations_of(document)
    pieces = ['<!doctype html><html lang="en"><head><meta charset="utf-8"><title>unibus</title>']
    pieces.append('<meta name="viewport" content="width=device-width,initial-scale=1">')
    pieces.append(f"<style>{_STYLE}</style></head><body><h1>unibus</h1>")
    pieces.append(
        "<p>Queues, topics and subscriptions over HTTP. For tools: <a href='openapi.json'>openapi.json</a>.</p>"
    )
    pieces.append("<p>Examples use a token: <code>TOKEN=$(unibus access token)</code>.</p><nav>")
    pieces += [f'<a href="#{_anchor(tag)}">{_text(tag)}</a>' for tag in groups]
    pieces.append("</nav>")
    for tag, operations in groups.items():
        pieces.append(f'<section><h2 id="{_anchor(tag)}">{_text(tag)}</h2>')
        pieces += [_operation(each, base_url) for each in operations]
        pieces.append("</section>")
    pieces.append("</body></html>")
    return "".join(pieces).encode("utf-8", "replace")


def _anchor(tag: str) -> str:
    """An HTML id without spaces. The prefix keeps it apart from the ids of operations, which are their names."""
    return f"group-{re.sub(r'[^a-z0-9]+', '-', tag.lower())}"


def _operation(operation: DescribedOperation, base_url: str) -> str:
    method = _text(operation.method)
    head = f'<span class="method {method}">{method}</span><code class="path">{_text(operation.paths[0])}</code>'
    pieces = [f'<details id="{_text(operation.name)}"><summary>{head}']
    pieces.append(f'<span class="about">{_text(operation.summary)}</span></summary><div>')
    pieces.append(f"<h3>Example</h3><pre>{_text(curl_line(operation, base_url))}</pre>")
    if len(operation.paths) > 1:
        others = "".join([f"<li><code>{_text(path)}</code></li>" for path in operation.paths[1:]])
        pieces.append(f"<h3>The same at</h3><ul>{others}</ul>")
    pieces.append(_parameters(list(operation.parameters.values())))
    pieces.append(_body(operation.body))
    pieces.append(_answers(operation.answers))
    pieces.append("</div></details>")
    return "".join(pieces)


def _parameters(parameters: list[OperationParameter]) -> str:
    if not parameters:
        return ""
    rows = "".join([_parameter(each) for each in parameters])
    head = "<tr><th>Name</th><th>In</th><th>Type</th><th>Meaning</th></tr>"
    return f"<h3>Parameters</h3><table>{head}{rows}</table>"


def _parameter(parameter: OperationParameter) -> str:
    cells = (_kind(parameter.schema), parameter.description + ("" if parameter.required else " Optional."))
    rest = "".join([f"<td>{_text(cell)}</td>" for cell in (parameter.place, *cells)])
    return f"<tr><td><code>{_text(parameter.name)}</code></td>{rest}</tr>"


def _kind(schema: ParameterSchema) -> str:
    """A type with its bounds: `integer, 1 to 1000`."""
    if schema.enum:
        return " or ".join(schema.enum)
    kind = schema.format or schema.type
    least = "" if schema.minimum is None else _digits(schema.minimum)
    # 2**63 - 1 only means "no limit": not shown.
    most = "" if schema.maximum is None or schema.maximum >= 2**63 - 1 else _digits(schema.maximum)
    if least and most:
        return f"{kind}, {least} to {most}"
    if least:
        return f"{kind}, from {least}"
    return f"{kind}, at most {most}" if most else kind


def _digits(bound: int | float) -> str:
    """A bound without an exponent, and without decimals if it is whole."""
    return str(int(bound)) if bound == int(bound) else str(bound)


def _body(body: BodyContent | None) -> str:
    if body is None:
        return ""
    about = f"{_text(body.description)} " if body.description else ""
    return f"<h3>Body</h3><p>{about}{_media(body)}</p>"


def _answers(answers: dict[str, BodyContent]) -> str:
    """The table of answers. Errors are one line, because their body always has the same form."""
    good = [(status, each) for status, each in sorted(answers.items()) if status < "4"]
    rows = [
        f"<tr><td><code>{_text(status)}</code></td><td>{_text(each.description)}</td><td>{_media(each)}</td></tr>"
        for status, each in good
    ]
    errors = [f"{status} {each.description}" for status, each in sorted(answers.items()) if status >= "4"]
    head = "<h3>Answers</h3><table><tr><th>Status</th><th>Meaning</th><th>Body</th></tr>"
    return f'{head}{"".join(rows)}</table><p class="about">Errors: {_text(", ".join(errors))}.</p>'


def _media(content: BodyContent) -> str:
    return " ".join([f"<code>{_text(media)}</code>" for media in content.content])


def curl_line(operation: DescribedOperation, base_url: str) -> str:
    """A curl command that a shell can run, once the parts in capitals are replaced."""
    # Not `/{entity}`: a PUT there needs a body that says whether it is a queue or a topic.
    chosen = next((each for each in operation.paths if each != "/{entity}"), operation.paths[0])
    path = _PART.sub(lambda part: _EXAMPLES.get(part.group(1), part.group(1)), chosen)
    required = [each.name for each in operation.parameters.values() if each.required and each.place == "query"]
    query = "&".join([f"{name}=1" for name in required])
    verb = "curl -i " if operation.method == "GET" else f"curl -i -X {operation.method} "
    words = [verb + shlex.quote(f"{base_url}{path}" + (f"?{query}" if query else ""))]
    if operation.needs_token:
        words.append('-H "Authorization: $TOKEN"')
    if operation.body is not None:
        words += _example_body(operation.body)
    return _CONTINUED.join(words)


def _example_body(body: BodyContent) -> list[str]:
    media = next((each for each in body.content if each in _BODIES), "")
    if not media:
        return []
    required = body.content[media].schema.required
    fields = ", ".join([f'"{name}": "{name.upper().replace("_", "-")}"' for name in required])
    text = f"{{{fields}}}" if media == _JSON else _BODIES[media]
    return [f"-H 'Content-Type: {media}' -d {shlex.quote(text)}"]


def _text(value: str) -> str:
    return escape(value, quote=True)
