"""Encoding and decoding one message, per message, with a body of 200 characters and five headers.

Fair, because every contender carries the same fields and its decoder is checked to give back what its encoder was
given. Peers start from a ready dict (pydantic from a ready model) and end with one; ours starts from a message
and ends with a message, whose header types survive. The body is text, since JSON peers cannot carry bytes.
Targets are the first design's: 2 µs to serialize, 1 µs to read. There is no limit: no codec does nothing.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

import msgpack
import orjson
from pydantic import BaseModel

from benchmarks.measure import Options, Trial, Undelivered, best_of
from benchmarks.report import Figure, Report

MESSAGES = 50_000
TARGETS_NS = {"encode": 2_000.0, "decode": 1_000.0}

FIELDS: dict[str, object] = {
    "id": "5f0c9a1e-000000000001",
    "channel": "orders",
    "sequence": 1,
    "priority": 50,
    "timestamp_ns": 1_700_000_000_000_000_000,
    "headers": {"tenant": "acme", "attempt": 1, "urgent": True, "weight": 2.5, "region": "eu-west"},
    "body": "x" * 200,
}


class MessageModel(BaseModel):
    """The same message as a pydantic user writes it."""

    id: str
    channel: str
    sequence: int
    priority: int
    timestamp_ns: int
    headers: dict[str, str | bool | int | float]
    body: str


@dataclass(frozen=True)
class Codec:
    """`encode` takes `message` to bytes or text and `decode` back; the two must meet in an equal message."""

    message: object
    encode: Callable[..., bytes | str]
    decode: Callable[..., object]
    same: Callable[..., bool] = operator.eq


def run(options: Options) -> Report:
    mine, rivals = ours(), peers()
    codecs = {**mine, **rivals}
    if len(codecs) < len(mine) + len(rivals):
        raise ValueError("one of ours has a peer's name, and would show the peer's time as ours")
    for name, codec in codecs.items():
        _check_round_trip(name, codec)
    count = options.count(MESSAGES)
    encoded = best_of({name: _encoding(codec) for name, codec in codecs.items()}, count, options)
    decoded = best_of({name: _decoding(codec) for name, codec in codecs.items()}, count, options)
    best = {"encode": encoded, "decode": decoded}
    return Report("codec", tuple(_figure(name, what, best[what], list(rivals)) for what in best for name in mine))


def ours() -> dict[str, Codec]:
    """Our encodings, "unibus msgpack" and "unibus JSON", from message to bytes and back."""
    # Raises rather than measures something else: unibus.core.codec has yet to be wired in here.
    raise NotImplementedError("the codec of unibus is not measured yet")


def peers() -> dict[str, Codec]:
    model = MessageModel.model_validate(FIELDS)
    return {
        # One packer kept, which is quicker than `packb`.
        "msgpack": Codec(FIELDS, msgpack.Packer().pack, msgpack.unpackb),
        "orjson": Codec(FIELDS, orjson.dumps, orjson.loads),
        # It gives text; making bytes of that is left out, in its favour.
        "pydantic": Codec(model, MessageModel.model_dump_json, MessageModel.model_validate_json),
    }


def _figure(name: str, operation: str, best: dict[str, float], rivals: list[str]) -> Figure:
    beside = {rival: best[rival] for rival in rivals}
    return Figure(f"{operation}, {name}", "ns", best[name], TARGETS_NS[operation], beside)


def _check_round_trip(name: str, codec: Codec) -> None:
    if not codec.same(codec.decode(codec.encode(codec.message)), codec.message):
        raise Undelivered(f"{name} does not give back the message that it was given")


def _encoding(codec: Codec) -> Trial:
    def trial(count: int) -> float:
        message, encode = codec.message, codec.encode
        start = perf_counter_ns()
        for _ in range(count):
            encode(message)
        return (perf_counter_ns() - start) / count

    return trial


def _decoding(codec: Codec) -> Trial:
    def trial(count: int) -> float:
        data, decode = codec.encode(codec.message), codec.decode
        start = perf_counter_ns()
        for _ in range(count):
            decode(data)
        return (perf_counter_ns() - start) / count

    return trial
