"""Encoding and decoding one message, with a body of 200 characters, with five headers and with none.

Fair, because every contender carries the same fields and its decoder is checked to give back what its encoder was
given. Peers start from a ready dict (pydantic from a ready model) and end with one; ours starts from a message
and ends with a message, whose header types survive. The body is text, since JSON peers cannot carry bytes.
Ours is the default encoding; the JSON form is for people, and no claim is made of its speed. Nor is one made for
encoding a tree of dicts: ours first looks for types that would be lost, and orjson, which loses them, is quicker.
Targets: 2 µs to serialize, 1 µs to read. There is no limit: no codec does nothing.
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
from unibus.core.codec.codec import decode, encode, encode_json
from unibus.core.envelope.message import Message, restored

MESSAGES = 50_000
TARGETS_NS = {"encode": 2_000.0, "decode": 1_000.0}

HEADERS: dict[str, str | bool | int | float] = {
    "tenant": "acme",
    "attempt": 1,
    "urgent": True,
    "weight": 2.5,
    "region": "eu-west",
}
CASES: dict[str, dict[str, str | bool | int | float]] = {"5 headers": HEADERS, "no headers": {}}


class Bare(BaseModel):
    """The message as a pydantic user writes it."""

    id: str
    channel: str
    sequence: int
    priority: int
    timestamp_ns: int
    body: str


class Headed(Bare):
    headers: dict[str, str | bool | int | float]


@dataclass(frozen=True)
class Codec:
    """`encode` takes `message` to bytes or text and `decode` back; the two must meet in an equal message."""

    message: object
    encode: Callable[..., bytes | str]
    decode: Callable[..., object]
    same: Callable[..., bool] = operator.eq


def run(options: Options) -> Report:
    return Report("codec", tuple(figure for name in CASES for figure in _figures(name, options)))


def _figures(name: str, options: Options) -> list[Figure]:
    codecs = contenders(CASES[name])
    for contender, codec in codecs.items():
        _check_round_trip(contender, codec)
    best = {
        "encode": best_of(_trials(codecs, _encoding), options.count(MESSAGES), options),
        "decode": best_of(_trials(codecs, _decoding), options.count(MESSAGES), options),
    }
    return [
        Figure(f"{operation}, {name}", "ns", times.pop("unibus"), TARGETS_NS[operation], times)
        for operation, times in best.items()
    ]


def contenders(headers: dict[str, str | bool | int | float]) -> dict[str, Codec]:
    message = _message(headers)
    fields: dict[str, object] = {
        "id": message.id,
        "channel": message.channel,
        "sequence": message.sequence,
        "priority": message.priority,
        "timestamp_ns": message.timestamp_ns,
        "body": message.body,
    }
    if headers:
        fields["headers"] = headers
    model = Headed if headers else Bare
    return {
        "unibus": Codec(message, encode, decode, _is_same),
        # One packer kept, which is quicker than `packb`.
        "msgpack": Codec(fields, msgpack.Packer().pack, msgpack.unpackb),
        "orjson": Codec(fields, orjson.dumps, orjson.loads),
        # It gives text; making bytes of that is left out, in its favour.
        "pydantic": Codec(model.model_validate(fields), model.model_dump_json, model.model_validate_json),
    }


def _is_same(one: Message, other: Message) -> bool:
    """A message compares by identity; the JSON form has every field."""
    return encode_json(one) == encode_json(other)


def _message(headers: dict[str, str | bool | int | float]) -> Message:
    message = restored("5f0c9a1e-000000000001", "orders", "x" * 200, 1_700_000_000_000_000_000, None)
    message.sequence = 1
    return message.with_headers(headers) if headers else message


def _check_round_trip(name: str, codec: Codec) -> None:
    if not codec.same(codec.decode(codec.encode(codec.message)), codec.message):
        raise Undelivered(f"{name} does not give back the message that it was given")


def _trials(codecs: dict[str, Codec], timed: Callable[[Codec], Trial]) -> dict[str, Trial]:
    return {name: timed(codec) for name, codec in codecs.items()}


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
