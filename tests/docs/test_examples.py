"""Every example of `examples/` runs, with the requests that its docstring shows."""

import base64
import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.integrations.running_app import running
from unibus.core.access.token import make_token
from unibus.integrations.fastapi import bus_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
KEY = base64.b64encode(bytes(32)).decode()
JSON = {"content-type": "application/json"}


@pytest.fixture
def tea_shop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("TEA_SHOP_KEY", KEY)
    monkeypatch.setenv("TEA_SHOP_STORE", str(folder / "tea-shop.db"))
    spec = importlib.util.spec_from_file_location("fastapi_app", EXAMPLES / "fastapi_app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fastapi_app", module)
    spec.loader.exec_module(module)
    return module


def test_every_example_has_a_test() -> None:
    assert [path.name for path in sorted(EXAMPLES.glob("*.py"))] == ["fastapi_app.py"]


async def test_the_tea_shop_brews_what_routes_and_other_programs_order(tea_shop: ModuleType) -> None:
    token = make_token("sb://localhost/orders", "shop", KEY, int(time.time()) + 3600)
    async with running(tea_shop.app) as shop:
        ordered = await shop.client("POST", "/orders", json.dumps({"drink": "tea", "cups": 2}), JSON)
        assert ordered.status == 202
        headers = {**JSON, "authorization": token}
        sent = await shop.client("POST", "/bus/orders/messages", json.dumps({"drink": "maté"}), headers)
        assert sent.status == 201
        assert (await shop.client("POST", "/bus/orders/messages", "{}", JSON)).status == 401
        assert await bus_of(tea_shop.app).drain(30)
        assert (await shop.client("GET", "/orders")).json() == [
            {"drink": "tea", "cups": 2},
            {"drink": "maté", "cups": 1},
        ]
    async with running(tea_shop.app) as shop:  # Nothing is brewed twice.
        assert await bus_of(tea_shop.app).drain(30)
        assert (await shop.client("GET", "/orders")).json() == []
