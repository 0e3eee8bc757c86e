"""DuckDB and Polars doing the job of the pipeline on the same files: from events to the tables of a lake.

Both compute everything anew from the whole history, as one would without a pipeline, and write the same tables as
Parquet: messages that are closed and open, counts by minute, histograms of durations, failures, traces. Each does it
the way it is quickest: open messages are found by fixed-width keys first, and only theirs are looked at in full. What
a job has counted is given back, so that all who ran can be compared: a quick wrong answer is none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl

from unibus.capture.schema import KIND_CODES, STATES, TERMINAL

RENAMED = 30
"""Stands for `activated` where it ends a key: the message goes on under another one."""

ACTIVATED = KIND_CODES["activated"]
ENDS = sorted(KIND_CODES[kind] for kind in TERMINAL)
LIVING = sorted(KIND_CODES[kind] for kind in STATES)
FAILED = sorted(KIND_CODES[kind] for kind in ("returned", "dead_lettered", "expired"))
CAME = sorted(KIND_CODES[kind] for kind in ("sent", "scheduled", "copied"))


@dataclass(frozen=True)
class Counted:
    """What came out, for comparing."""

    events: int
    closed: int
    open: int
    timed: int
    failures: int


Job = Callable[[list[str], Path], Counted]


# DuckDB


def duck(files: list[str], out: Path) -> Counted:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet({files!r})")
        connection.execute(f"CREATE TABLE open_keys AS {_OPEN_KEYS}")
        for name, query in _DUCK.items():
            target = out / f"{name}.parquet"
            connection.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
        return _duck_counted(connection, out)


def _duck_counted(connection: duckdb.DuckDBPyConnection, out: Path) -> Counted:
    def one(query: str, table: str) -> int:
        found = connection.execute(f"SELECT {query} FROM '{out / table}.parquet'").fetchone()
        assert found is not None
        return int(found[0])

    return Counted(
        one("sum(n)", "channel_minute"),
        one("count(*)", "closed"),
        one("count(*)", "open"),
        one("sum(n) FILTER (measure = 'total')", "latency_hist"),
        one("sum(n)", "failures"),
    )


def _codes(codes: list[int]) -> str:
    return f"({', '.join(map(str, codes))})"


_NEW = "TRY_CAST(attrs['new_sequence'] AS BIGINT)"
_CHANNEL = "domain, channel, channel_key"

_OPEN_KEYS = f"""
    SELECT channel_key, sequence, max(seq * 32 + code) AS last FROM (
        SELECT channel_key, sequence, seq, kind_code AS code FROM events
        WHERE kind_code IN {_codes([code for code in LIVING if code != ACTIVATED])}
        UNION ALL
        SELECT channel_key, sequence, seq, CASE WHEN {_NEW} <> sequence THEN {RENAMED} ELSE {ACTIVATED} END
        FROM events WHERE kind_code = {ACTIVATED}
        UNION ALL
        SELECT channel_key, {_NEW}, seq, {ACTIVATED} FROM events WHERE kind_code = {ACTIVATED} AND {_NEW} <> sequence
    ) GROUP BY 1, 2 HAVING last % 32 NOT IN {_codes([*ENDS, RENAMED])}
