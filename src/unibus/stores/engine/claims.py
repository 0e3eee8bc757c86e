# mypyc: compiled
"""From the request of a claim to the rules of core/lifecycle: which messages, in which session, with which tokens."""

from mypy_extensions import i64

from unibus.core.lifecycle.claiming import Claimed, ClaimTerms, claim, claim_deferred, deferred_entries, show_processed
from unibus.core.lifecycle.sending import receiving_from
from unibus.core.lifecycle.sessions import held_session
from unibus.core.lifecycle.state.entity import Session, StoredMessage
from unibus.core.lifecycle.state.state import StoreState
from unibus.core.lifecycle.state.states import LOCKED
from unibus.stores.engine.tokens import Tokens
from unibus.stores.seam.store import ClaimRequest, SessionLock


def claim_as_asked(state: StoreState, tokens: Tokens, request: ClaimRequest, now_ns: i64) -> list[Claimed]:
    """Deliver what was asked for: deferred messages by their sequences, or the next ones."""
    entity = receiving_from(state, request.entity, now_ns)
    session: Session | None = None
    if request.session is not None:
        session = held_session(state, request.entity, request.session[0], request.session[1], now_ns)
    terms = ClaimTerms(request.lock, request.consumer, request.bytes_max, request.ends_with_process, request.starts_max)
    if request.sequences:
        entries = deferred_entries(entity, session, list(request.sequences), request.bytes_max)
        return claim_deferred(state, entries, [tokens.draw() for _ in entries], terms, now_ns)
    # Tokens are drawn before the decision, so that the rules in core need no randomness. Unused ones are thrown away: a
    # token is valid only once it is in a Delivered change.
    drawn = [tokens.draw() for _ in range(min(request.count, max(1, entity.active)))]
    claimed = claim(state, entity, session, drawn, terms, now_ns)
    if request.asks_processed:
        show_processed(entity, claimed, now_ns)
    return claimed


def peeked(entry: StoredMessage) -> Claimed:
    """Without the token of the lock: it belongs to another receiver."""
    return Claimed(entry, b"", entry.lock_ends_ns() if entry.state == LOCKED else 0, entry.delivery_count)


def lock_of(session: Session | None) -> SessionLock | None:
    """The lock of a session that was just accepted; None if there was no session to accept."""
    if session is None or session.token is None:
        return None
    return SessionLock(session.entity.name, session.id, session.token, session.until_ns)


def absent_of(claims: list[Claimed]) -> list[Claimed]:
    """The ones whose data is on disk only."""
    return [claimed for claimed in claims if claimed.data is None]
