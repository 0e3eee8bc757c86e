"""The status of a server as a record: for the command line, the web page and other tools."""

import platform
from typing import TYPE_CHECKING, Final

import msgspec

from unibus.bus.build_kind import BUILD
from unibus.counting import counted

if TYPE_CHECKING:
    from unibus.bus.api.broker import HealthStatus

NAME: Final = "unibus"


class ServerStatus(msgspec.Struct, frozen=True):
    """Rates are None if there is no earlier reading to compare with: `server/live` has them from its second event on.

    `reasons` says why `health` is not `healthy`. `store_id` is that of the store since it was created, `incarnation`
    since it was opened: both are empty while it is being opened again.
    """

    name: str
    version: str
    build: str
    python: str
    pid: int
    started_ns: int
    uptime_s: float
    store: str
    durability: str
    health: str
    reasons: list[str]
    connections: int
    requests_in_flight: int
    requests_per_s: float | None = None
    in_per_s: float | None = None
    out_per_s: float | None = None
    entities: int | None = None
    active: int | None = None
    dead: int | None = None
    messages: int = 0
    history_bytes: int = 0
    store_id: str = ""
    incarnation: str = ""
    last_error: int = 0
    """The number of the last warning or error in the log. If it has changed, there are new ones to read."""


def build() -> tuple[str, str]:
    """The build of this package ("compiled" or "plain"), and the Python that runs it."""
    return BUILD, f"{platform.python_implementation()} {platform.python_version()}"


def reasons_of(health: "HealthStatus", stalled: int) -> list[str]:
    """Why the server is not healthy, as texts for humans."""
    found = [health.problem] if health.problem else []
    if stalled:
        have = "has" if stalled == 1 else "have"
        found.append(f"{counted(stalled, 'queue')} {have} a backlog and no consumer any more")
    return found
