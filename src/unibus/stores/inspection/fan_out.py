"""Checks whether a group of the log has each send completely.

The records of one send form a tree, written depth first. A topic's record says how many subscriptions follow:

    Passed topic, copies=4
      Copied subscription a
      Passed subscription b, copies=1     it forwards, or could not store the message
        Copied queue audit                (a dead-letter queue may be declared in between)
      Passed subscription c, copies=0     it forwards, and the message is a duplicate there
        Duplicated queue audit
      Copied subscription d

An earlier version could write such a tree without its end. Every other call is one record.
"""

from dataclasses import dataclass

from unibus.core.lifecycle.state.changes import Change, Copied, Declared, Duplicated, Passed, Sent


@dataclass(frozen=True)
class HalfSend:
    """The record of a topic at `index` of its group, whose message was stored in fewer subscriptions than it says."""

    index: int
    passed: Passed
    stored: tuple[int, ...]  # The entities whose records follow it.


def half_sends(changes: list[Change], topics: dict[int, set[int]]) -> list[HalfSend]:
    """The incomplete sends of the group. `topics` has the subscriptions of each topic, by number."""
    found: list[HalfSend] = []
    index = 0
    # A group may have several sends, and records of other calls between them.
    while index < len(changes):
        index = _walk(changes, index, topics, found)
    return found


def _walk(changes: list[Change], index: int, topics: dict[int, set[int]], found: list[HalfSend]) -> int:
    """Skip one record and those that belong to it. Returns the index after them."""
    change = changes[index]
    if not isinstance(change, Passed):
        return index + 1
    # None: not a topic but a forwarder, or a topic that the salvaged state does not have.
    subscriptions = topics.get(change.entity)
    stored: list[int] = []
    behind = index + 1
    for _ in range(change.copies):
        # These may occur between two copies and are none.
        while behind < len(changes) and isinstance(changes[behind], (Declared, Duplicated)):
            behind += 1
        if behind >= len(changes) or not isinstance(changes[behind], (Sent, Copied, Passed)):
            break
        # The record belongs to another send: the tree of this one ends here. A forwarder has one target, which needs no
        # check.
        if subscriptions is not None and changes[behind].entity not in subscriptions:
            break
        stored.append(changes[behind].entity)
        # Depth first, as it was written: a copy may be the root of a tree of its own, where it is forwarded.
        behind = _walk(changes, behind, topics, found)
    if len(stored) < change.copies:
        # After its copies: an incomplete tree inside of this one is reported before it.
        found.append(HalfSend(index, change, tuple(stored)))
    return behind
