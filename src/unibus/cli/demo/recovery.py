"""The stages of the demo on the store after the kills: the trace of a message, redrive of dead-lettered ones, SQL."""

from collections.abc import Callable
from typing import Final

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from unibus.cli.demo.stage import Stage
from unibus.cli.messages.trace import tree_of
from unibus.cli.terminal.output import printable
from unibus.core.envelope.message import Message
from unibus.counting import counted
from unibus.stores.query.result import QueryResult

CHANNEL: Final = "payments"
GROUP: Final = "charge"
PAYMENTS: Final = 40
RETRIES: Final = 2
BANK_ERROR: Final = "the bank does not answer"
QUERIES: Final = (
    "SELECT channel, status, count(*) FROM messages GROUP BY 1, 2",
    "SELECT kind, count(*) FROM events GROUP BY kind ORDER BY 2 DESC LIMIT 6",
    "SELECT last_error, attempts, source FROM dead_letters",
)


def charge(bank_is_up: bool) -> Callable[[Message], None]:
    """A handler. Some cards are declined for good; for some payments the bank is asked, and it may be down."""

    def handle(message: Message) -> None:
        body = message.body
        assert isinstance(body, dict)
        number = body["number"]
        if number % 10 == 0:
            raise RuntimeError(f"card {number} declined")
        if number % 4 == 1 and not bank_is_up:
            raise RuntimeError(BANK_ERROR)

    return handle


def dead_letters(stage: Stage) -> None:
    bus = stage.store.open()
    stage.figures.add(bus)
    delay_s = min(1.0, stage.seconds / 10)
    stage.subscribe(CHANNEL, charge(False), RETRIES, delay_s, bus=bus, group=GROUP)
    sent = bus.publish_many(CHANNEL, [{"number": number} for number in range(1, PAYMENTS + 1)])
    stage.result.traced = traced = str(sent[0].id)
    stage.screen.watch(lambda: tree_of(bus.trace_message(traced)))
    stage.settle(None, bus)
    figures = bus.snapshot(CHANNEL).channels[0]
    stage.screen.note(
        f"{counted(figures.published, 'payment')}: {figures.dispatched:,} handled, "
        f"{counted(figures.retried, 'retry', 'retries')}, {figures.dead_lettered:,} dead-lettered"
    )
    stage.screen.note("the first payment (returned: it failed; scheduled time: the retry is due):")
    stage.screen.show(tree_of(bus.trace_message(traced)))
    stage.rest()


def redrive(stage: Stage) -> None:
    bus = stage.store.open()
    stage.subscribe(CHANNEL, charge(True), RETRIES, min(1.0, stage.seconds / 10), bus=bus, group=GROUP)
    before = bus.snapshot(CHANNEL).channels[0].dispatched
    done = bus.dead_letter_queue().retry_all(error=BANK_ERROR)
    stage.settle(None, bus)
    handled = bus.snapshot(CHANNEL).channels[0].dispatched - before
    left = len(bus.dead_letter_queue().list_messages())
    stage.screen.note(f'dlq.retry_all(error="{BANK_ERROR}")')
    stage.screen.note(
        f"{counted(done.retried, 'dead-lettered message')} brought back, {handled:,} handled, "
        f"{left:,} left (declined cards)"
    )
    trace = bus.trace_message(stage.result.traced)
    stage.screen.note(f"the traced message is now: {trace.status}")
    stage.rest()


def sql(stage: Stage) -> None:
    bus = stage.store.open()
    for text in QUERIES:
        stage.screen.show(Group(Text(text, style="bold"), _table(bus.query_messages(text)), Text("")))
    stage.rest()


def _table(result: QueryResult) -> Table:
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for place, name in enumerate(result.columns):
        numbers = all(isinstance(row[place], (int, float)) for row in result)
        drawn.add_column(printable(name), justify="right" if numbers else "left", overflow="fold")
    for row in result:
        drawn.add_row(*[Text(printable(str(value))) for value in row])
    return drawn
