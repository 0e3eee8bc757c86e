"""Hints for unknown names: the most similar known name, or else all known names.

A base module, because settings, options and fields of every package are given by name. The words of other libraries
(`retries`, `workers`) are seldom spelt like the names here, so the caller passes those of its own names: `meant`, from
other_words.py.
"""

import difflib
from collections.abc import Iterable, Mapping


def near_name(name: str, known: Iterable[str], meant: Mapping[str, str] | None = None) -> str:
    """The name that was probably meant; "" if none is similar."""
    if meant is not None and name in meant:
        return meant[name]
    close = difflib.get_close_matches(name, list(known), 1)
    return close[0] if close else ""


def hint_for_name(name: str, known: Iterable[str], otherwise: str = "", meant: Mapping[str, str] | None = None) -> str:
    """The hint of an error about an unknown name. If no name is similar: `otherwise`, or without it all known names."""
    names = sorted(known)
    near = near_name(name, names, meant)
    if near:
        return f"did you mean {near!r}?"
    return otherwise or f"known are {', '.join(names)}"
