"""`unibus repair`: a new store with everything that the files of a damaged one prove."""

from typing import Annotated

import typer

from unibus.cli.files.inspection_view import Kind, show


def repair(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A SQLite file, a JSON folder, or its URL.", show_default=False)
    ],
    to: Annotated[str, typer.Option("--to", metavar="NEW", help="Where to write the new store.", show_default=False)],
) -> None:
    """Write a new store with everything that the files of a damaged store prove.

    Says what was wrong and what became of it. The original is never changed, and a whole store is not written again.
    """
    from unibus.cli.connection.servers import refuse_served
    from unibus.stores.inspection.repair import repair as rewrite

    refuse_served(file, "repair")
    inspection = rewrite(file, to)
    show(inspection, Kind.REPAIR, to)
