"""Validating a body for a typed handler, beside pydantic's own TypeAdapter with the same model and the same body.

Fair, because both are built once and make the same object; ours also tests whether the body has the type already, and
turns an error into the text of a dead letter. Bodies from a queue or a persistent channel are values (validate_python),
bodies from the network are JSON (validate_json). "Added to a delivery" is the time of publish and an inline handler
with the annotation, less that of the same handler without: what a program pays for it in all.
Target: at most 1.3 times what pydantic takes.
"""

from collections.abc import Callable
from decimal import Decimal
from time import perf_counter_ns

import msgspec
from pydantic import BaseModel, TypeAdapter

from benchmarks.measure import Options, Trial, Undelivered, best_of
from benchmarks.report import Figure, Report
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.bus.execution.handlers import plan_for

BODIES = 50_000
TIMES_OF_PYDANTIC = 1.3


class Line(BaseModel):
    name: str
    price: Decimal
    count: int = 1


class Order(BaseModel):
    id: int
    customer: str
    lines: list[Line]


class Small(BaseModel):
    id: int
    name: str


CASES: dict[str, tuple[type[BaseModel], dict[str, object]]] = {
    "2 fields": (Small, {"id": 1, "name": "a"}),
    "5 lines": (Order, {"id": 1, "customer": "c", "lines": [{"name": f"n{n}", "price": f"{n}.50"} for n in range(5)]}),
}


def run(options: Options) -> Report:
    return Report("typed", tuple(figure for name in CASES for figure in _figures(name, options)))


def _figures(name: str, options: Options) -> list[Figure]:
    model, body = CASES[name]
    adapter = TypeAdapter(model)
    convert = plan_for(_typed(model)).convert
    assert convert is not None
    raw = msgspec.json.encode(body)
    if convert(body) != adapter.validate_python(body) or convert(raw) != adapter.validate_json(raw):
        raise Undelivered("the bus and pydantic make different objects")
    count = options.count(BODIES)
    values = best_of(
        {"unibus": _calls(convert, body), "pydantic": _calls(adapter.validate_python, body)}, count, options
    )
    json = best_of({"unibus": _calls(convert, raw), "pydantic": _calls(adapter.validate_json, raw)}, count, options)
    both = best_of({"typed": _deliveries(_typed(model), body), "plain": _deliveries(_plain, body)}, count, options)
    pydantic = values["pydantic"]
    return [
        _figure(f"values, {name}", values["unibus"], pydantic),
        _figure(f"JSON, {name}", json["unibus"], json["pydantic"]),
        _figure(f"added to a delivery, {name}", max(both["typed"] - both["plain"], 1.0), pydantic),
    ]


def _figure(name: str, ours: float, pydantic: float) -> Figure:
    return Figure(name, "ns", ours, pydantic * TIMES_OF_PYDANTIC, {"pydantic": pydantic})


def _typed(model: type[BaseModel]) -> Callable[[object], None]:
    def handler(body: object) -> None: ...

    handler.__annotations__["body"] = model
    return handler


def _plain(body: object) -> None: ...


def _calls(function: Callable[..., object], body: object) -> Trial:
    def trial(count: int) -> float:
        start = perf_counter_ns()
        for _ in range(count):
            function(body)
        return (perf_counter_ns() - start) / count

    return trial


def _deliveries(handler: Callable[[object], None], body: object) -> Trial:
    def trial(count: int) -> float:
        with SyncMessageBus() as bus:
            bus.subscribe("orders", handler, dispatch="inline")
            publish = bus.publish_from_sync
            start = perf_counter_ns()
            for _ in range(count):
                publish("orders", body)
            return (perf_counter_ns() - start) / count

    return trial
