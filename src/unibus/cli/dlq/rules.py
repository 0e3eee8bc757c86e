"""`unibus dlq rules`: recovery rules from a file: show them, test them without effect, apply them.

FILE is a JSON list of rules; without it the default rules apply. `unibus dlq rules show > rules.json` writes the
defaults as a starting point.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unibus.cli.connecting import managed
from unibus.cli.dlq.bulk import carry_out
from unibus.cli.dlq.options import BulkOptions, FilterOptions
from unibus.cli.terminal.options import with_options
from unibus.cli.terminal.output import flush, is_terminal, printable, write, write_json
from unibus.cli.terminal.report import ExitCode
from unibus.cli.terminal.table import CellKind, TableColumn, print_table

if TYPE_CHECKING:
    from unibus.bus.dead_letters.rules import RecoveryRule

rules = typer.Typer(name="rules", help="Apply recovery rules to dead-lettered messages.")


@rules.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


File = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="Rules as JSON; default: the built-in rules."),
]


@dataclass(frozen=True, kw_only=True)
class RulesTryOptions(FilterOptions):
    file: File = None


@dataclass(frozen=True, kw_only=True)
class RulesRunOptions(BulkOptions):
    file: File = None


def rules_in(file: Path | None) -> "tuple[RecoveryRule, ...]":
    from unibus.bus.dead_letters.rules import RecoveryRule

    return RecoveryRule.defaults() if file is None else RecoveryRule.load(file.read_bytes())


@rules.command()
def show(file: File = None) -> None:
    """Show rules; to a pipe as JSON, which is a valid rules file."""
    from unibus.bus.dead_letters.rules import RecoveryRule

    found = rules_in(file)
    if is_terminal():
        _table(found, None)
    else:
        write(RecoveryRule.dump(found).encode())
        flush()


@rules.command()
@with_options(RulesTryOptions)
def test(options: RulesTryOptions) -> None:
    """Show how many dead-lettered messages each rule would match. Nothing is changed."""
    found = rules_in(options.file)
    with managed(options.url) as bus:
        counts = bus.dead_letters().try_rules(found, options.chosen())
    if is_terminal():
        _table(found, counts)
        return
    for number, (rule, count) in enumerate(zip(found, counts, strict=False), 1):
        write_json({"rule": number, **rule.as_dict(), "messages": count})
    write_json({"rule": None, "action": "manual_review", "messages": counts[-1]})
    flush()


@rules.command()
@with_options(RulesRunOptions)
def run(options: RulesRunOptions) -> ExitCode:
    """Apply rules. Messages that no rule matches stay in their dead-letter queue.

    Exit code 1 if some failed, 3 if there were none.
    """
    from unibus.bus.dead_letters.rules import RecoveryRule

    text = RecoveryRule.dump(rules_in(options.file))
    return carry_out(options, "apply the rules to", options.request("rules", rules=text))


def _table(found: "tuple[RecoveryRule, ...]", counts: Sequence[int] | None) -> None:
    columns = [TableColumn("#", CellKind.FIGURE), TableColumn("action"), TableColumn("when")]
    rows = [[str(number), _action(rule), _conditions(rule)] for number, rule in enumerate(found, 1)]
    rows.append(["", "manual_review", "no rule matches"])
    if counts is not None:
        columns.append(TableColumn("messages", CellKind.FIGURE))
        rows = [[*row, f"{count:,}"] for row, count in zip(rows, counts, strict=True)]
    print_table(columns, rows)


def _action(rule: "RecoveryRule") -> str:
    return f"{rule.action} to {printable(rule.target)}" if rule.target else str(rule.action)


def _conditions(rule: "RecoveryRule") -> str:
    given = {name: value for name, value in rule.as_dict().items() if name not in ("action", "target")}
    return ", ".join(f"{name}={printable(str(value))}" for name, value in given.items()) or "always"
