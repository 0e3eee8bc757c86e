"""Settings of entities: what is rejected, with which error, and what the others mean."""

import pytest

from unibus.core.lifecycle.state.entity import QUEUE, Entity
from unibus.core.lifecycle.state.settings import DEFAULTS, EntitySettings, checked_settings, shown
from unibus.errors import ConfigInvalid

SECOND = 1_000_000_000


def test_the_defaults_are_valid_and_mean_what_they_say() -> None:
    assert checked_settings(DEFAULTS) == DEFAULTS
    settings = EntitySettings({})
    assert (settings.lock_ns, settings.delivery_count_max) == (60 * SECOND, 10)
    assert (settings.ttl_ns, settings.dedup_ns, settings.count_max) == (14 * 24 * 3600 * SECOND, 0, 0)
    assert (settings.by_priority, settings.requires_session, settings.forward_to) == (True, False, "")
    assert settings.mark_window_ns() == 600 * SECOND
    assert settings.as_dict() == DEFAULTS


def test_only_what_was_given_is_kept() -> None:
    given = checked_settings({"lock_duration": 5, "forward_to": "other"})
    assert given == {"lock_duration": 5.0, "forward_to": "other"}
    settings = EntitySettings(given)
    assert (settings.lock_ns, settings.forward_to, settings.given) == (5 * SECOND, "other", given)


@pytest.mark.parametrize(
    "given",
    [
        {"lock_duration": 0},
        {"lock_duration": 301},
        {"lock_duration": None},
        {"lock_duration": "soon"},
        {"default_ttl": -1},
        {"dedup_window": 19},
        {"dedup_window": 8 * 24 * 3600},
        {"max_delivery_count": 0},
        {"max_delivery_count": 1.5},
        {"max_delivery_count": True},
        {"max_size_mb": 0},
        {"max_count": -1},
        {"requires_session": 1},
        {"forward_to": ""},
        {"forward_to": 5},
        {"ordering": "random"},
        {"status": "asleep"},
        {"status": None},
        {"status": ["active"]},
        {"auto_delete_on_idle": 299},
        {"user_metadata": "x" * 1_025},
        {"user_metadata": 5},
        {"authorization_rules": "{}"},
        {"max_message_size_kb": 0},
        {"max_message_size_kb": 102_401},
        {"enable_express": 1},
        {"support_ordering": None},
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid, match=next(iter(given))):
        checked_settings(given)


def test_a_slip_of_the_pen_gets_a_hint() -> None:
    with pytest.raises(ConfigInvalid, match="max_delivery_count"):
        checked_settings({"max_delivery_counts": 3})


@pytest.mark.parametrize("name", ["default_ttl", "dedup_window", "forward_to", "forward_dead_letters_to"])
def test_none_switches_off(name: str) -> None:
    assert checked_settings({name: None}) == {name: None}
    settings = EntitySettings({"default_ttl": None})
    assert settings.ttl_ns == 0


def test_changed_settings_count_for_keys_that_are_known() -> None:
    entity = Entity(1, "q", QUEUE, {"dedup_window": 20.0})
    entity.mark("k", 0)
    assert not entity.is_known("k", 20 * SECOND)
    entity.change_settings({"dedup_window": 60.0})
    assert entity.is_known("k", 59 * SECOND)


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        ("active", True, True),
        ("send_disabled", False, True),
        ("receive_disabled", True, False),
        ("disabled", False, False),
    ],
)
def test_a_status_says_who_may_do_what(status: str, sends: bool, receives: bool) -> None:
    settings = EntitySettings(checked_settings({"status": status}))
    assert (settings.sends, settings.receives) == (sends, receives)


def test_keys_are_not_shown() -> None:
    assert shown({"authorization_rules": "[secret]", "max_count": 1}) == {"authorization_rules": "***", "max_count": 1}
    assert shown({"authorization_rules": None}) == {"authorization_rules": None}
