"""Generated history is what the bus could have written: it is played by the bus's own rules, and looked at by others.

The first check gives every event back the form of a change and plays it into a strict book, which refuses whatever the
rules do not allow. The second one knows nothing of that code: it follows each message through the rows and counts.
"""

from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unibus.capture import schema
from unibus.capture.manifest import Manifest
from unibus.core.lifecycle.events import KINDS
from unibus.core.lifecycle.state import changes
from unibus.core.lifecycle.state.apply import replay
from unibus.core.lifecycle.state.changes import Change, MessageRef
from unibus.core.lifecycle.state.entity import KIND_NAMES
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import UsageError
from unibus.pipeline.generator.generate import Generated, WorldPlan, generate

MESSAGES = 8_000
NEVER_GENERATED = {"dropped", "pruned", "forgotten", "applied"}
NS = 1_000

Row = dict[str, object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    plan = WorldPlan(MESSAGES, domains=2, channels=40, hours=6, seed=4, bodies=True)
    return generate(str(tmp_path_factory.mktemp("generated")), plan, segment_rows=10_000)


@pytest.fixture(scope="module")
def histories(made: Generated) -> list[list[Row]]:
    return [rows_of(folder) for folder in made.folders]


def rows_of(folder: str) -> list[Row]:
    rows: list[Row] = table_of(folder).to_pylist(maps_as_pydicts="strict")
    for row in rows:
        row["attrs"] = row["attrs"] or {}
    return rows


def table_of(folder: str) -> pa.Table:
    manifest = Manifest.load(folder)
    table = pa.concat_tables([pq.read_table(manifest.path(segment.file)) for segment in manifest.segments])
    micros = table["ts"].cast(pa.int64())
    return table.set_column(table.schema.get_field_index("ts"), "ts", micros)


# The rules of the bus


class Play:
    """One domain, event by event, in a book that refuses what cannot be."""

    def __init__(self) -> None:
        self.state = StoreState(1 << 40)
        self.numbers: dict[str, int] = {}

    def event(self, row: Row) -> None:
        change = self.change(row)
        replay(self.state, change)

    def change(self, row: Row) -> Change:
        kind, attrs = str(row["kind"]), row["attrs"]
        assert isinstance(attrs, dict)
        if kind == "declared":
            numbered = {name: number for number, name in KIND_NAMES.items()}
            self.numbers[str(row["channel"])] = len(self.numbers) + 1
            return changes.Declared(
                self.at(row), self.numbers[attrs["name"]], 0, attrs["name"], numbered[attrs["kind"]], {}
            )
        if kind == "advanced":
            return changes.Advanced(self.at(row), 0, 0, attrs["name"], int(attrs["position"]))
        where = (self.at(row), self.numbers[str(row["channel"])], number(row["sequence"]))
        until = int(attrs.get("until_us", 0)) * NS
        if kind in ("session_taken", "session_left", "session_stated"):
            session = str(row["session_id"])
            if kind == "session_taken":
                return changes.SessionTaken(*where, session, b"t", until, str(row["consumer"]))
            return (
                changes.SessionLeft(*where, session, str(row["reason"]))
                if kind == "session_left"
                else (changes.SessionStated(*where, session, b"s"))
            )
        if kind == "renewed":
            return changes.Renewed(*where, until)
        if kind == "processed":
            return changes.Processed(*where, attrs["key"])
        return self.of_a_message(kind, row, where, attrs)

    def of_a_message(self, kind: str, row: Row, where: tuple[int, int, int], attrs: dict[str, str]) -> Change:
        who = MessageRef(str(row["message_id"]), number(row["size"]), text(row["session_id"]))
        visible = int(attrs.get("visible_us", 0)) * NS
        priority = int(attrs.get("priority", 0))
        told = (row["delivery_count"], ns(row["enqueued_us"]), ns(row["first_delivered_us"]))
        match kind:
            case "sent" | "scheduled":
                assert (kind == "scheduled") == bool(visible)
                return changes.Sent(*where, who, priority, 0, visible, None, b"data")
            case "published":
                return changes.Passed(*where, who, priority, None, int(attrs.get("copies", 0)), b"data")
            case "copied":
                if "source_seq" in attrs:
                    back = number(row["seq"]) - int(attrs["source_seq"])
                    return changes.Copied(*where, who, priority, 0, visible, back)
                source = self.numbers[attrs["source"]]
                return changes.Copied(*where, who, priority, 0, visible, 0, source, int(attrs["source_sequence"]))
            case "delivered":
                token = b"%d" % number(row["seq"])
                return changes.Delivered(*where, who, told[0], token, int(attrs["until_us"]) * NS, str(row["consumer"]))
            case "returned":
                return changes.Returned(*where, who, told[0], str(row["reason"]), visible)
            case "deferred":
                return changes.Deferred(*where, who, told[0])
            case "activated":
                return changes.Activated(*where, who, int(attrs["new_sequence"]))
            case "completed":
                return changes.Completed(*where, who, *told)
            case "expired":
                return changes.Expired(*where, who, *told)
            case "dead_lettered":
                return changes.DeadLettered(*where, who, *told, str(row["reason"]))
            case "moved":
                return changes.Moved(*where, who, told[0], told[1], attrs["target"], attrs["action"])
            case "duplicate":
                return changes.Duplicated(*where, who, attrs["dedup_key"])
        rare = {"cancelled": changes.Cancelled, "routed": changes.Routed}
        return changes.Purged(*where, who, str(row["reason"])) if kind == "purged" else rare[kind](*where, who)

    def at(self, row: Row) -> int:
        return number(row["ts"]) * NS


def number(value: object) -> int:
    assert isinstance(value, int)
    return value


def text(value: object) -> str | None:
    assert value is None or isinstance(value, str)
    return value


def ns(value: object) -> int:
    return 0 if value is None else number(value) * NS


def test_the_rules_of_the_bus_allow_every_event(histories: list[list[Row]]) -> None:
    for rows in histories:
        play = Play()
        for row in rows:
            told = before_the_end(play, row)
            play.event(row)
            if told is not None:
                assert told == (ns(row["enqueued_us"]), ns(row["first_delivered_us"]), row["delivery_count"]), row
        open_now = sum(len(entity.entries) for entity in play.state.entities.values())
        assert open_now == len(open_after(rows)) > 0


def before_the_end(play: Play, row: Row) -> tuple[int, int, int] | None:
    """What the book knows of a message that the row ends: its row has to say the same."""
    if row["kind"] not in ("completed", "expired", "dead_lettered", "moved"):
        return None
    entry = play.state.entry(play.numbers[str(row["channel"])], number(row["sequence"]))
    assert entry is not None, row
    first, count = entry.first_delivered_ns, entry.delivery_count
    if row["kind"] == "moved":
        first = 0
    if row["kind"] == "completed" and not count:  # Taken without a lock.
        first, count = number(row["ts"]) * NS, 1
    return entry.enqueued_ns, first, count


# The same without the rules' own code


class Watched:
    """One message, followed from row to row."""

    def __init__(self, at: int, scheduled: bool) -> None:
        self.state = "scheduled" if scheduled else "active"
        self.enqueued = 0 if scheduled else at
        self.first = 0
        self.count = 0
        self.until = 0
        self.was_deferred = False
        self.consumer: object = None


def open_after(rows: list[Row]) -> dict[tuple[str, int], Watched]:
    """The messages that are there at the end. Whatever does not fit on the way is an error."""
    there: dict[tuple[str, int], Watched] = {}
    used: Counter[str] = Counter()
    last_ts = 0
    for position, row in enumerate(rows):
        at, kind, channel, attrs = number(row["ts"]), str(row["kind"]), str(row["channel"]), row["attrs"]
        assert isinstance(attrs, dict)
        key = (channel, number(row["sequence"]))
        assert number(row["seq"]) == position + 1
        assert at >= last_ts
        last_ts = at
        if kind in ("sent", "scheduled", "copied", "published"):
            used[channel] += 1
            assert key[1] == used[channel], row
            if kind != "published":
                there[key] = Watched(at, kind == "scheduled")
        elif kind in ("duplicate", "session_taken", "session_left", "session_stated", "declared", "advanced"):
            assert key[1] == used[channel], row
        elif kind == "activated" and int(attrs["new_sequence"]) != key[1]:
            used[channel] += 1
            assert int(attrs["new_sequence"]) == used[channel], row
            assert there.pop(key).state == "scheduled"
            there[channel, used[channel]] = Watched(at, False)
        else:
            follow(there, key, row, at, attrs)
    return there


def follow(there: dict[tuple[str, int], Watched], key: tuple[str, int], row: Row, at: int, attrs: Row) -> None:
    message = there[key]
    kind = row["kind"]
    if kind == "delivered":
        assert message.state in ("active", "deferred"), row
        message.was_deferred |= message.state == "deferred"
        message.state = "locked"
        message.count += 1
        message.first = message.first or at
        message.consumer = row["consumer"]
        message.until = int(str(attrs["until_us"]))
        assert row["delivery_count"] == message.count
    elif kind == "renewed":
        assert message.state == "locked"
        assert at < message.until
        message.until = int(str(attrs["until_us"]))
    elif kind == "returned":
        assert message.state == "locked"
        assert at <= message.until
        message.state = "scheduled" if "visible_us" in attrs else "active"
        message.count -= row["reason"] == "released"
        assert row["delivery_count"] == message.count
        assert "visible_us" not in attrs or int(str(attrs["visible_us"])) > at
        assert not message.was_deferred
    elif kind == "activated":
        assert message.state == "scheduled"
        message.state = "active"
    elif kind == "deferred":
        assert (message.state, row["delivery_count"]) == ("locked", message.count)
        message.state = "deferred"
    elif kind == "processed":
        assert message.state == "locked"
    else:
        ended(message, row, at)
        del there[key]


def ended(message: Watched, row: Row, at: int) -> None:
    kind = row["kind"]
    if kind in ("completed", "expired", "dead_lettered"):
        taken = kind == "completed" and message.state == "active"
        count, first = (1, at) if taken else (message.count, message.first or None)
        assert (row["delivery_count"], row["first_delivered_us"]) == (count, first), row
        assert row["enqueued_us"] == message.enqueued <= (first or at) <= at
        assert at <= message.until or message.state == "active"
        assert taken or kind == "expired" or row["consumer"] == message.consumer
        if kind == "dead_lettered":
            assert row["reason"]
            assert row["reason"] != "TTLExpiredException" or message.state == "active"
        elif kind == "expired":
            assert message.state == "active"
    elif kind == "moved":
        assert (row["enqueued_us"], row["delivery_count"]) == (message.enqueued, message.count)
    else:
        allowed = {"cancelled": ("scheduled",), "routed": ("scheduled",), "purged": ("active", "deferred", "scheduled")}
        assert message.state in allowed[str(kind)], row


def test_it_has_messages_open_in_every_state_and_tells_of_every_kind(histories: list[list[Row]]) -> None:
    states: Counter[str] = Counter()
    for rows in histories:
        states.update(message.state for message in open_after(rows).values())
    assert set(states) == {"active", "locked", "scheduled", "deferred"}
    kinds = {str(row["kind"]) for rows in histories for row in rows}
    assert kinds == set(KINDS) - NEVER_GENERATED


def test_sessions_are_taken_by_one_consumer_at_a_time(histories: list[list[Row]]) -> None:
    sizes: Counter[int] = Counter()
    for rows in histories:
        held: dict[tuple[object, object], object] = {}
        got: Counter[object] = Counter()
        for row in rows:
            session = (row["channel"], row["session_id"])
            if row["kind"] == "session_taken":
                assert session not in held
                held[session] = row["consumer"]
            elif row["kind"] == "session_left":
                del held[session]
                sizes[got[session]] += 1
            elif row["session_id"] is not None and row["kind"] in ("delivered", "completed"):
                assert held[session] == row["consumer"]
                got[session] += row["kind"] == "completed"
    assert max(sizes) > 1
    assert min(sizes) == 1


def test_as_many_messages_come_as_were_asked_for_and_some_lead_through_several_domains(
    histories: list[list[Row]],
) -> None:
    came: set[object] = set()
    domains: defaultdict[object, set[object]] = defaultdict(set)
    for rows in histories:
        for row in rows:
            if row["kind"] in ("sent", "scheduled", "published"):
                came.add(row["message_id"])
            if row["trace_id"] is not None:
                assert len(str(row["trace_id"])) == 32
                domains[row["trace_id"]].add(row["domain"])
    assert len(came) == MESSAGES
    assert sum(len(each) > 1 for each in domains.values()) > 100


def test_few_channels_have_most_of_the_traffic_and_failures_have_few_names(histories: list[list[Row]]) -> None:
    (rows, _other) = histories
    channels = Counter(row["channel"] for row in rows if row["kind"] in ("sent", "published")).most_common()
    assert sum(count for _name, count in channels[:8]) > 0.5 * sum(count for _name, count in channels)
    reasons = {row["reason"] for each in histories for row in each if row["kind"] == "dead_lettered"}
    assert {"MaxDeliveryCountExceeded", "TTLExpiredException", "HandlerRejected"} <= reasons
    signatures = Counter(row["signature"] for each in histories for row in each if row["signature"])
    assert len(signatures) > 3


def test_a_row_says_as_much_as_history_does(histories: list[list[Row]]) -> None:
    """Which columns a kind has is fixed by the change behind it (core/lifecycle/events.py)."""
    for row in histories[0]:
        kind = row["kind"]
        has_who = kind not in (
            *("renewed", "processed", "declared", "advanced"),
            *("session_taken", "session_left", "session_stated"),
        )
        assert (row["message_id"] is not None) == has_who == (row["size"] is not None), row
        counted = kind in ("delivered", "returned", "deferred", "completed", "expired", "dead_lettered", "moved")
        assert (row["delivery_count"] is not None) == counted, row
        assert (row["reason"] is not None) == (kind in ("returned", "dead_lettered", "session_left", "purged")), row
        assert row["signature"] is None or kind == "dead_lettered"
        assert row["channel_key"] == schema.channel_key(str(row["domain"]), str(row["channel"]))
        assert row["kind_code"] == schema.KIND_CODES[str(kind)]
        attrs = row["attrs"]
        assert isinstance(attrs, dict)
        assert ("priority" in attrs) == (kind in ("sent", "scheduled", "copied", "published")), row


def test_a_copy_names_what_it_is_a_copy_of(histories: list[list[Row]]) -> None:
    for rows in histories:
        by_key = {(row["channel"], row["sequence"]): row for row in rows if row["kind"] in schema.CAME}
        by_key |= {
            (row["channel"], int(row["attrs"]["new_sequence"])): row  # type: ignore[index]
            for row in rows
            if row["kind"] == "activated"
        }
        for row in rows:
            attrs = row["attrs"]
            assert isinstance(attrs, dict)
            if row["kind"] == "copied":
                source = (
                    rows[int(attrs["source_seq"]) - 1]
                    if "source_seq" in attrs
                    else by_key[attrs["source"], int(attrs["source_sequence"])]
                )
                assert source["message_id"] == row["message_id"]


def test_the_files_are_those_of_a_capture(made: Generated) -> None:
    rows = size = 0
    for folder in made.folders:
        manifest = Manifest.load(folder)
        assert manifest.domain == Path(folder).name
        assert {segment.rows for segment in manifest.segments[:-1]} == {10_000}
        for segment in manifest.segments:
            assert pq.read_schema(manifest.path(segment.file)).equals(schema.EVENTS)
            assert segment.bodies is not None
            bodies = pq.read_table(manifest.path(segment.bodies.file))
            assert bodies.schema.equals(schema.BODIES)
            assert bodies.num_rows == segment.bodies.rows > 0
            size += segment.bodies.bytes
        rows += manifest.last
        size += sum(segment.bytes for segment in manifest.segments)
    assert (rows, size) == (made.events, made.bytes)


def test_a_seed_is_a_history(tmp_path: Path) -> None:
    def events(name: str, seed: int, rows: int) -> list[pa.Table]:
        made = generate(str(tmp_path / name), WorldPlan(3_000, seed=seed), segment_rows=rows)
        return [table_of(folder).combine_chunks() for folder in made.folders]

    one = events("one", 3, 1_000)
    assert all(a.equals(b) for a, b in zip(one, events("same", 3, 2_500), strict=True))
    assert not one[0].equals(events("other", 4, 1_000)[0])


@pytest.mark.parametrize(
    ("plan", "domains"),
    [
        (WorldPlan(1), 3),
        (WorldPlan(40, domains=1, channels=1, hours=0.01), 1),
        (WorldPlan(500, domains=4, channels=7, seed=9), 4),
    ],
)
def test_small_histories_are_valid_too(tmp_path: Path, plan: WorldPlan, domains: int) -> None:
    made = generate(str(tmp_path), plan)
    assert len(made.folders) == domains
    came = 0
    for folder in made.folders:
        rows = rows_of(folder)
        open_after(rows)
        came += sum(row["kind"] in ("sent", "scheduled") for row in rows)
        came += sum(
            row["kind"] == "published" and not any("source" in rows[at]["attrs"] for at in following(rows, row))  # type: ignore[operator]
            for row in rows
        )
    assert came == plan.messages


def following(rows: list[Row], row: Row) -> range:
    """The copies of the published messages."""
    attrs = row["attrs"]
    assert isinstance(attrs, dict)
    seq = number(row["seq"])
    return range(seq, seq + int(attrs.get("copies", 0)))


def test_messages_that_nobody_reads_stay_open(tmp_path: Path) -> None:
    def still_open(name: str, unread: float) -> int:
        made = generate(str(tmp_path / name), WorldPlan(5_000, domains=1, unread=unread))
        return len(open_after(rows_of(made.folders[0])))

    assert still_open("many", 0.5) > still_open("few", 0.0) + 1_500


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    made = generate(str(tmp_path), WorldPlan(100))
    before = Manifest.load(made.folders[0]).segments
    with pytest.raises(UsageError, match="already exists"):
        generate(str(tmp_path), WorldPlan(100))
    assert Manifest.load(made.folders[0]).segments == before


@pytest.mark.parametrize(
    "plan",
    [
        WorldPlan(0),
        WorldPlan(1, domains=0),
        WorldPlan(1, channels=0),
        WorldPlan(1, hours=0),
        WorldPlan(1, seed=-1),
        WorldPlan(1, channels=9_999),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, plan: WorldPlan) -> None:
    with pytest.raises(UsageError):
        generate(str(tmp_path), plan)
    assert list(tmp_path.iterdir()) == []


def test_progress_ends_with_all_of_it(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    generate(str(tmp_path), WorldPlan(1_000), lambda done, total: seen.append((done, total)))
    assert seen[-1] == (1_000, 1_000)
