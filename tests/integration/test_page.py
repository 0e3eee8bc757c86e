"""The page of a server in a real browser: what it shows, what it survives, and what it never runs."""

import http.client
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.namespace import KEY, Namespace, namespace_running
from tests.integration.server.running import fail
from tools.browser import Page, browser
from unibus.core.access.rights import Right
from unibus.core.access.rules import AuthorizationRule
from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.endpoints.log_lines import log_event

HOSTILE = "<img src=x onerror=document.title='hacked'>"
ROOT = AuthorizationRule("root", frozenset(Right), KEY, KEY)
LIVE = "document.getElementById('link').dataset.state === 'live'"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Page]:
    """One browser for all: to start it takes a second."""
    with browser() as page:
        yield page


@pytest.fixture
def page(chromium: Page) -> Page:
    chromium.look(1200, 900)
    chromium.console.clear()
    return chromium


@pytest.fixture
def namespace(certificates: Path, chromium: Page) -> Iterator[Namespace]:
    with namespace_running(certificates) as found:
        found.call(lambda: _fill(found))
        yield found
        leave(chromium, found)


def leave(page: Page, namespace: Namespace) -> None:
    """Before the server is stopped: a page that is open would connect again and again meanwhile."""
    page.call("Network.setExtraHTTPHeaders", headers={})
    page.open("about:blank")
    namespace.running.until(lambda: namespace.running.server.serving.control.connections()[1] == 0)


async def _fill(namespace: Namespace) -> None:
    broker = namespace.broker
    for name in ("apples", "bananas"):
        await broker.create("queue", name)
    # No server creates such a name; a program that sends to it does.
    await broker.store.apply([Declare(HOSTILE, QUEUE, {})])
    await broker.send_many("bananas", [broker.message("bananas", number, {}) for number in range(12)])
    await broker.send("apples", broker.message("apples", 1, {}))
    claimed = (await broker.receive("apples"))[0]
    await broker.settle("dead_letter", claimed.token, entity="apples")


def rows(page: Page) -> list[list[str]]:
    found: list[list[str]] = page.evaluate(
        "[...document.querySelectorAll('#rows tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return found


def test_what_an_operator_sees(page: Page, namespace: Namespace) -> None:
    page.open(f"{namespace.url}/")
    page.until(LIVE)
    page.until("document.querySelectorAll('#rows tr').length === 3")
    page.until("document.getElementById('figure-dead').textContent === '1'")
    assert [row[0] for row in rows(page)] == ["bananas", HOSTILE, "apples"]
    assert rows(page)[0][2] == "12"
    assert rows(page)[2][-1] == "1"
    assert page.evaluate("document.getElementById('health-word').textContent") == "Healthy"
    assert page.evaluate("document.getElementById('figure-active').textContent") == "12"


def test_a_name_is_text_and_never_markup(page: Page, namespace: Namespace) -> None:
    log_event(logging.getLogger("unibus.server"), logging.WARNING, f"refused {HOSTILE}")
    page.open(f"{namespace.url}/")
    page.until("document.querySelectorAll('#rows tr').length === 3")
    page.until("document.querySelectorAll('#errors li').length > 0")
    assert page.evaluate("document.images.length") == 0
    assert page.evaluate("document.title") != "hacked"
    assert HOSTILE in page.evaluate("document.getElementById('errors').textContent")
    assert page.console == []  # Nothing was refused by the policy either: there was nothing to refuse.


def test_what_comes_is_shown_without_loading_the_page_again(page: Page, namespace: Namespace) -> None:
    page.open(f"{namespace.url}/")
    page.until("document.querySelectorAll('#rows tr').length === 3")

    async def more() -> None:
        broker = namespace.broker
        await broker.send_many("apples", [broker.message("apples", number, {}) for number in range(40)])
        await broker.delete("bananas")

    namespace.call(more)
    page.until("document.querySelectorAll('#rows tr').length === 2")
    page.until("document.querySelector('#rows tr').cells[2].textContent === '40'")


def test_sorting_and_filtering_by_keyboard(page: Page, namespace: Namespace) -> None:
    page.open(f"{namespace.url}/")
    page.until("document.querySelectorAll('#rows tr').length === 3")
    page.evaluate("document.querySelector('button[data-sort=name]').click()")
    assert [row[0] for row in rows(page)] == [HOSTILE, "apples", "bananas"]
    assert page.evaluate("document.querySelector('th.name').getAttribute('aria-sort')") == "ascending"
    page.evaluate("document.querySelector('button[data-sort=name]').click()")
    assert [row[0] for row in rows(page)] == ["bananas", "apples", HOSTILE]
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="/", text="/" if kind == "keyDown" else "")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.call("Input.insertText", text="APP")
    page.until("document.querySelectorAll('#rows tr').length === 1")
    assert page.evaluate("document.getElementById('count').textContent") == "1 of 3"


