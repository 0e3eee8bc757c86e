"""Counts in texts for people: "1 message", "2 messages", "1,234 messages".

A base module, because every package writes such texts: logs, errors, the output of commands.
"""


def counted(count: int, one: str, many: str = "") -> str:
    """The number with its noun. `many` is the plural where it is not `one` with an s."""
    noun = one if count == 1 else many or f"{one}s"
    return f"{count:,} {noun}"
