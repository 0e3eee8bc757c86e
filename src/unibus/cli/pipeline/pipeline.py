"""`unibus pipeline`: analytics over the whole history of a bus, on Spark. Its commands are in this folder.

Spark, Arrow and Delta are imported only when a command needs them: they are extras, and take seconds.
"""

import typer

from unibus.cli.pipeline.generate import generate
from unibus.cli.pipeline.maintenance import compact, rebuild, vacuum
from unibus.cli.pipeline.report import report, sql, trace
from unibus.cli.pipeline.run import run
from unibus.cli.pipeline.serve import serve
from unibus.cli.pipeline.status import status

pipeline = typer.Typer(name="pipeline", help="Analyse the history of the bus with Spark: reports and SQL.")


@pipeline.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for command in (run, status, report, sql, trace, rebuild, compact, vacuum, serve, generate):
    pipeline.command()(command)
