"""Offsets: the position of a query in each domain, and the options for where it begins and ends.

An offset is the seq of the last event that was read, so a range is (start, end], and the end of one run is the start of
the next. As JSON it is `{"local": 1200}`: a seq for each domain. Spark stores it in its checkpoint and shows it in its
progress, and `startingOffsets` accepts it.

For the first batch of a query Spark stores only the end: after a crash it asks for the start again. By then `latest` or
`-10m` would give a later one, and the events between would be lost. So the end of the first batch also has its start,
and the end of any batch has the start of each new domain, because `earliest` moves with retention. The keys for that
begin with `$`; a domain whose name begins with `$` is written with one more.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol

import msgspec

from unibus.errors import UsageError
from unibus.pipeline.connector.options import near, seconds

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
SEQ_MAX: Final = 2**63 - 1
_FROM: Final = "$from"
_INITIAL: Final = "$initial"
_BESIDE: Final = (_FROM, _INITIAL)
_SIGNED: Final = re.compile(r"-?\d+")

Offset = dict[str, int]
StoredOffset = dict[str, object]
"""An offset as Spark stores it: with the additional keys."""


class Ends(Protocol):
    """The part of an EventSource that decides where a range begins and ends."""

    @property
    def domain(self) -> str: ...

    def first(self) -> int: ...

    def last(self) -> int: ...

    def seq_at(self, ts_us: int) -> int: ...


# What Spark stores


def to_stored(offset: Offset) -> StoredOffset:
    return {_key(domain): seq for domain, seq in sorted(offset.items())}


def initial(offset: Offset) -> StoredOffset:
    return {**to_stored(offset), _INITIAL: True}


def reached(start: Mapping[str, object], begin: Offset, end: Offset) -> StoredOffset:
    """The end of a batch for Spark. Exactly the start if there are no new events: Spark compares the text.

    `begin` is the start with the new domains.
    """
    known = plain(start)
    if known == end:
        return dict(start)
    is_first = _INITIAL in start
    came = {domain: seq for domain, seq in begin.items() if is_first or domain not in known}
    return {**to_stored(end), _FROM: to_stored(came)} if is_first or came else to_stored(end)


def plain(shown: Mapping[str, object]) -> Offset:
    return {_domain(key): seq for key, seq in shown.items() if isinstance(seq, int) and key not in _BESIDE}


def between(start: Mapping[str, object], end: Mapping[str, object]) -> tuple[Offset, Offset]:
    """The range of a batch. Its end has the start of a first batch, and of new domains."""
    began = end.get(_FROM)
    came = plain(began) if isinstance(began, dict) else {}
    is_known = _INITIAL not in start or began is None
    return {**came, **plain(start)} if is_known else came, plain(end)


def _key(domain: str) -> str:
    return f"${domain}" if domain.startswith("$") else domain


def _domain(key: str) -> str:
    return key[1:] if key.startswith("$$") else key


# startingOffsets and endingOffsets


@dataclass(frozen=True)
class Bound:
    """One position, or one for each domain. A time means the first event at or after it."""

    seq: int | None = None
    at_us: int | None = None
    name: str = ""
    domains: dict[str, "Bound"] = field(default_factory=dict)
    rest: "Bound | None" = None

    def of(self, source: Ends) -> int:
        if self.rest is not None:
            return self.domains.get(source.domain, self.rest).of(source)
        if self.seq is not None:
            return self.seq
        if self.at_us is not None:
            return source.seq_at(self.at_us)
        return source.last() if self.name == LATEST else max(source.first() - 1, 0)


def bound_of(option: str, text: str, otherwise: str, now_us: int) -> Bound:
    """`otherwise` is the default, for an empty text and for a domain that is not named."""
    text = text.strip() or otherwise
    if not text.startswith("{"):
        return _one(option, text, now_us)
    try:
        # A copy from Spark's progress of the first batch has the additional keys.
        shown = msgspec.json.decode(text, type=dict[str, object])
        given = msgspec.convert({key: shown[key] for key in shown if key not in _BESIDE}, dict[str, int | str])
    except msgspec.MsgspecError as error:
        raise UsageError(f"{option} {text!r:.200} is not JSON: {error}", 'for instance {"local": 1200}') from error
    domains = {_domain(key): _one(option, str(value), now_us) for key, value in given.items()}
    return Bound(domains=domains, rest=_one(option, otherwise, now_us))


def _one(option: str, text: str, now_us: int) -> Bound:
    given = text.strip()
    if given.lower() in (EARLIEST, LATEST):
        return Bound(name=given.lower())
    if given.isdecimal() and int(given) <= SEQ_MAX:
        return Bound(seq=int(given))
    if given.startswith("-") and not _SIGNED.fullmatch(given):
        return Bound(at_us=now_us - round(seconds(option, given[1:]) * 1_000_000))
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        close = near(given, (EARLIEST, LATEST))
        hint = close if close.startswith("did") else "earliest, latest, a sequence, a time, -10m, or JSON by domain"
        raise UsageError(f"{option} {text!r} is not a position in history", hint) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return Bound(at_us=math.floor(aware.timestamp()) * 1_000_000 + aware.microsecond)


def offset_at(option: str, bound: Bound, sources: Sequence[Ends]) -> Offset:
    """The offset of a bound in every domain. UsageError for an unknown domain, or a seq beyond the end."""
    names = [source.domain for source in sources]
    for domain in bound.domains:
        if domain not in names:
            raise UsageError(f"{option} names {domain!r}, which is not a domain of the sources", near(domain, names))
    offset: Offset = {}
    for source in sources:
        seq = offset[source.domain] = bound.of(source)
        if seq > source.last():
            raise UsageError(
                f"{option} {seq} is beyond the last event of {source.domain!r}, which is {source.last()}",
                "an offset is the last event that is skipped",
            )
    return offset


# Limits of a batch


def limited(start: Offset, end: Offset, most: int) -> Offset:
    """At most so many events of the range, from each domain in proportion to its backlog."""
    waiting = {domain: max(seq - start.get(domain, 0), 0) for domain, seq in end.items()}
    total = sum(waiting.values())
    if total <= most:
        return end
    share = {domain: most * count // total for domain, count in waiting.items()}
    left = most - sum(share.values())
    for domain in sorted(waiting, key=lambda name: (-waiting[name], name)):
        step = min(left, waiting[domain] - share[domain])
        share[domain] += step
        left -= step
    return {domain: min(start.get(domain, 0) + share[domain], seq) for domain, seq in end.items()}


def distance(start: Offset, end: Offset) -> int:
    return sum(max(seq - start.get(domain, 0), 0) for domain, seq in end.items())
