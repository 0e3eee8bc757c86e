"""`unibus access`: the authorization rules of a store, which grant the rights Send, Listen and Manage.

A key is shown once, when it is created, and only with `--show`. No command shows an existing key.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from unibus.cli.connecting import managed
from unibus.cli.connection.bus_option import DEFAULT_STORE, Url
from unibus.cli.terminal.durations import METAVAR, seconds_of
from unibus.cli.terminal.output import aside, flush, is_terminal, printable, write_json
from unibus.errors import StoreBusy, UsageError

if TYPE_CHECKING:
    from unibus.bus.management.settings.access import AccessRule
    from unibus.core.access.rules import AuthorizationRule

access = typer.Typer(name="access", help="Manage authorization rules: names, rights and keys.")

_HERE: Final = "localhost:5300"

Name: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The name of the rule.", show_default=False)]
Entity: TypeAlias = Annotated[
    str, typer.Option("--entity", metavar="NAME", help="A queue or topic; default: the whole namespace.")
]
Show: TypeAlias = Annotated[bool, typer.Option("--show", help="Print the new keys. They cannot be shown later.")]


@access.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@access.command()
def add(
    name: Name,
    rights: Annotated[
        str,
        typer.Option(metavar="LIST", help="Send, Listen, Manage; Manage requires the other two.", show_default=False),
    ],
    entity: Entity = "",
    show: Show = False,
    url: Url = DEFAULT_STORE,
) -> None:
    """Add a rule with two new keys. A missing store is created.

    Once the namespace has a rule, a server no longer accepts the well-known key of the emulator.
    """
    from unibus.bus.management.settings.access import AddRequest

    listed = [each.strip() for each in rights.split(",") if each.strip()]
    with managed(url, makes=not entity) as bus:
        made = bus.access().add(entity, AddRequest(name, listed, show))
    _report("added", made, show)


@access.command()
def rotate(
    name: Name,
    both: Annotated[bool, typer.Option("--both", help="Replace both keys, for a key that has leaked.")] = False,
    entity: Entity = "",
    show: Show = False,
    url: Url = DEFAULT_STORE,
) -> None:
    """Create a new primary key. The old one becomes the secondary, so its tokens stay valid until they expire."""
    from unibus.bus.management.settings.access import RotateRequest

    with managed(url) as bus:
        changed = bus.access().rotate(entity, RotateRequest(name, both, show))
    _report("rotated", changed, show)


@access.command()
def remove(name: Name, entity: Entity = "", url: Url = DEFAULT_STORE) -> None:
    """Remove a rule. Servers then refuse its tokens."""
    with managed(url) as bus:
        removed = bus.access().remove(entity, name)
    _report("removed", removed, False)


@access.command("list")
def list_rules(entity: Entity = "", url: Url = DEFAULT_STORE) -> None:
    """List the rules of the namespace and of all its queues and topics, without their keys."""
    with managed(url) as bus:
        found = bus.access().list(entity)
    if not found:
        aside("no rules: a server accepts the well-known key of the emulator, from this machine only")
    for rule in found:
        _write("", rule, False)
    flush()


@access.command()
def token(
    entity: Entity = "",
    duration: Annotated[
        str, typer.Option("--for", metavar=METAVAR, help="How long it is valid: 90s, 30m, 2h, 7d.")
    ] = "1h",
    connection_string: Annotated[
        str,
        typer.Option(
            envvar="UNIBUS_CONNECTION_STRING",
            metavar="TEXT",
            help="The server, the rule and its key. Default: a server on this machine with the well-known key.",
            show_default=False,
        ),
    ] = "",
    rule: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A rule of the store, for a server on this machine. Works only while no server uses the store.",
            show_default=False,
        ),
    ] = "",
    url: Url = DEFAULT_STORE,
) -> None:
    """Create a token for HTTP: curl -H "Authorization: $(unibus access token)" …"""
    import time

    from unibus.core.access.connection import ConnectionString
    from unibus.core.access.rules import WELL_KNOWN_KEY, WELL_KNOWN_NAME

    given = ConnectionString(_HERE, WELL_KNOWN_NAME, WELL_KNOWN_KEY)
    if rule and connection_string:
        raise UsageError(
            "--rule and --connection-string exclude each other", "use one of them; UNIBUS_CONNECTION_STRING counts, too"
        )
    if rule:
        stored = _stored_rule(url, entity, rule)
        given = ConnectionString(_HERE, stored.name, stored.primary_key)
    elif connection_string:
        given = ConnectionString.parse(connection_string)
    if entity:
        given = dataclasses.replace(given, entity=entity.strip("/"))
    typer.echo(given.token(int(time.time() + seconds_of("--for", duration))))


def _stored_rule(url: str, entity: str, name: str) -> "AuthorizationRule":
    """A rule of the entity, else of the namespace. Raises StoreBusy while a server uses the store."""
    with managed(url) as bus:
        try:
            stored = bus.access().with_keys(entity, name)
        except StoreBusy as error:
            hint = "a running server does not return keys: pass --connection-string, or stop the server"
            raise StoreBusy(error.what, hint, error.holder) from error
    if not stored.enabled:
        raise UsageError(f"rule {stored.name!r} is disabled: servers refuse its tokens", "choose another rule")
    return stored


def _report(action: str, rule: "AccessRule", show: bool) -> None:
    _write(action, rule, show)
    flush()
    if action in ("added", "rotated") and not show:
        aside("the keys were not shown; `unibus access rotate NAME --show` creates a new one and shows it")


def _write(action: str, rule: "AccessRule", show: bool) -> None:
    record: dict[str, object] = {"action": action} if action else {}
    record |= {"name": rule.name, "rights": rule.rights, "entity": rule.entity, "enabled": rule.enabled}
    keys = {"primary_key": rule.primary_key, "secondary_key": rule.secondary_key} if show else {}
    if not is_terminal():
        write_json(record | keys)
        return
    where = printable(rule.entity) if rule.entity else "the namespace"
    state = "" if rule.enabled else " (disabled)"
    typer.echo(f"{action} {printable(rule.name)}: {', '.join(rule.rights)} on {where}{state}".strip())
    for label, key in keys.items():
        typer.echo(f"  {label:<15}{key}")
