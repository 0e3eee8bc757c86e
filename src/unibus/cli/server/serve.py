"""`unibus serve`: run a server on a store until Ctrl-C or SIGTERM."""

import asyncio
import importlib.util
from typing import TYPE_CHECKING, Any

import typer

from unibus.cli.server.server_options import CONFIG_FILE, ServeOptions, flags_of
from unibus.cli.terminal.options import with_options
from unibus.config.sources import Configuration, read_configuration
from unibus.core.access.rules import WELL_KNOWN_KEY
from unibus.errors import ExtraMissing
from unibus.extras import install_extra

if TYPE_CHECKING:
    from unibus.endpoints.server.server import Server


@with_options(ServeOptions)
def serve(options: Any) -> None:
    """Run a server on a store: HTTP and HTTPS, for unibus and for Azure Service Bus clients.

    A missing store is created. After Ctrl-C or SIGTERM it finishes the requests in flight and exits with code 0.

    There is no option for worker processes: a store has one owner, and more processes would only wait for each other.

    Every option can also be a variable (--log-level is UNIBUS_LOG_LEVEL) or a line of a file: see `unibus init`.
    """
    configuration = read_configuration(flags_of(options), file=getattr(options, CONFIG_FILE))
    _check_packages()
    from unibus.endpoints.log_lines import end_log, start_log
    from unibus.endpoints.server.event_loop import new_event_loop
    from unibus.endpoints.server.garbage_collection import fewer_collections

    settings = configuration.settings
    handler = start_log(settings.log_level, settings.log_format)
    try:
        with fewer_collections(), asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(configuration))
    finally:
        end_log(handler)


async def _serve(configuration: Configuration) -> None:
    from unibus.endpoints.server.server import Server
    from unibus.endpoints.transport.connections import log

    for warning in configuration.warnings:
        log.warning(warning)
    server: Server[Any] = Server(configuration.settings)
    await server.run(lambda: _show(server))


def _show(server: "Server[Any]") -> None:
    """Prints the addresses to connect to, for people and scripts. The log goes to the error stream."""
    schemes = ["http", "https"] if server.settings.tls else ["http"]
    ports = dict.fromkeys([port for _, port in server.addresses])
    typer.echo(f"endpoints          {' '.join([f'{each}://localhost:{port}' for port in ports for each in schemes])}")
    typer.echo(f"page               http://localhost:{server.port}/ (API reference: /docs)")
    typer.echo(f"connection string  {server.connection_string}")
    if f"SharedAccessKey={WELL_KNOWN_KEY};" in server.connection_string:
        typer.echo(f"key                {WELL_KNOWN_KEY} is the key itself: no secret, for programs on this machine")
    if server.ca_file is not None:
        typer.echo(f"CA certificate     {server.ca_file} (and {schemes[0]}://localhost:{server.port}/unibus/v1/ca.pem)")
    typer.echo("Ctrl-C stops it")


def _check_packages() -> None:
    for package in ("cryptography", "fastapi", "httptools", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise ExtraMissing(f"`unibus serve` needs the package {package}", install_extra("server"))
