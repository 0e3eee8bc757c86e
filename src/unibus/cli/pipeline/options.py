"""Where the lake is, and which Spark is asked: options that all commands of the pipeline share."""

import contextlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from unibus.cli.terminal.folders import check_can_write
from unibus.cli.terminal.output import aside
from unibus.errors import BusError, ExtraMissing, StoreUnavailable, UsageError
from unibus.stores.files.local_folder import local_folder

if TYPE_CHECKING:
    from unibus.pipeline.lake import Lake
    from unibus.pipeline.session import Session

DEFAULT_LAKE: Final = "unibus-lake"
DEFAULT_CAPTURE: Final = "unibus-capture"
EXTRA_HINT: Final = "pip install 'unibus[pipeline]'"


def _lake_path(given: Path) -> Path:
    """Before any command runs: what is no folder is refused, and nothing was made."""
    return Path(local_folder(given, "a lake"))


LakeDir: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--lake", envvar="UNIBUS_LAKE", metavar="DIR", callback=_lake_path, help="The folder with the tables."
    ),
]
Master: TypeAlias = Annotated[
    str | None,
    typer.Option("--master", envvar="UNIBUS_SPARK_MASTER", metavar="URL", help="spark://host:7077, local[2]."),
]
Connect: TypeAlias = Annotated[
    str | None,
    typer.Option("--connect", envvar="UNIBUS_SPARK_CONNECT", metavar="sc://…", help="A Spark Connect server."),
]
Limit: TypeAlias = Annotated[int, typer.Option(min=1, max=1_000_000, metavar="N", help="At most so many rows.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="JSON Lines, also on a terminal.")]
Csv: TypeAlias = Annotated[bool, typer.Option("--csv", help="Comma-separated, with a line of names.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True)
class Where:
    """Which Spark works. `quick`: it is asked once, so it need not be compiled well."""

    master: str | None = None
    connect: str | None = None

    def session(self, lake: Path, quick: bool = False) -> "Session":
        """One line, and no traceback, where something is missing."""
        from unibus.pipeline.session import open_session

        _check_log()
        aside("starting Spark …" if not self.connect else f"connecting to {self.connect} …")
        with extras():
            return open_session(self.master, self._with_token(lake), quick=quick)

    def _with_token(self, lake: Path) -> str | None:
        """The server of this very lake asks for a token, which stands in its folder."""
        from unibus.pipeline.serving.client import address_of

        address = address_of(lake)
        if self.connect is None or address is None or "token=" in self.connect:
            return self.connect
        plain = address.connect.partition("/;")[0]
        same = {plain, plain.replace("localhost", "127.0.0.1")}
        return address.connect if self.connect.rstrip("/") in same else self.connect


@contextlib.contextmanager
def extras() -> Iterator[None]:
    """What is not installed is a matter of how the command is called, and told in one line."""
    try:
        yield
    except ExtraMissing as error:
        raise UsageError(error.what, error.hint) from error
    except ModuleNotFoundError as error:
        raise UsageError(f"`unibus pipeline` needs {error.name}, which is not installed", EXTRA_HINT) from error


def open_lake(path: Path, makes: bool = False) -> "Lake":
    """StoreUnavailable where there is none, unless the command `makes` it, and where none can be made."""
    with extras():
        from unibus.pipeline.lake import Lake

    if makes:
        check_can_write("--lake DIR", path)
    elif not (path / "lake.json").exists():
        raise no_lake(path)
    return Lake(str(path))


def no_lake(path: Path) -> BusError:
    if path.exists():
        return StoreUnavailable(f"{path} is no lake", "`unibus pipeline run --once` makes one; --lake names another")
    return StoreUnavailable(
        f"there is no lake {path}",
        "`unibus pipeline run --once` makes it; --lake or UNIBUS_LAKE names another",
    )


def needs_pipeline() -> None:
    """Early: before a lake is made or a question asked."""
    _check_log()
    for name in ("pyarrow", "deltalake", "pyspark"):
        if importlib.util.find_spec(name) is None:
            raise UsageError(f"`unibus pipeline` needs {name}, which is not installed", EXTRA_HINT)


def _check_log() -> None:
    """Before Spark is started: what it has to say would go nowhere."""
    path = os.environ.get("UNIBUS_SPARK_LOG")
    if path:
        try:
            open(path, "ab").close()
        except OSError as error:
            raise UsageError(
                f"UNIBUS_SPARK_LOG is {path}, which cannot be written: {error.strerror}",
                "name another file, or unset it",
            ) from error
