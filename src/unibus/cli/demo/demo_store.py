"""The store of the demo: a real SQLite file in a folder that stays, so that other commands can read it afterwards."""

import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from unibus.bus.api.sync_bus import SyncMessageBus
from unibus.errors import UsageError

FILE: Final = "demo.db"
CLOSE_TIMEOUT_S: Final = 5.0


class DemoStore:
    """Opened and closed several times in one demo: while the sender process owns the file, it is closed here."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._bus: SyncMessageBus | None = None

    @property
    def path(self) -> Path:
        """The file. The first use creates its folder; UsageError if the user's folder already has such a file."""
        if self._path is None:
            self._path = _checked(self._folder) if self._folder else Path(tempfile.mkdtemp(prefix="unibus-demo-"))
            self._path /= FILE
        return self._path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def exists(self) -> bool:
        return self._path is not None and self._path.exists()

    def open(self) -> SyncMessageBus:
        """The bus on it; the same one until `close`."""
        if self._bus is None:
            self._bus = SyncMessageBus(self.url)
        return self._bus

    def close(self) -> None:
        bus, self._bus = self._bus, None
        if bus is not None:
            bus.close(CLOSE_TIMEOUT_S)

    def commands(self, message_id: str) -> list[str]:
        """Commands that show more of it, complete for a shell."""
        # Also where the command is not on the PATH, as after `make demo`.
        program = "unibus" if shutil.which("unibus") else f"{shlex.quote(sys.executable)} -m unibus"
        option = f"--url {shlex.quote(str(self.path))}"
        sql = "SELECT channel, kind, count(*) AS n FROM events GROUP BY 1, 2"
        traced = [f"{program} trace {option} {shlex.quote(message_id)}"] if message_id else []
        return [*traced, f"{program} dlq ls {option}", f"{program} query {option} {shlex.quote(sql)}"]


def _checked(folder: Path) -> Path:
    folder = folder.absolute()
    if (folder / FILE).exists():
        raise UsageError(f"{folder} already has a {FILE}", "name another folder, or remove that file first")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {folder}: {error.strerror}", "name another folder") from error
    return folder
