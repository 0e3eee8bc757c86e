"""The tables of a lake, computed from events one by one in plain Python: what the pipeline has to agree with.

Written from the meaning of events (capture/schema.py), and on purpose not in the way in which the pipeline does it.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from unibus.capture.schema import CAME, KIND_CODES, TERMINAL, channel_key
from unibus.core.lifecycle.events import Event
from unibus.pipeline.jobs.aggregate import added_up
from unibus.pipeline.lake import Lake
from unibus.pipeline.storage.histogram import bucket_of
from unibus.pipeline.storage.tables import TABLES

Rows = list[dict[str, Any]]
COMPUTED = ("messages", "channel_minute", "latency_hist", "failures", "traces", "channels")


def moment(us: int | None) -> datetime | None:
    return None if us is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def tables_of(lake: Lake) -> dict[str, Rows]:
    """As a reader sees them: parts added up, and in an order of their own."""
    found = {}
    for name in COMPUTED:
        folder = lake.folder(name)
        rows: Rows = []
        for flag in (True, False) if folder.table.partition else (None,):
            part = folder.read([each for each in folder.files() if each.open is flag])
            part = added_up(part, folder.table.adds) if folder.table.adds else part
            rows += [{**row, folder.table.partition: flag} if flag is not None else row for row in part.to_pylist()]
        found[name] = ordered(rows)
    for row in found["channels"]:
        del row["first_batch"]  # Depends on the batches, as it should.
    return found


def ordered(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: sorted((name, str(value)) for name, value in row.items()))


def expected(events: Sequence[Event]) -> dict[str, Rows]:
    return {
        "messages": ordered(messages(events)),
        "channel_minute": ordered(minutes(events)),
        "latency_hist": ordered(latencies(events)),
        "failures": ordered(failures(events)),
        "traces": ordered(traces(events)),
        "channels": ordered([_channel(*each) for each in {(event.domain, event.channel) for event in events}]),
    }


def _channel(domain: str, channel: str) -> dict[str, Any]:
    return {"domain": domain, "channel": channel, "channel_key": channel_key(domain, channel)}


def messages(events: Sequence[Event]) -> Rows:
    standing: dict[tuple[str, str, int], dict[str, Any]] = {}
    closed: Rows = []
    for event in events:
        key = (event.domain, event.channel, event.sequence)
        attrs = event.attrs or {}
        if event.kind in TERMINAL:
            standing.pop(key, None)
            closed.append(_closed(event))
        elif event.kind == "dropped":
            for other in [each for each in standing if each[:2] == key[:2]]:
                row = standing.pop(other)
                gone = {"last_at": moment(event.ts), "last_seq": event.seq, "last_kind": "dropped"}
                closed.append({**row, **gone, "open": False, "state": "gone", "outcome": "dropped"})
        elif event.kind == "activated" and attrs["new_sequence"] != str(event.sequence):
            standing.pop(key, None)
            key = (*key[:2], int(attrs["new_sequence"]))
            standing[key] = _begun(event, key[2], came=True)
            _stands(standing[key], event, "active")
        elif event.kind in ("sent", "scheduled", "copied", "delivered", "renewed", "returned", "deferred", "activated"):
            row = standing.setdefault(key, _begun(event, event.sequence, came=event.kind in CAME))
            _happens(row, event, attrs)
    return closed + list(standing.values())


def _begun(event: Event, sequence: int, came: bool) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(TABLES["messages"].schema.names)
    row.update(_channel(event.domain, event.channel), open=True, sequence=sequence, delivery_count=0)
    row.update(was_deferred=False, enqueued_at=moment(event.ts) if came else None)
    return row


def _happens(row: dict[str, Any], event: Event, attrs: dict[str, str]) -> None:
    until, visible = attrs.get("until_us"), attrs.get("visible_us")
    if event.kind == "delivered":
        row["first_delivered_at"] = row["first_delivered_at"] or moment(event.ts)
        row["consumer"] = event.consumer or row["consumer"]
        _stands(row, event, "locked", until)
    elif event.kind == "renewed":
        _stands(row, event, "locked", until)
    elif event.kind == "deferred":
        row["was_deferred"] = True
        _stands(row, event, "deferred")
    elif event.kind == "returned":
        row["reason"] = event.reason
        _stands(row, event, "deferred" if row["was_deferred"] else "scheduled" if visible else "active", visible)
    elif event.kind == "activated":
        _stands(row, event, "active")
    else:
        _stands(row, event, "scheduled" if visible else "active", visible)


def _stands(row: dict[str, Any], event: Event, state: str, due: str | None = None) -> None:
    for name in ("message_id", "correlation_id", "trace_id", "session_id", "size"):
        row[name] = getattr(event, name) if row[name] is None else row[name]
    row["delivery_count"] = row["delivery_count"] if event.delivery_count is None else event.delivery_count
    row.update(state=state, due_at=moment(int(due)) if due else None)
    row.update(last_at=moment(event.ts), last_kind=event.kind, last_seq=event.seq)


def _closed(event: Event) -> dict[str, Any]:
    same = ("message_id", "correlation_id", "trace_id", "session_id", "size", "reason", "signature", "consumer")
    row: dict[str, Any] = dict.fromkeys(TABLES["messages"].schema.names)
    row.update(_channel(event.domain, event.channel), open=False, sequence=event.sequence, state="gone")
    row.update({name: getattr(event, name) for name in (*same, "delivery_count")}, outcome=event.kind)
    row.update(enqueued_at=moment(event.enqueued_us), first_delivered_at=moment(event.first_delivered_us))
    row.update(last_at=moment(event.ts), last_kind=event.kind, last_seq=event.seq)
    return row


def minutes(events: Sequence[Event]) -> Rows:
    count: Counter[tuple[str, str, int, str]] = Counter()
    size: Counter[tuple[str, str, int, str]] = Counter()
    for event in events:
        key = (event.domain, event.channel, event.ts // 60_000_000, event.kind)
        count[key] += 1
        size[key] += event.size or 0
    return [
        {
            **_channel(*key[:2]),
            "minute": moment(key[2] * 60_000_000),
            "kind": key[3],
            "kind_code": KIND_CODES[key[3]],
            "n": n,
            "bytes": size[key],
        }
        for key, n in count.items()
    ]


def latencies(events: Sequence[Event]) -> Rows:
    took: dict[tuple[str, str, int, str, str, int], list[int]] = defaultdict(list)
    for event in events:
        if event.kind in TERMINAL and event.enqueued_us is not None:
            for measure, until in (("waiting", event.first_delivered_us), ("total", event.ts)):
                if until is not None:
                    us = until - event.enqueued_us
                    minute = event.ts // 60_000_000
                    took[event.domain, event.channel, minute, event.kind, measure, bucket_of(us)].append(us)
    return [
        {
            **_channel(*key[:2]),
            "minute": moment(key[2] * 60_000_000),
            "outcome": key[3],
            "measure": key[4],
            "bucket": key[5],
            "n": len(found),
            "sum_us": sum(found),
            "max_us": max(found),
        }
        for key, found in took.items()
    ]


def failures(events: Sequence[Event]) -> Rows:
    found: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for event in events:
        if event.kind in ("dead_lettered", "expired", "returned"):
            hour = event.ts // 3_600_000_000
            found[event.domain, event.channel, event.kind, event.reason, event.signature, hour].append(event)
    return [
        {
            **_channel(*key[:2]),
            "kind": key[2],
            "reason": key[3],
            "signature": key[4],
            "hour": moment(key[5] * 3_600_000_000),
            "n": len(those),
            "first_at": moment(min(each.ts for each in those)),
            "last_at": moment(max(each.ts for each in those)),
            "sample_message_id": max((each.message_id for each in those if each.message_id), default=None),
        }
        for key, those in found.items()
    ]


def traces(events: Sequence[Event]) -> Rows:
    found: dict[tuple[str, str, str, str], list[Event]] = defaultdict(list)
    for event in events:
        for kind, name in (("trace", event.trace_id), ("correlation", event.correlation_id)):
            if name is not None:
                found[name, kind, event.domain, event.channel].append(event)
    return [
        {
            "id": key[0],
            "id_kind": key[1],
            **_channel(*key[2:]),
            "first_at": moment(min(each.ts for each in those)),
            "last_at": moment(max(each.ts for each in those)),
            "events": len(those),
            "messages": sum(each.kind in CAME for each in those),
            "failed": sum(each.kind in ("dead_lettered", "expired") for each in those),
        }
        for key, those in found.items()
    ]
