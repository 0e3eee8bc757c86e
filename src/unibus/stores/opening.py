"""From a URL to an open store: the options of the URL, checked, and the journal of its scheme in an `EmbeddedStore`.

What a scheme is and how its journal is made is in the table of stores/schemes.py. Options are checked before the
journal is opened, so a mistake in them creates no file.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import parse_qsl

from unibus.clock import Clock, Timers
from unibus.core.lifecycle.state.entity import QUEUE, SUBSCRIPTION, TOPIC
from unibus.errors import BusError, ConfigInvalid, StoreFailed, StoreFull, StoreUnavailable, UsageError
from unibus.limits import HISTORY_AGE_S_DEFAULT, MEMORY_BUDGET_MB_DEFAULT, RESERVE_MB_DEFAULT
from unibus.near_names import hint_for_name
from unibus.safe_log import SafeLogger
from unibus.stores.engine.embedded import EmbeddedStore
from unibus.stores.engine.snapshot import EVERY_CHANGES
from unibus.stores.engine.snapshot_limits import limits_for
from unibus.stores.schemes import (
    JournalSettings,
    StoreScheme,
    find_scheme,
    installed_openers,
    path_in,
    spellings,
    split_url,
    unknown_scheme,
)
from unibus.stores.seam.durability import Durability
from unibus.stores.seam.journal import Journal
from unibus.stores.seam.store import Store

log = SafeLogger("unibus")

_MOST: Final = {"max_queues": QUEUE, "max_topics": TOPIC, "max_subscriptions": SUBSCRIPTION}
_OPTIONS: Final = (
    "durability",
    "memory_budget_mb",
    "history_age",
    "history_bytes",
    "domain",
    "capture",  # For the bus, which starts a capture beside the store: capture/child.py.
    "reserve_mb",
    *_MOST,
)


def open_store(url: str, clock: Clock, timers: Timers) -> Store:
    """Open the store that the URL names. Raises StoreUnavailable, or a kind of it, when it cannot be opened."""
    scheme, separator, _ = url.partition("://")
    row = find_scheme(scheme)
    if not separator and (row is None or row.kept_in):  # `memory` is complete by itself.
        raise UsageError(f"{url!r} is not the URL of a store", "write sqlite:///file.db, or memory://")
    if row is not None:
        return _open_embedded(url, row, clock, timers)
    # Our own schemes first: a package cannot replace them.
    load = installed_openers().get(scheme)
    if load is None:
        raise unknown_scheme(scheme)
    return load()(url, clock, timers)


def _open_embedded(url: str, row: StoreScheme, clock: Clock, timers: Timers) -> EmbeddedStore:
    path = path_in(url, row)
    # All options are checked before `row.journal` creates a file or takes a lock.
    chosen = _Chosen(url, _options(split_url(url).query), row)
    with _opening(path, row):
        return _embedded(row.journal(path, chosen.journal), chosen, clock, timers)


@contextmanager
def _opening(path: str, row: StoreScheme) -> Iterator[None]:
    """A disk that fails now makes the store unavailable: no call has begun, so none has an unknown outcome.

    Where the folder does not exist, the path may be relative or absolute by mistake: the hint has both URLs."""
    try:
        yield
    except StoreUnavailable as error:
        if (
            not row.kept_in
            # Not for its kinds: StoreBusy and StoreDamaged have found the file, so the path is right.
            or type(error) is not StoreUnavailable
            or os.path.isdir(os.path.dirname(os.path.abspath(path)))
        ):
            raise
        raise StoreUnavailable(error.what, f"create the folder first, or write {spellings(row, path)}") from error
    except (OSError, StoreFull) as error:  # A StoreFailed is an OSError too.
        if isinstance(error, (StoreFailed, StoreFull)):
            what = error.what
        else:
            what = f"cannot open {path}: {error.strerror or error}"
        raise StoreUnavailable(what, "free space or repair the disk, and open the store again") from error


class _Chosen:
    """The options of a URL as values."""

    def __init__(self, url: str, options: dict[str, str], row: StoreScheme) -> None:
        level = options.get("durability")
        # None: the level of the journal itself, which is D2 for files.
        self.durability = None if level is None else Durability.of(level)
        if self.durability is not None and self.durability > Durability.D2:
            raise UsageError(
                f"{url} cannot have durability {self.durability.name}: D2 is the highest level", "choose D0, D1 or D2"
            )
        history_age_s = _number(options, "history_age", HISTORY_AGE_S_DEFAULT)
        history_bytes = round(_number(options, "history_bytes", row.history_bytes))
        reserve_bytes = round(_number(options, "reserve_mb", RESERVE_MB_DEFAULT) * 1024 * 1024)
        self.journal = JournalSettings(options.get("domain", "local"), history_age_s, history_bytes, reserve_bytes)
        self.memory_budget_mb = _number(options, "memory_budget_mb", MEMORY_BUDGET_MB_DEFAULT)
        self.most = {kind: round(_number(options, name, 0)) for name, kind in _MOST.items() if name in options}
        self.snapshot_every = row.snapshot_every or EVERY_CHANGES
        # History before the last snapshot can be pruned, so its limits decide how often one is needed
        # (snapshot_limits.py).
        self.snapshot_limits = limits_for(history_bytes, history_age_s, row.snapshot_bytes_max, row.rewrites)


def _embedded(journal: Journal, chosen: _Chosen, clock: Clock, timers: Timers) -> EmbeddedStore:
    try:
        return EmbeddedStore(
            journal,
            clock,
            timers,
            durability=chosen.durability,
            memory_budget_mb=chosen.memory_budget_mb,
            snapshot_every=chosen.snapshot_every,
            snapshot_limits=chosen.snapshot_limits,
            most=chosen.most,
        )
    except BaseException:
        try:
            # Recovery has failed, or an option does not fit: release the owner's lock, or the next try in this process
            # would be refused.
            journal.close()
        except BusError as error:
            log.warning("closing %s after an error: %s", journal.url, error)  # The first error is the one to raise.
        raise


def _options(query: str) -> dict[str, str]:
    # With blank values: `?durability=` is a mistake to report, and not an option that is absent.
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise ConfigInvalid(f"a store has no option {unknown[0]!r}", hint_for_name(unknown[0], _OPTIONS))
    return options


def _number(options: dict[str, str], name: str, default: float) -> float:
    given = options.get(name)
    if given is None:
        return default
    try:
        number = float(given)
    except ValueError:
        # Refused below, with the same text as a negative number. So are NaN and infinity, for which the comparison is
        # false.
        number = -1.0
    if not 0 <= number < 1e18:
        raise ConfigInvalid(f"the store option {name} must be a number of 0 or more, got {given!r}")
    return number
