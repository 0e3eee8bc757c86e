"""Time to live: which one applies, when a message expires, and the ends of the scale."""

import pytest

from unibus.core.flow.expiry import INSTANT_NS_MAX, effective_ttl_ns, expires_at_ns, is_expired
from unibus.errors import UsageError


@pytest.mark.parametrize(
    ("message", "channel", "effective"),
    [(0, 0, 0), (5, 0, 5), (0, 7, 7), (5, 7, 5), (9, 7, 7), (7, 7, 7), (10**22, 0, 10**22)],
)
def test_the_shorter_ttl_that_is_set_wins(message: int, channel: int, effective: int) -> None:
    assert effective_ttl_ns(message, channel) == effective


def test_a_message_without_ttl_never_expires() -> None:
    assert expires_at_ns(1_000, 0) == 0
    assert not is_expired(0, INSTANT_NS_MAX)
    assert not is_expired(0, 0)


def test_a_message_is_expired_from_its_very_instant_on() -> None:
    expires_ns = expires_at_ns(1_000, 50)
    assert expires_ns == 1_050
    assert [is_expired(expires_ns, now_ns) for now_ns in (0, 1_049, 1_050, 1_051)] == [False, False, True, True]


@pytest.mark.parametrize("ttl_ns", [INSTANT_NS_MAX, INSTANT_NS_MAX - 999, 10**30])
def test_a_far_expiry_saturates_and_does_not_wrap_around(ttl_ns: int) -> None:
    expires_ns = expires_at_ns(1_000, ttl_ns)
    assert expires_ns == INSTANT_NS_MAX == 2**63 - 1
    assert not is_expired(expires_ns, INSTANT_NS_MAX - 1)


def test_the_last_instant_that_fits_is_kept_exactly() -> None:
    assert expires_at_ns(1_000, INSTANT_NS_MAX - 1_001) == INSTANT_NS_MAX - 1


def test_an_expiry_at_the_epoch_does_not_read_as_never() -> None:
    # A virtual clock may start before it.
    assert is_expired(expires_at_ns(-50, 50), 1)
    assert is_expired(expires_at_ns(-50, 20), -30)


def test_a_negative_ttl_is_refused() -> None:
    for call in (lambda: effective_ttl_ns(-1, 5), lambda: effective_ttl_ns(5, -1), lambda: expires_at_ns(0, -1)):
        with pytest.raises(UsageError, match="negative"):
            call()
