"""`unibus check`: verify the files of a store."""

from typing import TYPE_CHECKING, Annotated

import typer

from unibus.cli.files.inspection_view import Kind, show
from unibus.cli.terminal.report import ExitCode

if TYPE_CHECKING:
    from unibus.stores.inspection.findings import Inspection


def check(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A SQLite file, a JSON folder, or its URL.", show_default=False)
    ],
) -> ExitCode:
    """Check a store: records, counts, and that history matches the state.

    It only reads. A SQLite file can be checked while a program owns it, but not while a server does. Exit code 1 if it
    is damaged.
    """
    from unibus.cli.connection.servers import refuse_served
    from unibus.stores.inspection.repair import check as inspect

    refuse_served(file, "check")
    inspection: Inspection = inspect(file)
    show(inspection, Kind.CHECK, file)
    return ExitCode.OK if inspection.ok else ExitCode.FAILED
