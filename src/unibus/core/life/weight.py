# mypyc: compiled
"""How much memory changes take, roughly: what the bound of a history in memory counts."""

from typing import Final

CHANGE_WEIGHT: Final = 320
"""What a change takes in memory besides the data in it: the object, its numbers, a lock token, the id of a message."""


def weight_of(value: object) -> int:
    """Of headers or settings: their text and bytes, and a little for everything else."""
    if isinstance(value, (str, bytes)):
        return len(value) + 50
    if isinstance(value, dict):
        return 200 + sum([weight_of(key) + weight_of(each) for key, each in value.items()])
    return 60 + sum([weight_of(each) for each in value]) if isinstance(value, list) else 30
