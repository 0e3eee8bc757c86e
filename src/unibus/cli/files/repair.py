"""`unibus repair`: write a new store with everything that can be recovered from the files of a damaged one."""

from typing import Annotated

import typer

from unibus.cli.files.inspection_view import Kind, show


def repair(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A SQLite file, a JSON folder, or its URL.", show_default=False)
    ],
    to: Annotated[str, typer.Option("--to", metavar="NEW", help="Where to write the new store.", show_default=False)],
) -> None:
    """Write a new store with everything recoverable from a damaged one.

    It lists each damage and its effect. The original is never changed, and an undamaged store is not written again.
    """
    from unibus.cli.connection.servers import refuse_served
    from unibus.stores.inspection.repair import repair as rewrite

    refuse_served(file, "repair")
    inspection = rewrite(file, to)
    show(inspection, Kind.REPAIR, to)
