"""The path of a message, or of a whole trace, as a tree: domains, messages, entities, and the events in each."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Final

from unibus.cli.terminal.output import flush, is_terminal, printable, write_json
from unibus.counting import counted

if TYPE_CHECKING:
    from rich.tree import Tree

    from unibus.bus.history.trace import MessageTrace, TracedCopy
    from unibus.core.lifecycle.events import Event
    from unibus.pipeline.reports.request import FoundEvents

_NAMES: Final = {"message_id": "message", "correlation_id": "correlation", "trace_id": "trace"}
_WAITS: Final = {
    **dict.fromkeys(("delivered", "renewed"), ("in flight", "a consumer has received it and not settled it yet")),
    **dict.fromkeys(("sent", "copied", "activated"), ("waiting", "no consumer has received it yet")),
    "returned": ("waiting", "it was released and waits for redelivery"),
    "scheduled": ("waiting", "it is scheduled for later"),
    "deferred": ("waiting", "it was deferred: only receive_deferred returns it"),
}
"""The outcome of a copy by its last event: segments have the events, but not the current state of the store."""


def show_found(found: "FoundEvents", as_json: bool = False) -> None:
    if as_json or not is_terminal():
        from unibus.bus.management.history.events import record_of

        for event in found.events:
            write_json(record_of(event))
        flush()
        return
    from rich.console import Console

    Console(highlight=False).print(tree_of(found))


def tree_of(found: "FoundEvents") -> "Tree":
    """One message in one domain has the tree of `unibus trace`; several messages are branches of a common title."""
    from rich.text import Text
    from rich.tree import Tree

    from unibus.bus.management.history.events import when
    from unibus.cli.messages.trace import tree_of as one_tree

    traces = list(traced(found.events))
    if len(traces) == 1 and found.by == "message_id":
        return one_tree(traces[0][1])
    began, ended = when(found.events[0].ts), when(found.events[-1].ts)
    domains = len({domain for domain, _ in traces})
    title = Text()
    title.append(f"{_NAMES.get(found.by, found.by)} {printable(found.id)}", style="bold")
    title.append(f"  {counted(len(traces), 'message')} in {counted(domains, 'domain')}")
    title.append(f"  {began.astimezone():%Y-%m-%d}, {_took(began, ended)}", style="dim")
    tree = Tree(title, guide_style="dim")
    tree.children.extend(_branch(domain, trace, began) for domain, trace in traces)
    return tree


def _branch(domain: str, trace: "MessageTrace", began: datetime) -> "Tree":
    """The tree of one message, with its domain, and its start relative to the first message."""
    from rich.text import Text

    from unibus.bus.management.history.events import when
    from unibus.cli.messages.trace import elapsed
    from unibus.cli.messages.trace import tree_of as one_tree

    drawn = one_tree(trace)
    assert isinstance(drawn.label, Text)
    after = f"  {elapsed(when(trace.events[0].ts) - began)}  "
    drawn.label = Text.assemble((printable(domain), "magenta"), (after, "cyan"), drawn.label)
    return drawn


def traced(events: "list[Event]") -> "Iterator[tuple[str, MessageTrace]]":
    """Each message of each domain, in the order of its first event."""
    from unibus.bus.history.trace import trace_of

    by_message: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if event.message_id is not None:
            by_message.setdefault((event.domain, event.message_id), []).append(event)
    for (domain, message_id), own in by_message.items():
        trace = trace_of(message_id, own, lambda channel, sequence: None, list)
        for copy in trace.copies():
            _infer_outcome(copy)
        yield domain, trace


def _infer_outcome(copy: "TracedCopy") -> None:
    from unibus.bus.history.trace import GONE

    if copy.outcome == GONE and copy.steps:
        copy.outcome, copy.reason = _WAITS.get(copy.steps[-1].kind, (copy.outcome, copy.reason))


def _took(began: datetime, ended: datetime) -> str:
    from unibus.cli.messages.trace import elapsed

    return elapsed(ended - began).removeprefix("+")
