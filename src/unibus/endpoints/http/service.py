"""The context of every HTTP handler: the broker, the settings, authorization, and the observer that counts answers.

One `Service` exists for each application. A handler reads `broker` for each request, because a server whose store
failed reopens it: until then `broker` raises StoreUnavailable, which becomes status 503.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar, cast

from unibus.bus.api.broker import Broker
from unibus.bus.management.jobs.job_run import BrokerHolder
from unibus.bus.management.jobs.jobs import Jobs
from unibus.core.access.rights import Right
from unibus.endpoints.http.overview import Overview
from unibus.endpoints.http.request import Request
from unibus.endpoints.http.settings import HttpSettings
from unibus.endpoints.http.statistics import Statistics
from unibus.endpoints.http.unknown_names import UnknownNames
from unibus.endpoints.server_control import ServerControl

T = TypeVar("T")


class ControlledBroker(BrokerHolder, Protocol):
    """A holder of a broker that also reports on its process, and can stop it."""

    @property
    def control(self) -> ServerControl: ...


class Authorization(Protocol):
    def check(self, request: Request, right: Right, target: str) -> str:
        """Return the name of the rule that allows the request; Unauthorised or Forbidden otherwise."""

    def check_own_scope(self, request: Request, right: Right) -> str:
        """The same for the scope of the token itself, whatever that is."""

    def viewer(self, request: Request, right: Right) -> Callable[[str], bool]:
        """A predicate: whether the caller has the right on the entity of that name. Raises as `check` does."""

    def check_forwarding(self, request: Request, forward_to: str, forward_dead_letters_to: str) -> None:
        """Forbidden unless the caller may also manage the targets of forwarding. Names of entities, empty for none."""


class Observer(Protocol):
    """Counts and logs the answers."""

    def answered(self, request: Request, operation: str, status: int, nanoseconds: int, error: str, rule: str) -> None:
        """`error` is the code of the error, empty for none; `rule` is the authorization rule, empty for none."""

    @property
    def statistics(self) -> Statistics:
        """The counts so far, for the metrics."""


class Service:
    """`settings` default to those of a server without configuration. `document` returns the OpenAPI document."""

    def __init__(
        self,
        serving: ControlledBroker,
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
        """StoreUnavailable while the store is being reopened."""
        broker = self._serving.broker
        if broker is not self._watched:  # The first one, or the one of a reopened store.
            self._watched = broker
            self._shared = {}
            broker.watch_filters(self.observer.statistics.filters)
        return broker

    def shared(self, make: Callable[[Broker], T]) -> T:
        """An object that all requests share, created by `make` at the first use, and again after a reopened store."""
        broker = self.broker
        found = self._shared.get(make)
        if found is None:
            found = self._shared[make] = make(broker)
        return cast(T, found)

    @property
    def created_ns(self) -> int:
        """When the namespace was created. Does not change while the server runs, whatever entities are deleted."""
        if not self._created_ns:
            self._created_ns = self.broker.created_ns()
        return self._created_ns

    @property
    def control(self) -> ServerControl:
        return self._serving.control

    @property
    def interrupted(self) -> asyncio.Event:
        """The event of the current broker. Read it before a wait: a reopened store has a new event."""
        return self._serving.interrupted

    def report(self, error: BaseException) -> None:
        """Call this for every StoreFailed: the store may have stopped, which the server notices only seconds later."""
        self._serving.report(error)
