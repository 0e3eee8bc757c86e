"""Which bus a command works on: `--url`, else UNIBUS_URL, else the file unibus.db in the current folder.

The value is a store or the address of a server. Only `send` creates a missing store or queue. Commands that read raise
an error instead, because an empty new file would hide a mistyped name.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, TypeAlias
from urllib.parse import unquote, urlsplit

import typer

from unibus.errors import EntityNotFound, StoreUnavailable, UsageError
from unibus.near_names import hint_for_name

DEFAULT_STORE: Final = "unibus.db"

Url: TypeAlias = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="UNIBUS_URL",
        metavar="URL",
        help="A file or the URL of a store, also while a server runs on it; or a server: http://host:5300, "
        "https://rule:key@host, or a connection string. UNIBUS_KEY holds its key, UNIBUS_CA its CA certificate.",
    ),
]
Queue: TypeAlias = Annotated[
    str, typer.Argument(metavar="QUEUE", help="A queue, or topic/Subscriptions/name.", show_default=False)
]
DeadLetters: TypeAlias = Annotated[bool, typer.Option("--dead-letters", help="Use its dead-letter queue instead.")]


def is_server(given: str) -> bool:
    """Whether `given` is the address of a server. Decided by its text, so that local commands import no client."""
    start = given.strip().casefold()
    return start.startswith(("http://", "https://")) or ("endpoint=" in start and ";" in start)


def store_url(given: str, makes: bool = False) -> str:
    """The URL to open. Raises StoreUnavailable if the file does not exist, unless the command creates it (`makes`)."""
    from unibus.bus.store_url import url_of
    from unibus.stores.schemes import kept_in

    _refuse_address(given)
    url = url_of(given)
    if not url:
        raise UsageError(
            f"{given} keeps messages in memory only, and this command would lose them when it ends",
            "name a file: --url bus.db",
        )
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    kind = kept_in(parts.scheme)
    if not makes and path and kind and not Path(path).exists():
        raise StoreUnavailable(
            f"{kind} {path} does not exist",
            "`unibus send` creates it; --url or UNIBUS_URL names another store, or a server: --url http://localhost:5300",
        )
    return url


def _refuse_address(given: str) -> None:
    """Raises UsageError for what is neither a store nor the address of a server. `send` would create a file of that
    name and succeed."""
    from unibus.bus.store_url import is_address, is_connection_string
    from unibus.stores.schemes import is_store_scheme

    if is_address(given):
        raise UsageError(
            f"{given} looks like a server, but without http:// it names a file",
            f"write http://{given} for the server, ./{given} for a file of that name",
        )
    if is_connection_string(given):
        raise UsageError(
            "the connection string of --url is not complete",
            "write Endpoint=sb://HOST:5300;SharedAccessKeyName=RULE;SharedAccessKey=KEY, in quotes for the shell",
        )

    scheme, separator, _ = given.partition("://")
    if separator and not is_store_scheme(scheme):
        raise UsageError(
            f"--url starts with {scheme}://, which is neither a store nor a server",
            "a file is sqlite:///FILE; a server is http://HOST:5300, https://HOST:5300, or a connection string",
        )


def entity_name(queue: str, dead_letters: bool) -> str:
    from unibus.core.flow.deadletter import is_sub_queue, sub_queue

    return sub_queue(queue) if dead_letters and not is_sub_queue(queue) else queue


def not_found(name: str, known: Iterable[str]) -> EntityNotFound:
    """The error for an unknown entity, with the name that was probably meant as the hint."""
    from unibus.core.lifecycle.state.entity import subscription_path

    topic, _, last = name.rpartition("/")
    names = list(known)
    folded = {each.casefold(): each for each in names}
    meant = folded.get(subscription_path(topic, last).casefold(), "")
    if meant:
        return EntityNotFound(f"there is no queue or subscription {name!r}", f"write {meant}: it is a subscription")
    hint = hint_for_name(name, names, "`unibus entities` lists all of them, `unibus send` creates a queue")
    return EntityNotFound(f"there is no queue or subscription {name!r}", hint)