"""

_DUCK = {
    "closed": f"""
        SELECT {_CHANNEL}, sequence, message_id, correlation_id, trace_id, session_id, size, kind AS outcome, reason,
            signature, consumer, delivery_count, make_timestamptz(enqueued_us) AS enqueued_at,
            make_timestamptz(first_delivered_us) AS first_delivered_at, ts AS last_at, seq AS last_seq
        FROM events WHERE kind_code IN {_codes(ENDS)}""",
    "open": f"""
        WITH kept AS (
            SELECT {_CHANNEL}, sequence, seq, kind, ts, message_id, correlation_id, trace_id, session_id, size, reason,
                consumer, delivery_count, attrs FROM events SEMI JOIN open_keys USING (channel_key, sequence)
            WHERE kind_code IN {_codes(LIVING)}
            UNION ALL
            SELECT {_CHANNEL}, {_NEW} AS sequence, seq, kind, ts, message_id, correlation_id, trace_id, session_id,
                size, reason, consumer, delivery_count, attrs FROM events
            WHERE kind_code = {ACTIVATED} AND {_NEW} <> sequence
                AND (channel_key, {_NEW}) IN (SELECT (channel_key, sequence) FROM open_keys)
        )
        SELECT {_CHANNEL}, sequence, arg_max(kind, seq) AS last_kind, max(message_id) AS message_id,
            max(correlation_id) AS correlation_id, max(trace_id) AS trace_id, max(session_id) AS session_id,
            max(size) AS size, arg_max(reason, seq) AS reason, arg_max(consumer, seq) AS consumer,
            arg_max(delivery_count, seq) AS delivery_count, min(ts) AS enqueued_at,
            min(ts) FILTER (kind = 'delivered') AS first_delivered_at,
            arg_max(coalesce(attrs['until_us'], attrs['visible_us']), seq) AS due_us,
            max(ts) AS last_at, max(seq) AS last_seq
        FROM kept GROUP BY {_CHANNEL}, sequence""",
    "channel_minute": f"""
        SELECT {_CHANNEL}, date_trunc('minute', ts) AS minute, kind, kind_code, count(*) AS n, sum(size) AS bytes
        FROM events GROUP BY ALL""",
    "latency_hist": f"""
        SELECT {_CHANNEL}, minute, outcome, measure, count(*) AS n, sum(us) AS sum_us, max(us) AS max_us,
            CAST(floor(log2(greatest(us, 1)) * 4 + 1e-9) AS SMALLINT) AS bucket
        FROM (
            SELECT {_CHANNEL}, date_trunc('minute', ts) AS minute, kind AS outcome,
                unnest(['waiting', 'total']) AS measure,
                unnest([first_delivered_us - enqueued_us, epoch_us(ts) - enqueued_us]) AS us
            FROM events WHERE kind_code IN {_codes(ENDS)} AND enqueued_us IS NOT NULL
        ) WHERE us IS NOT NULL GROUP BY ALL""",
    "failures": f"""
        SELECT {_CHANNEL}, kind, reason, signature, date_trunc('hour', ts) AS hour, count(*) AS n, min(ts) AS first_at,
            max(ts) AS last_at, max(message_id) AS sample_message_id
        FROM events WHERE kind_code IN {_codes(FAILED)} GROUP BY ALL""",
    "traces": " UNION ALL ".join(
        f"""
        SELECT {name}_id AS id, '{name}' AS id_kind, {_CHANNEL}, min(ts) AS first_at, max(ts) AS last_at,
            count(*) AS events, count(*) FILTER (kind_code IN {_codes(CAME)}) AS messages,
            count(*) FILTER (kind IN ('dead_lettered', 'expired')) AS failed
        FROM events WHERE {name}_id IS NOT NULL GROUP BY ALL"""
        for name in ("trace", "correlation")
    ),
}


# Polars

_KEY = ["channel_key", "sequence"]
_WHERE = ["domain", "channel", "channel_key"]


def polars(files: list[str], out: Path) -> Counted:
    events = pl.scan_parquet(files)
    renames = (
        events.filter(pl.col("kind_code") == ACTIVATED)
        .with_columns(new=_attr("new_sequence").cast(pl.Int64))
        .filter(pl.col("new") != pl.col("sequence"))
        .collect(engine="streaming")
        .lazy()
    )
    open_keys = _open_keys(events, renames).collect(engine="streaming").lazy()
    tables = {
        "closed": _closed(events),
        "open": _opened(events, renames, open_keys),
        "channel_minute": events.group_by(
            *_WHERE, pl.col("ts").dt.truncate("1m").alias("minute"), "kind", "kind_code"
        ).agg(n=pl.len(), bytes=pl.col("size").sum()),
        "latency_hist": _durations(events),
        "failures": _failures(events),
        "traces": pl.concat([_traced(events, name) for name in ("trace", "correlation")]),
    }
    for name, table in tables.items():
        table.sink_parquet(out / f"{name}.parquet", compression="zstd", engine="streaming")
    return _polars_counted(out)


def _polars_counted(out: Path) -> Counted:
    def one(table: str, what: pl.Expr) -> int:
        return int(pl.scan_parquet(out / f"{table}.parquet").select(what).collect().item())

    return Counted(
        one("channel_minute", pl.col("n").sum()),
        one("closed", pl.len()),
        one("open", pl.len()),
        one("latency_hist", pl.col("n").filter(pl.col("measure") == "total").sum()),
        one("failures", pl.col("n").sum()),
    )


def _attr(name: str) -> pl.Expr:
    return pl.col("attrs").map.get(name)


def _open_keys(events: pl.LazyFrame, renames: pl.LazyFrame) -> pl.LazyFrame:
    code = pl.col("kind_code").cast(pl.Int64)
    living = events.filter(pl.col("kind_code").is_in(LIVING)).select(*_KEY, last=pl.col("seq") * 32 + code)
    ended = renames.select(*_KEY, last=pl.col("seq") * 32 + RENAMED)
    begun = renames.select("channel_key", sequence="new", last=pl.col("seq") * 32 + ACTIVATED)
    grouped = pl.concat([living, ended, begun]).group_by(_KEY).agg(pl.col("last").max())
    return grouped.filter(~(pl.col("last") % 32).is_in([*ENDS, RENAMED]))


def _closed(events: pl.LazyFrame) -> pl.LazyFrame:
    columns = [
        *(*_WHERE, "sequence", "message_id", "correlation_id", "trace_id", "session_id", "size", "kind", "reason"),
        *("signature", "consumer", "delivery_count", "enqueued_us", "first_delivered_us", "ts", "seq"),
    ]
    return events.filter(pl.col("kind_code").is_in(ENDS)).select(columns)


def _opened(events: pl.LazyFrame, renames: pl.LazyFrame, open_keys: pl.LazyFrame) -> pl.LazyFrame:
    columns = [
        *(*_WHERE, "sequence", "seq", "kind", "ts", "message_id", "correlation_id", "trace_id", "session_id", "size"),
        *("reason", "consumer", "delivery_count", "attrs"),
    ]
    living = events.filter(pl.col("kind_code").is_in(LIVING)).select(columns)
    begun = renames.with_columns(sequence="new").select(columns)
    kept = pl.concat([each.join(open_keys, on=_KEY, how="semi") for each in (living, begun)])
    last = [pl.col(name).sort_by("seq").last() for name in ("kind", "reason", "consumer", "delivery_count", "attrs")]
    most = [pl.col(name).max() for name in ("message_id", "correlation_id", "trace_id", "session_id", "size", "seq")]
    first = pl.col("ts").filter(pl.col("kind") == "delivered").min().alias("first_delivered_at")
    times = [pl.col("ts").min().alias("enqueued_at"), first, pl.col("ts").max().alias("last_at")]
    grouped = kept.group_by(*_WHERE, "sequence").agg(*last, *most, *times)
    due = pl.coalesce(_attr("until_us"), _attr("visible_us"))
    return grouped.with_columns(due_us=due).drop("attrs")


def _durations(events: pl.LazyFrame) -> pl.LazyFrame:
    ended = events.filter(pl.col("kind_code").is_in(ENDS) & pl.col("enqueued_us").is_not_null())
    minute = pl.col("ts").dt.truncate("1m").alias("minute")
    measures = {
        "waiting": pl.col("first_delivered_us") - pl.col("enqueued_us"),
        "total": pl.col("ts").dt.epoch("us") - pl.col("enqueued_us"),
    }
    parts = [
        ended.select(*_WHERE, minute, outcome="kind", measure=pl.lit(name), us=us) for name, us in measures.items()
    ]
    bucket = (pl.max_horizontal("us", 1).log(2) * 4 + 1e-9).floor().cast(pl.Int16).alias("bucket")
    grouped = pl.concat(parts).drop_nulls("us").group_by(*_WHERE, "minute", "outcome", "measure", bucket)
    return grouped.agg(n=pl.len(), sum_us=pl.col("us").sum(), max_us=pl.col("us").max())


def _failures(events: pl.LazyFrame) -> pl.LazyFrame:
    failed = events.filter(pl.col("kind_code").is_in(FAILED))
    hour = pl.col("ts").dt.truncate("1h").alias("hour")
    times = {"first_at": pl.col("ts").min(), "last_at": pl.col("ts").max(), "sample": pl.col("message_id").max()}
    return failed.group_by(*_WHERE, "kind", "reason", "signature", hour).agg(n=pl.len(), **times)


def _traced(events: pl.LazyFrame, name: str) -> pl.LazyFrame:
    code = pl.col("kind_code")
    return (
        events.filter(pl.col(f"{name}_id").is_not_null())
        .group_by(pl.col(f"{name}_id").alias("id"), *_WHERE)
        .agg(
            id_kind=pl.lit(name),
            first_at=pl.col("ts").min(),
            last_at=pl.col("ts").max(),
            events=pl.len(),
            messages=code.is_in(CAME).sum(),
            failed=code.is_in([KIND_CODES["dead_lettered"], KIND_CODES["expired"]]).sum(),
        )
    )


PEERS: dict[str, Job] = {"DuckDB": duck, "Polars": polars}
