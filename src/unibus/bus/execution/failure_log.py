"""The log lines about handlers that fail, the same for channels in memory, persistent channels and backends.

    first failure of a message   WARNING with the traceback, without frames of the bus
    each later retry             WARNING, one line
    dead-lettered                ERROR, one line, with the reason and the command that shows the message

They are warnings and errors because Python prints these without any configuration of logging.

Rule: a traceback is logged once, not once for each message that fails in the same way. Failures are of the same kind
if handler, group, exception types and the lines of the traceback are equal, including chained exceptions. A kind is
logged again with its traceback for a message whose first delivery fails a minute later. A kind that was never logged
always has its traceback, also at a retry: nothing new is hidden, and a process that continues with a message after a
restart shows why it fails.

A body that does not have the type of the handler is one line: the text names the field, and the traceback would
contain frames of the bus only.
"""

import shlex
from _thread import allocate_lock
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from unibus.bus.error_texts import described, related, trace_lines, trace_text, traceback_of, user_trace
from unibus.bus.mistaken_keywords import publish_hint
from unibus.bus.pubsub.log_feedback import LogFeedback
from unibus.counting import counted
from unibus.errors import BusError
from unibus.safe_log import ExcInfo, SafeLogger, escaped, type_name, write_unlogged

log = SafeLogger("unibus")

REPEAT_NS: Final = 60_000_000_000
"""How long failures of a known kind are logged without their traceback."""

KINDS_MAX: Final = 1_000
"""Kinds that are remembered, so that errors with ever new lines do not use more and more memory."""

LINE_CHARS_MAX: Final = 500
"""The text of an exception in a line. The traceback and the dead-lettered message have more of it."""

_MESSAGE_WITHOUT_ITEMS: Final = "TypeError: 'Message' object is not subscriptable"
"""The likeliest mistake in a first handler: it takes the message for its body."""


@dataclass(frozen=True)
class FailedDelivery:
    """One delivery whose handler raised. `number` counts its deliveries, of which `number_max` are allowed."""

    handler: str
    group: str
    channel: str
    message_id: str
    number: int
    number_max: int
    error: BaseException

    def __str__(self) -> str:
        handler = shown(self.handler.partition("#")[0])
        return (
            f"handler {handler} of group {self.group!r} failed on channel {self.channel!r}:"
            f" message {shown(self.message_id)}, delivery {self.number} of {self.number_max}"
        )


