"""Hints for names that do not exist: the known name that is nearest, or else all of them.

It is a base module, because settings, options and fields of every package are given by name. What people call a thing
elsewhere (`retries`, `workers`) is seldom spelt like our name for it, so such words are a table of the caller: `meant`.
"""

import difflib
from collections.abc import Iterable, Mapping


def near_name(name: str, known: Iterable[str], meant: Mapping[str, str] | None = None) -> str:
    """The name that was probably meant; "" where none is near."""
    if meant is not None and name in meant:
        return meant[name]
    close = difflib.get_close_matches(name, list(known), 1)
    return close[0] if close else ""


def hint_for_name(name: str, known: Iterable[str], otherwise: str = "", meant: Mapping[str, str] | None = None) -> str:
    """The hint of an error about an unknown name. `otherwise` is given where none is near; without it all names are."""
    names = sorted(known)
    near = near_name(name, names, meant)
    if near:
        return f"did you mean {near!r}?"
    return otherwise or f"known are {', '.join(names)}"
