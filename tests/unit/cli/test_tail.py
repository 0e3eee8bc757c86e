"""`unibus tail` shows history live, beside the process that owns the store."""

import json
import select
import signal
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.cli.owners import owner_of
from tests.unit.cli.programs import PATIENCE_S
from unibus.bus.compat.persistence import SqlitePersistence
from unibus.cli.terminal.moments import moment_of
from unibus.core.lifecycle.commands import Declare
from unibus.core.lifecycle.state.entity import QUEUE
from unibus.errors import UsageError
from unibus.sync import MessageBus


@pytest.fixture
def filled(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        for number in range(12):
            bus.send("orders", number, message_id=f"m{number}", session_id=f"s{number % 2}")
        bus.receive_batch("orders", 1, timeout=0, consumer="me")[0].complete()
        bus.receive_batch("orders", 1, timeout=0)[0].dead_letter("Broken")
        bus.send("other", "x", priority=7, message_id="x1")


def kinds(records: list[dict[str, Any]]) -> list[str]:
    return [each["kind"] for each in records]


@pytest.mark.usefixtures("filled")
def test_the_last_events_of_a_channel(shell: Any) -> None:
    records = shell.records("tail", "orders")
    assert len(records) == 10
    assert kinds(records)[-4:] == ["delivered", "completed", "delivered", "dead_lettered"]
    assert {each["channel"] for each in records} == {"orders"}
    assert [each["seq"] for each in records] == sorted(each["seq"] for each in records)
    assert records[-1]["reason"] == "Broken"
    assert datetime.fromisoformat(records[-1]["at"]) <= datetime.now(UTC)
    assert kinds(shell.records("tail", "orders", "-n", "1")) == ["dead_lettered"]
    assert kinds(shell.records("tail", "*", "--limit", "2")) == ["declared", "sent"]


def test_a_pattern_of_names(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        for name in ("orders", "orders.eu", "orders.eu.de", "bills.eu"):
            bus.send(name, 1)
    assert [each["channel"] for each in shell.records("tail", "orders.*", "--kind", "sent")] == ["orders.eu"]
    tail = shell.records("tail", "orders.#", "--kind", "sent")
    assert [each["channel"] for each in tail] == ["orders", "orders.eu", "orders.eu.de"]
    assert shell("tail", "nothing.*").exit_code == 3


def test_an_entity_wins_over_the_pattern_of_its_name(shell: Any) -> None:
    with SqlitePersistence.new("unibus.db") as persistence:
        persistence.store.apply([Declare("orders.*", QUEUE, {})]).wait()  # As earlier versions did.
    with MessageBus("unibus.db") as bus:
        bus.send("orders.*", 1)
        bus.send("orders.eu", 1)
    assert [each["channel"] for each in shell.records("tail", "orders.*", "--kind", "sent")] == ["orders.*"]


def test_a_pattern_is_no_name_to_send_to(shell: Any) -> None:
    result = shell("send", "orders.*", "1")
    assert result.exit_code != 0
    assert "is a wildcard pattern" in result.stderr


@pytest.mark.usefixtures("filled")
def test_only_what_is_wanted(shell: Any) -> None:
    assert kinds(shell.records("tail", "*", "--kind", "completed", "--kind", "dead_lettered")) == [
        "completed",
        "dead_lettered",
    ]
    (first,) = shell.records("tail", "*", "--where", "message_id=m1", "--kind", "sent")
    assert first["message_id"] == "m1"
    assert len(shell.records("tail", "*", "--where", "session_id=s1", "--kind", "sent", "-n", "99")) == 6
    assert kinds(shell.records("tail", "*", "--where", "priority=7")) == ["sent"]
    assert kinds(shell.records("tail", "*", "--where", "consumer=me")) == ["delivered", "completed"]
    both = ("--where", "delivery_count=1", "--where", "sequence=2")
    assert kinds(shell.records("tail", "orders", *both)) == ["delivered", "dead_lettered"]


@pytest.mark.usefixtures("filled")
def test_since_a_number_or_a_time(shell: Any) -> None:
    everything = shell.records("tail", "*", "--since", "0")
    assert [each["seq"] for each in everything] == list(range(1, len(everything) + 1))
    assert shell.records("tail", "*", "--since", "1h") == everything
    assert shell.records("tail", "*", "--since", str(len(everything) - 2)) == everything[-2:]
    assert shell.records("tail", "*", "--since", "3", "-n", "2") == everything[3:5]
    instant = everything[-1]["at"]
    assert shell.records("tail", "*", "--since", instant) == [each for each in everything if each["at"] >= instant]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert shell("tail", "*", "--since", later).exit_code == 3


def test_more_than_a_page(shell: Any) -> None:
    with MessageBus("unibus.db") as bus:
        bus.send_many("q", range(2_500))
    assert len(shell.records("tail", "q", "--since", "0", "--kind", "sent")) == 2_500


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--kind", "complete"), "did you mean 'completed'?"),
        (("--where", "mesage_id=m1"), "did you mean 'message_id'?"),
        (("--where", "m1"), "for instance"),
        (("--since", "soon"), "for example 10m"),
    ],
)
def test_what_could_never_match_is_an_error(shell: Any, arguments: tuple[str, ...], hint: str) -> None:
    result = shell("tail", "orders", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert hint in result.stderr


@pytest.mark.usefixtures("filled")
def test_nothing_there(shell: Any) -> None:
    result = shell("tail", "ordrs")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.endswith("hint: did you mean 'orders'?\n")
    assert shell("tail", "orders", "--kind", "expired").exit_code == 3


def test_following_another_process(shell: Any) -> None:
    with owner_of(shell.folder / "unibus.db") as owner:
        owner("send orders first")
        following = shell.start("tail", "-f", "orders")
        read = iter(lambda: json.loads(following.stdout.readline()), None)
        assert [next(read)["kind"] for _ in range(2)] == ["declared", "sent"]
        owner("send other unwanted")
        for number in range(50):
            owner(f"send orders {number}")
        assert [next(read)["message_id"] for _ in range(50)] == [f"orders-{number}" for number in range(50)]
        owner("complete orders 1")
        assert [next(read)["kind"] for _ in range(2)] == ["delivered", "completed"]
        following.send_signal(signal.SIGINT)
        output, errors = following.communicate(timeout=60)
        assert (following.returncode, output, errors) == (128 + signal.SIGINT, b"", b"")


@pytest.mark.skipif(not hasattr(select, "poll"), reason="pipes cannot be polled here")
def test_a_reader_that_goes_away_ends_it_also_while_nothing_happens(shell: Any) -> None:
    with owner_of(shell.folder / "unibus.db") as owner:
        owner("send orders first")
        following = shell.start("tail", "-f", "orders")
        following.stdout.readline()
        following.stdout.close()
        assert following.wait(PATIENCE_S) == 141
        assert following.stderr.read() == b""
        following.stderr.close()


def test_pausing_loses_nothing(shell: Any, terminal: Any) -> None:
    termios = pytest.importorskip("termios")
    with owner_of(shell.folder / "unibus.db") as owner:
        owner("send orders first")
        following = terminal("tail", "-f", "orders", columns=200)
        before = termios.tcgetattr(following.file)
        following.read_until("following; space pauses")
        following.read_until("orders-first")
        following.type(b" ")
        following.read_until("paused; space continues")
        owner("send orders second")
        owner("send orders third")
        following.type(b"x\x1b[Ap")  # The first two keys have no meaning.
        following.read_until("orders-third")
        assert following.output.index("paused") < following.output.index("orders-second")
        following.type(b"pq")
        assert following.read_all() == 0, following.output
        assert termios.tcgetattr(following.file) == before
    assert following.output.count(f"{datetime.now():%Y-}") == 1  # The date once.


def test_the_terminal_is_restored_after_an_error_too(shell: Any, terminal: Any) -> None:
    termios = pytest.importorskip("termios")
    shell.records("send", "q", "x")
    following = terminal("tail", "-f", "q")
    before = termios.tcgetattr(following.file)
    following.read_until("following")
    (shell.folder / "unibus.db").unlink()
    assert following.read_all() == 4, following.output
    assert "error:" in following.output
    assert termios.tcgetattr(following.file) == before


def test_moments() -> None:
    now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    assert moment_of("--since", "10m", now) == now - timedelta(minutes=10)
    assert moment_of("--since", "2026-01-31T12:00+00:00", now) == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert moment_of("--since", "2026-01-31T12:00", now).tzinfo is not None
    assert moment_of("--since", "11:30", now).strftime("%H:%M") == "11:30"
    for text in ("", "soon", "25:00", "-3m"):
        with pytest.raises(UsageError, match="--since"):
            moment_of("--since", text, now)


def test_no_keys_are_read_where_there_is_no_keyboard() -> None:
    from unibus.cli.terminal.keyboard import keyboard

    found = []

    def elsewhere() -> None:
        with keyboard() as keys:
            found.append((keys.is_available, keys.wait(0)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [(False, "")]