class FailureLog:
    """The failures of one bus."""

    def __init__(self, monotonic_ns: Callable[[], int], feedback: LogFeedback | None = None) -> None:
        self._monotonic_ns = monotonic_ns
        self._feedback = LogFeedback() if feedback is None else feedback
        self._lock = allocate_lock()  # Handlers fail in several threads at once; each kind has one first.
        self._logged_ns: dict[int, int] = {}  # Kind -> when its traceback was logged; the oldest first.

    def retried(self, failed: FailedDelivery, delay_ns: int) -> None:
        """The message is redelivered after the delay."""
        info = self._traceback_of(failed)
        above = ", traceback above" if info is None and failed.number == 1 and not _is_plain(failed.error) else ""
        self._warn(failed, info, "%s, %s%s: %s", str(failed), _when(delay_ns), above, one_line(failed.error))

    def dead_lettered(self, failed: FailedDelivery, reason: str, place: str, command: str) -> None:
        """The message is dead-lettered: `place` is the queue, and `command` shows it there."""
        self._log_traceback(failed)
        why = f"{counted(failed.number, 'delivery', 'deliveries')} to group {failed.group!r} ({reason})"
        self._error(
            failed,
            "message %s of channel %r is dead-lettered in %r after %s: %s; show it: %s",
            shown(failed.message_id),
            failed.channel,
            place,
            why,
            one_line(failed.error),
            command,
        )

    def discarded(self, failed: FailedDelivery, reason: str) -> None:
        """A message of a dead-letter queue has failed again: it has no other queue to go to."""
        self._log_traceback(failed)
        self._error(
            failed,
            "message %s failed in the dead-letter queue %r and is discarded, group %r (%s): %s",
            shown(failed.message_id),
            failed.channel,
            failed.group,
            reason,
            one_line(failed.error),
        )

    def _log_traceback(self, failed: FailedDelivery) -> None:
        """Before the line about the last delivery: its traceback, if that was not logged."""
        info = self._traceback_of(failed)
        if info is not None:
            self._warn(failed, info, "%s, no retry: %s", str(failed), one_line(failed.error))

    def _warn(self, failed: FailedDelivery, info: ExcInfo | None, text: str, *args: str) -> None:
        if not self._is_unlogged(failed, text, args):
            trace = "" if info is None else trace_text(info[1], info[2])
            with self._feedback.logging():
                log.warning(text, *args, exc_info=info, exc_text=trace)

    def _error(self, failed: FailedDelivery, text: str, *args: str) -> None:
        if not self._is_unlogged(failed, text, args):
            with self._feedback.logging():
                log.error(text, *args)

    def _is_unlogged(self, failed: FailedDelivery, text: str, args: tuple[str, ...]) -> bool:
        """Whether a log handler published the message; then the line was written to the error stream."""
        if not self._feedback.is_fed(failed.message_id):
            return False
        write_unlogged(f"{text % args} (not logged: a log handler published this message)")
        return True

    def _traceback_of(self, failed: FailedDelivery) -> ExcInfo | None:
        """What to log as `exc_info`; None if the line is enough."""
        error = failed.error
        if _is_plain(error):
            return None
        trace = user_trace(traceback_of(error)) or traceback_of(error)
        # The name of a type, not its hash, which its metaclass may define; nor its id: a class that is defined inside
        # of a function is another one at each call.
        lines = [(type_name(each), trace_lines(traceback_of(each))) for each in related(error)]
        kind = hash((failed.handler, failed.group, *lines))
        return (type(error), error, trace) if self._is_first(kind, failed.number) else None

    def _is_first(self, kind: int, number: int) -> bool:
        """Whether the traceback of this kind has to be logged; remembers that it is."""
        now_ns = self._monotonic_ns()
        with self._lock:
            logged_ns = self._logged_ns.get(kind)
            # A retry repeats the traceback of its first delivery, however long ago that was logged.
            if logged_ns is not None and (number > 1 or now_ns - logged_ns < REPEAT_NS):
                return False
            self._logged_ns.pop(kind, None)
            if len(self._logged_ns) >= KINDS_MAX:
                del self._logged_ns[next(iter(self._logged_ns))]
            self._logged_ns[kind] = now_ns
            return True


def one_line(error: BaseException) -> str:
    """Type and text of an exception, without line breaks and control characters: it must not forge lines of the log."""
    text = " ".join(described(error).split())
    text = "".join([each if each.isprintable() else escaped(each) for each in text[: LINE_CHARS_MAX + 1]])
    if text == _MESSAGE_WITHOUT_ITEMS:
        text += " (the handler got a Message: use message.body, or annotate its parameter, for example order: dict)"
    elif hint := publish_hint(error):
        text += f" ({hint})"
    return text if len(text) <= LINE_CHARS_MAX else text[: LINE_CHARS_MAX - 1] + "…"


def shown(message_id: str) -> str:
    """An id in a line of the log. Senders choose ids, so one that cannot be printed is quoted."""
    return message_id if message_id.isprintable() else repr(message_id)


def command_for_channel(channel: str) -> str:
    """What shows the dead-lettered messages of a channel inside of the program."""
    return f"bus.dead_letters({channel!r})"


def command_for_store(url: str, message_id: str) -> str:
    """The shell command that shows a dead-lettered message of a store, also while the program runs, and also if it
    was forwarded to another queue."""
    quoted = message_id.replace("'", "''")
    query = f"select * from dead_letters where id = '{quoted}'"
    return f"unibus query {_shell_quoted(query)} --url {shlex.quote(url)}"


def _shell_quoted(text: str) -> str:
    # Double quotes are easier to read around SQL, which has single ones; they are safe unless the id is special.
    return shlex.quote(text) if any(each in text for each in '"\\$`!') or not text.isprintable() else f'"{text}"'


def _is_plain(error: BaseException) -> bool:
    """Whether the bus itself raised it, because body or handler do not fit: its text says all."""
    return issubclass(type(error), BusError) and user_trace(traceback_of(error)) is None


def _when(delay_ns: int) -> str:
    if delay_ns <= 0:
        return "retry at once"
    return f"retry in {delay_ns / 1e9:.2f} s" if delay_ns < 10_000_000_000 else f"retry in {delay_ns / 1e9:.0f} s"
