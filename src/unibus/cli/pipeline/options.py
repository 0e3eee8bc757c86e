"""The options that the commands of the pipeline share: which lake, and which Spark."""

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
from unibus.extras import install_extra
from unibus.stores.files.local_folder import local_folder

if TYPE_CHECKING:
    from unibus.pipeline.lake import Lake
    from unibus.pipeline.session import Session

DEFAULT_LAKE: Final = "unibus-lake"
DEFAULT_CAPTURE: Final = "unibus-capture"
EXTRA_HINT: Final = install_extra("pipeline")


def _lake_path(given: Path) -> Path:
    """Rejects what is not a folder before any command runs, so that nothing was created."""
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


@dataclass(frozen=True)
class Where:
    """Which Spark to use: a master, or a Spark Connect server."""

    master: str | None = None
    connect: str | None = None

    def session(self, lake: Path, quick: bool = False) -> "Session":
        """Starts or connects to Spark. `quick`: for one query only, so Spark need not optimise its compiled code."""
        from unibus.pipeline.session import open_session

        _check_log()
        aside("starting Spark …" if not self.connect else f"connecting to {self.connect} …")
        with extras():
            return open_session(self.master, self._with_token(lake), quick=quick)

    def _with_token(self, lake: Path) -> str | None:
        """The server of this lake requires a token, which is in the folder of the lake."""
        from unibus.pipeline.serving.client import address_of

        address = address_of(lake)
        if self.connect is None or address is None or "token=" in self.connect:
            return self.connect
        plain = address.connect.partition("/;")[0]
        same = {plain, plain.replace("localhost", "127.0.0.1")}
        return address.connect if self.connect.rstrip("/") in same else self.connect


@contextlib.contextmanager
def extras() -> Iterator[None]:
    """Turns a missing package into a UsageError with the command that installs it."""
    try:
        yield
    except ExtraMissing as error:
        raise UsageError(error.what, error.hint) from error
    except ModuleNotFoundError as error:
        raise UsageError(f"`unibus pipeline` needs {error.name}, which is not installed", EXTRA_HINT) from error


def open_lake(path: Path, makes: bool = False) -> "Lake":
    """Raises StoreUnavailable if there is no lake, unless the command creates it (`makes`), or if it cannot."""
    with extras():
        from unibus.pipeline.lake import Lake

    if makes:
        check_can_write("--lake DIR", path)
    elif not (path / "lake.json").exists():
        raise no_lake(path)
    return Lake(str(path))


def no_lake(path: Path) -> BusError:
    if path.exists():
        return StoreUnavailable(
            f"{path} is not a lake", "`unibus pipeline run --once` creates one; --lake names another"
        )
    return StoreUnavailable(
        f"lake {path} does not exist",
        "`unibus pipeline run --once` creates it; --lake or UNIBUS_LAKE names another",
    )


def needs_pipeline() -> None:
    """Raises UsageError if a package is missing, before a lake is created or a confirmation requested."""
    _check_log()
    for name in ("pyarrow", "deltalake", "pyspark"):
        if importlib.util.find_spec(name) is None:
            raise UsageError(f"`unibus pipeline` needs {name}, which is not installed", EXTRA_HINT)


def _check_log() -> None:
    """Raises UsageError if the log file is not writable, before Spark starts: its log would be lost."""
    path = os.environ.get("UNIBUS_SPARK_LOG")
    if path:
        try:
            open(path, "ab").close()
        except OSError as error:
            raise UsageError(
                f"UNIBUS_SPARK_LOG is {path}, which is not writable: {error.strerror}",
                "name another file, or unset it",
            ) from error
