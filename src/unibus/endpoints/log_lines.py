"""The log of a server: one line for each event, as JSON for programs or as text for people.

An event has a name and fields. The code that logs an event must not put secrets into its fields.

    log_event(log, logging.INFO, "started", port=5300)
    {"time": "2026-01-31T12:00:00.000Z", "level": "info", "event": "started", "port": 5300}
    2026-01-31T12:00:00.000Z info started port=5300

The request log and the audit log are for programs: their lines are JSON with a time of their own in both forms, and are
written unchanged.
"""

import json
import logging
import sys
import time
from typing import Final, TextIO

from unibus.bus.error_texts import trace_text

LOGGERS: Final = ("unibus", "uvicorn.error")
_FIELDS: Final = "unibus_fields"
_FINISHED: Final = "unibus.http."
"""The prefix of the loggers whose lines are written unchanged. The name decides, not the text: clients choose parts of
the text."""

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:/_-+%@[]*$")


def log_event(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    """Log an event with its fields. If the level is not logged, this costs one comparison."""
    if logger.isEnabledFor(level):
        logger.log(level, event, extra={_FIELDS: fields})


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The fields of an event; empty for a record that was logged as plain text."""
    found = getattr(record, _FIELDS, None)
    return found if isinstance(found, dict) else {}


class JsonLines(logging.Formatter):
    """One JSON object for each record, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        event = record.getMessage()
        if record.name.startswith(_FINISHED):
            return event
        line: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "event": event,
            **fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = _traceback(record)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """`time level event name=value …`. Values are quoted, so a client cannot forge a line or control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        event = record.getMessage()
        if record.name.startswith(_FINISHED):
            return event
        return f"{_moment(record)} {record.levelname.lower()} {self.text_of(record)}"

    def text_of(self, record: logging.LogRecord) -> str:
        """The line without its time and level."""
        fields = "".join([f" {name}={_quoted(value)}" for name, value in fields_of(record).items()])
        line = f"{record.getMessage()}{fields}"
        return f"{line}\n{_traceback(record)}" if record.exc_info else line


def start_log(level: str, form: str, stream: TextIO | None = None) -> logging.Handler:
    """Write the log of this process to standard error, with the settings `log_level` and `log_format`."""
    stream = stream or sys.stderr
    is_json = form == "json" or (form == "auto" and not stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if is_json else TextLines())
    chosen = logging.getLevelNamesMapping()[level.upper()]
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
        # uvicorn's INFO lines repeat what we log ourselves.
        logger.setLevel(chosen if name == "unibus" or chosen < logging.INFO else max(chosen, logging.WARNING))
    return handler


def end_log(handler: logging.Handler) -> None:
    """Undo `start_log`."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        logger.removeHandler(handler)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)


def _traceback(record: logging.LogRecord) -> str:
    """Bounded: the exception of a handler may have notes of megabytes, or methods that raise."""
    if record.exc_text:
        return record.exc_text
    error, trace = (None, None) if record.exc_info is None else record.exc_info[1:]
    return "" if error is None else trace_text(error, trace)


def _moment(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03}Z"


def _quoted(value: object) -> str:
    if isinstance(value, list):
        return ",".join([_quoted(each) for each in value])
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)
