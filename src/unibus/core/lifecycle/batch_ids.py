# mypyc: compiled
"""Batches with an id: a copy of a batch gets the answer of the first one, and is never applied a second time.

    known id                                  ──▶ the same results
    unknown, and the first attempt is recent  ──▶ applied, and remembered in the same group of the journal
    unknown, and the first attempt is older   ──▶ StoreFailed: it may have been applied, and the store has forgotten it

Every copy has the store time of the first attempt (`first_ns`), which is what makes the last two different: an unknown
id alone cannot show whether the batch was never applied, or was applied and forgotten (state/applied_batches.py).
"""

from typing import Final

from mypy_extensions import i64

from unibus.core.lifecycle.commands import SendResult
from unibus.core.lifecycle.state.applied_batches import KEPT_NS
from unibus.core.lifecycle.state.apply import record
from unibus.core.lifecycle.state.changes import Applied
from unibus.core.lifecycle.state.state import StoreState
from unibus.errors import StoreFailed, UsageError
from unibus.limits import BATCH_ID_CHARS_MAX

_HINT: Final = "look for the effect of the batch before you send it again under another id"


def find_batch(state: StoreState, batch_id: str, first_ns: i64, now_ns: i64) -> list[object] | None:
    """The results of the batch if it was applied; None if it was not, and may be. Else StoreFailed: unknown."""
    if len(batch_id) > BATCH_ID_CHARS_MAX:
        raise UsageError(f"the batch id has {len(batch_id)} characters, at most {BATCH_ID_CHARS_MAX} are allowed")
    found = state.batches.known.get(batch_id)
    if found is not None:
        return [_result_of(each) for each in found.results]
    first_ns = first_ns or now_ns
    if first_ns <= state.batches.evicted_ns or first_ns < now_ns - KEPT_NS:
        raise StoreFailed(
            f"it is unknown whether batch {batch_id!r} was applied: its first attempt is older than the ids of batches "
            "that the store remembers; nothing was applied now",
            _HINT,
        )
    if first_ns > now_ns + KEPT_NS:
        # It would be the newest age for as long, and every batch after it would be refused once it is evicted.
        raise StoreFailed(
            f"it is unknown whether batch {batch_id!r} was applied: its first attempt has a later time than the store; "
            "nothing was applied now",
            _HINT,
        )
    return None


def remember_batch(state: StoreState, batch_id: str, first_ns: i64, results: list[object], now_ns: i64) -> None:
    """Record that the batch was applied, after its other changes and in the same group."""
    age_ns = max(now_ns, first_ns, state.batches.last_ns + 1)
    record(state, Applied(now_ns, 0, 0, batch_id, age_ns, [_form_of(each) for each in results]))


def _form_of(result: object) -> object:
    """A result as plain values, which every journal can write: None, a bool and an instant as they are."""
    if not isinstance(result, SendResult):
        return result
    return [
        result.entity,
        result.sequence,
        result.id,
        result.duplicate,
        result.is_routed,
        result.is_forwarded_duplicate,
        result.durability,
    ]


def _result_of(form: object) -> object:
    if not isinstance(form, list):
        return form
    entity, sequence, message_id, duplicate, is_routed, is_forwarded_duplicate, durability = form
    result = SendResult(entity, sequence, message_id, duplicate)
    result.is_routed = is_routed
    result.is_forwarded_duplicate = is_forwarded_duplicate
    result.durability = durability
    return result
