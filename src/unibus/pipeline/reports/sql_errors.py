"""Turns an error of Spark about a wrong query, or about a missing or damaged file, into one line with a hint."""

import difflib
import os
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException

from unibus.errors import BusError, CaptureDamaged, JobFailed, LakeIncomplete, QueryInvalid, QueryStopped

TEXT_MAX: Final = 300
_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_CLASS: Final = re.compile(r"^(?:\w+\.)+[\w$]+(?::\s*|$)")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*$", re.DOTALL)
_NAMES: Final = re.compile(r"`((?:[^`]|``)+)`")


_FILE: Final = re.compile(
    r"\[(?:FAILED_READ_FILE\S*\] Encountered error while reading file|PATH_NOT_FOUND\] Path does not exist:)"
    r" (\S.*?)\.\s+(?:File does not exist\b.*?)?SQLSTATE",
    re.DOTALL,
)
_RESTORE: Final = "restore it, or run `unibus pipeline rebuild`"


def in_words(error: Exception, tables: Iterable[str], lake: str, is_query: bool = True) -> BusError | None:
    """None for an error that is not Spark's. `lake` is its folder: a file outside of it belongs to a source."""
    text = str(error)
    if found := _FILE.search(text):
        return _lost(found[1], lake)
    java = getattr(error, "java_exception", None)  # An exception of Java that pyspark has no class for.
    if java is not None:
        text = java.toString()
    elif not isinstance(error, PySparkException):
        return None
    if not is_query:
        return JobFailed(f"the Spark job failed: {first_line(_CLASS.sub('', text)) or first_line(text)}", _LOG)
    return _of_query(error, tables) if isinstance(error, PySparkException) else of_java(text)


_LOG: Final = "UNIBUS_SPARK_LOG=FILE writes the log of Spark to a file"


def _lost(named: str, lake: str) -> BusError:
    """A file that Spark cannot read."""
    path = unquote(urlsplit(named).path) if named.startswith("file:") else named
    how = "is damaged" if os.path.exists(path) else "is missing"
    if path.startswith(os.path.join(lake, "")):
        return LakeIncomplete(f"{path}, a file of the lake, {how}", _RESTORE)
    return CaptureDamaged(f"{path} {how}", _RESTORE, "unreadable" if os.path.exists(path) else "missing")


def _of_query(error: PySparkException, tables: Iterable[str]) -> BusError:
    condition = error.getCondition() or ""
    given = error.getMessageParameters() or {}
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        return _no_table(_name(given.get("relationName", "")), list(tables))
    if condition.startswith(("UNRESOLVED_COLUMN", "UNRESOLVED_MAP_KEY", "UNRESOLVED_USING_COLUMN")):
        return _no_column(_name(given.get("objectName", "")), given.get("proposal", ""))
    if condition.startswith("UNRESOLVED_ROUTINE"):
        return QueryInvalid(f"there is no function {_name(given.get('routineName', ''))!r}", _FUNCTIONS)
    if condition.startswith("PARSE_SYNTAX_ERROR"):
        return QueryInvalid(f"syntax error in the SQL at or near {given.get('error', '?')}", _SYNTAX)
    if condition.startswith("OPERATION_CANCELED"):
        return QueryStopped("the query was stopped", "")
    return QueryInvalid(first_line(str(error)) or type(error).__name__, "")


def of_java(text: str) -> BusError:
    """An exception of Java, without the name of its class at the beginning."""
    return QueryInvalid(first_line(_CLASS.sub("", text)) or first_line(text), "")


_FUNCTIONS: Final = "functions are those of Spark SQL"
_SYNTAX: Final = "the language is Spark SQL; put names with special characters in `backquotes`"


def first_line(text: str) -> str:
    """The first line of an error of Spark, without its codes."""
    line = next((each.strip() for each in text.splitlines() if each.strip()), "")
    line = _STATE.sub("", _CONDITION.sub("", line))
    return line if len(line) <= TEXT_MAX else f"{line[:TEXT_MAX]}…"


def _no_table(name: str, tables: list[str]) -> QueryInvalid:
    near = difflib.get_close_matches(name, tables, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(tables)}"
    return QueryInvalid(f"there is no table {name!r}", hint)


def _no_column(name: str, proposal: str) -> QueryInvalid:
    known = [each.split(".")[-1] for each in map(_name, proposal.split(", ")) if each]
    near = difflib.get_close_matches(name.split(".")[-1], known, 1) or known[:5]
    return QueryInvalid(f"there is no column {name!r}", f"did you mean {' or '.join(near)}?" if near else "")


def _name(quoted: str) -> str:
    """`a`.`b` as a.b."""
    found = _NAMES.findall(quoted)
    return ".".join(found) if found else quoted
