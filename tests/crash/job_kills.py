"""The campaign on jobs: a server that moves thousands of dead-lettered messages is killed, started again, and resumed.

    create a job ─▶ its client is gone ─▶ kill -9 in the middle ─▶ start, resume ─▶ kill -9 … ─▶ done

After each kill every message is in one place, once: dead with its record, or back without it and brought back once.
Between two runs some redriven messages are dead-lettered again: the job must not move them a second time.
"""

import http.client
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.kills import reopened
from tests.crash.redrive import QUEUES, RECORD, RECOVERIES, buried
from tests.crash.redriver import REVIEW
from tests.crash.server_process import PATIENCE_S, TOKEN, ServerProcess, arguments_of, kill
from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.core.codec.codec import decode
from unibus.stores.seam.message_record import MessageRecord
from unibus.stores.seam.store_view import OpenStoreView, all_messages

DYING_AGAIN = 5
MOVED = ("retried", "redirected", "gone")


@dataclass
class Score:
    """What was seen. `findings` is empty if all is well."""

    kills: int = 0
    in_the_middle: int = 0
    moved: int = 0
    died_again: int = 0
    unrecorded: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)

    def line(self, name: str) -> str:
        told = f"{self.moved} messages moved, {self.kills} kills, {self.in_the_middle} of them half way"
        more = f"{self.unrecorded} moved unrecorded, {self.died_again} died again, {self.seconds:.0f} s of jobs"
        return f"{name}: {told}, {more}, findings: {self.findings[:3] or 'none'}"


class Operator:
    """One connection to a server's management API."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        given = None if body is None else json.dumps(body)
        self._connection.request(method, f"/unibus/v1/{path}", given, {"Authorization": TOKEN})
        answer = self._connection.getresponse()
        found = json.loads(answer.read())
        assert answer.status < 300, found
        return found

    def follow(self, number: int) -> None:
        """Begin to follow a job, and leave: a client that is killed."""
        self._connection.request("GET", f"/unibus/v1/jobs/live?id={number}", None, {"Authorization": TOKEN})
        with self._connection.getresponse() as answer:
            assert answer.readline() == b"retry: 1000\n"
        self.close()

    def close(self) -> None:
        self._connection.close()

    def wait(self, number: int, done: int) -> Any:
        """The record once so many messages are done, or the job rests."""
        until = time.monotonic() + PATIENCE_S
        while True:
            record = self.ask("GET", f"job?id={number}")
            if record["done"] >= done or record["state"] not in ("queued", "running"):
                return record
            assert time.monotonic() < until, record


def campaign(server: ServerProcess, path: Path, seed: str, verb: str, messages: int, kills: int) -> Score:
    score, chance = Score(), random.Random(seed)
    known = buried(path, messages)
    again: set[str] = set()
    began = time.monotonic()
    for life in range(kills + 1):
        record = one_life(server, path, verb, chance, life < kills)
        score.kills += 1
        back = audit(path, known, REVIEW if verb == "redirect" else "", again, score.findings)
        score.in_the_middle += record["state"] == "running" and 0 < back < messages
        if score.findings:
            break
        if verb == "retry" and life < kills:
            again |= let_some_die(path, back)
    score.seconds = time.monotonic() - began
    score.moved, score.died_again = back, len(again)
    counts = record["counts"]
    score.unrecorded = counts["gone"]
    if record["state"] != "done" or sum(counts[name] for name in MOVED) != messages or back != messages:
        score.findings.append(f"{back} of {messages} are back, and the job says {record}")
    return score


def one_life(server: ServerProcess, path: Path, verb: str, chance: random.Random, is_killed: bool) -> Any:
    """Start, create the job or resume it, kill in the middle; or wait for its end. What was last known of it."""
    log = path.with_suffix(".log")
    server.start(arguments_of(path), log)
    port = server.port(time.monotonic() + PATIENCE_S)
    assert port, log.read_text()[-2_000:]
    operator = Operator(port)
    jobs = operator.ask("GET", "jobs")["jobs"]
    if not jobs:
        target = {"target": REVIEW} if verb == "redirect" else {}
        record = operator.ask("POST", "jobs", {"kind": verb, "filter": {}, **target})
    else:
        (record,) = jobs
        assert record["state"] in ("interrupted", "done"), record
        if record["state"] == "interrupted":
            record = operator.ask("POST", f"jobs/resume?id={record['id']}")
    operator.follow(record["id"])
    left = record["total"] - record["done"]
    wanted = record["done"] + chance.randint(0, max(1, left // 3)) if is_killed else record["total"] + 1
    record = operator.wait(record["id"], wanted)
    operator.close()
    assert kill(server) == -9
    return record


def let_some_die(path: Path, back: int) -> set[str]:
    """A few of those that are back are received, and dead-lettered again."""
    died: set[str] = set()
    with SyncMessageBus(str(path)) as bus:
        for queue in QUEUES if back else ():
            for message in bus.receive_batch(queue, DYING_AGAIN, timeout=0):
                message.dead_letter("Broken", "again")
                died.add(message.id)
    return died


def audit(path: Path, known: dict[str, tuple[str, int]], target: str, again: set[str], findings: list[str]) -> int:
    """Every message exists once and is right. How many were moved."""
    moved = 0
    with reopened(path) as store:
        entries = list(all_messages(OpenStoreView(store)))
        data = store.read_bodies([entry.key for entry in entries]).wait()
        counts = Counter(entry.who.message_id for entry in entries)
        wrong = {each: counts[each] for each in known.keys() | counts.keys() if counts[each] != 1 or each not in known}
        if wrong:
            findings.append(f"not there once: {dict(list(wrong.items())[:5])}")
        for entry in entries:
            queue, body = known.get(entry.who.message_id, ("", -1))
            is_dead = entry.entity == f"{queue}/$DeadLetterQueue"
            is_again = entry.who.message_id in again
            moved += not is_dead or is_again
            if (not is_dead and entry.entity != (target or queue)) or (is_again and not is_dead):
                findings.append(f"{entry.who.message_id} of {queue} is in {entry.entity}")
            if not is_right(entry, is_dead, is_again) or decode(data[entry.key]).body != body:
                findings.append(f"{entry.who.message_id} of {queue} is not as it should be: {entry.overlay}")
    return moved


def is_right(entry: MessageRecord, is_dead: bool, is_again: bool) -> bool:
    overlay = entry.overlay or {}
    recoveries = overlay.get(RECOVERIES, 0)
    return (RECORD in overlay) == is_dead and recoveries == (1 if is_again or not is_dead else 0)