def test_a_lost_connection_is_shown_and_found_again(page: Page, namespace: Namespace) -> None:
    page.open(f"{namespace.url}/")
    page.until(LIVE)
    namespace.running.do(lambda: fail(namespace.running))
    namespace.running.do(namespace.running.server.serving.check)
    page.until("document.getElementById('link').dataset.state === 'lost'")
    assert "Connection lost" in page.evaluate("document.getElementById('link-text').textContent")
    page.until(LIVE)  # The store was opened again: an empty one, since it is in memory.
    page.until("document.getElementById('note').textContent.startsWith('No queues')")


def test_signing_in_with_a_rule_and_its_key(page: Page, certificates: Path) -> None:
    with namespace_running(certificates, authorization_rules=(ROOT,)) as namespace:
        connection = http.client.HTTPConnection("localhost", namespace.port)
        connection.request("GET", "/", headers={"Accept": "text/html"})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["WWW-Authenticate"].split()[0]) == (401, "Basic")
        connection.close()
        page.open(f"{namespace.url}/", "root", KEY)
        page.until(LIVE)
        page.until("document.getElementById('note').textContent.startsWith('No queues')")
        leave(page, namespace)


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (1200, "light"), (1200, "dark")])
def test_it_fits_and_can_be_read(page: Page, namespace: Namespace, width: int, scheme: str) -> None:
    page.look(width, 800, scheme)
    page.open(f"{namespace.url}/")
    page.until("document.querySelectorAll('#rows tr').length === 3")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CONTRASTS) == []


CONTRASTS = """
(() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((part) => {
      const value = part / 255;
      return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = getComputedStyle(each).backgroundColor;
      if (!found.endsWith(", 0)")) return found;
    }
    return "rgb(255, 255, 255)";
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const has = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!has || !element.checkVisibility()) continue;
    const pair = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) low.push(`${element.className || element.tagName}: ${ratio.toFixed(2)}`);
  }
  return low;
})()
"""


# Without a browser


def ask(namespace: Namespace, path: str, accept: str, host: str = "") -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("localhost", namespace.port)
    headers = {"Accept": accept, "Host": host or f"localhost:{namespace.port}"}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers, body


def test_other_clients_find_the_addresses_at_the_root(namespace: Namespace) -> None:
    for accept in ("*/*", "application/atom+xml", "application/json"):
        status, headers, body = ask(namespace, "/", accept)
        assert (status, headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
        assert b"/docs" in body
        assert b"<" not in body


def test_the_policy_of_the_page_and_its_files(namespace: Namespace) -> None:
    status, headers, body = ask(namespace, "/", "text/html,*/*")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for inline in (b"<style", b"style=", b"onclick", b"javascript:"):
        assert inline not in body
    assert body.count(b"<script") == 1
    for name in ("main.js", "style.css", "favicon.svg", "live.js", "table.js", "format.js", "spark.js"):
        status, headers, _ = ask(namespace, f"/console/{name}", "*/*")
        assert (status, headers["X-Content-Type-Options"]) == (200, "nosniff")
    assert ask(namespace, "/console/..%2f..%2ferrors.py", "*/*")[0] == 404


def test_a_name_of_another_site_that_leads_here_is_asked_for_a_key(namespace: Namespace) -> None:
    assert ask(namespace, "/", "text/html", "evil.example")[0] == 401
    assert ask(namespace, "/unibus/v1/entities", "*/*", "evil.example")[0] == 401
    assert ask(namespace, "/unibus/v1/entities", "*/*")[0] == 200
