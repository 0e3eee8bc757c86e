"""What every handler of the HTTP endpoint works with: the broker, the settings, and those who decide and count.

One `Service` exists per application. `broker` is asked for at every request, because a server whose store failed
opens it again: until then asking raises StoreUnavailable, which is answered with 503.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar, cast

from unibus.bus.api.broker import Broker
from unibus.bus.management.jobs.jobs import Jobs
from unibus.core.access.rights import Right
from unibus.endpoints.http.overview import Overview
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.settings import HttpSettings
from unibus.endpoints.http.statistics import Statistics
from unibus.endpoints.http.unknown_names import UnknownNames
from unibus.endpoints.server_control import ServerControl

T = TypeVar("T")


class ServingBroker(Protocol):
    """The server's hold on its bus."""

    @property
    def broker(self) -> Broker:
        """StoreUnavailable while the store is being opened again."""

    @property
    def interrupted(self) -> asyncio.Event:
        """Set when the server stops, and when the store has failed: what waits for messages has to end."""

    @property
    def control(self) -> ServerControl:
        """What operators may see of the process, and do with it."""

    def report(self, error: BaseException) -> None:
        """An operation has raised this. After StoreFailed the store is opened again."""


class Authorization(Protocol):
    def check(self, request: Request, right: Right, target: str) -> str:
        """Return the name of the rule that allows it; Unauthorised or Forbidden otherwise."""

    def check_own_scope(self, request: Request, right: Right) -> str:
        """The same for what the token is for, whatever that is."""

    def viewer(self, request: Request, right: Right) -> Callable[[str], bool]:
        """Which entities the caller may see: those on which it has the right. Unauthorised as `check`."""

    def check_forwarding(self, request: Request, forward_to: str, forward_dead_letters_to: str) -> None:
        """Whether the caller may manage the targets of forwarding, too. Names of entities, empty for none."""


class Observer(Protocol):
    """Counts and logs what was answered."""

    def answered(self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str) -> None:
        """`error` is the code of the error, empty for none; `rule` is the authorization rule, empty for none."""

    @property
    def statistics(self) -> Statistics:
        """What was counted so far, for the metrics."""


class Service:
    """`settings` default to those of a server that was started without any. `document` gives the OpenAPI document."""

    def __init__(
        self,
        serving: ServingBroker,
        authorization: Authorization,
        observer: Observer,
        body_bytes_max: int,
        settings: HttpSettings | None = None,
    ) -> None:
        self._serving = serving
        self.authorization = authorization
        self.observer = observer
        self.body_bytes_max = body_bytes_max
        self.settings = HttpSettings() if settings is None else settings
        self.unknown_names = UnknownNames()
        self.overview = Overview(self.settings.stalled_after_s)
        self.document: Callable[[], Mapping[str, object]] = dict
        self.jobs = Jobs(self)
        self._watched: Broker | None = None
        self._shared: dict[object, object] = {}
        self._created_ns = 0

    @property
    def broker(self) -> Broker:
        """StoreUnavailable while the store is being opened again."""
        broker = self._serving.broker
        if broker is not self._watched:  # The first one, or that of a store that was opened again.
            self._watched = broker
            self._shared = {}
            broker.watch_filters(self.observer.statistics.filters)
        return broker

    def shared(self, make: Callable[[Broker], T]) -> T:
        """What all requests have in common, made when the first one needs it, and again for another broker."""
        broker = self.broker
        found = self._shared.get(make)
        if found is None:
            found = self._shared[make] = make(broker)
        return cast(T, found)

    @property
    def created_ns(self) -> int:
        """When the namespace was created: the same instant as long as the server runs, whatever is deleted."""
        if not self._created_ns:
            self._created_ns = self.broker.created_ns()
        return self._created_ns

    @property
    def control(self) -> ServerControl:
        return self._serving.control

    @property
    def interrupted(self) -> asyncio.Event:
        """The event of the broker as it is now: asked for before waiting at it."""
        return self._serving.interrupted

    def report(self, error: BaseException) -> None:
        """To be called with every StoreFailed: the server finds it by itself only seconds later."""
        self._serving.report(error)
