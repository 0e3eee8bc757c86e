"""The import of `unibus import`, into a store or a server: `bus.history.import_.Importing` with a progress callback."""

from typing import TYPE_CHECKING, BinaryIO

from unibus.bus.history.import_ import Importing
from unibus.cli.connection.management import Progress

if TYPE_CHECKING:
    from unibus.bus.history.export_lines import Contents
    from unibus.bus.history.import_ import ImportTarget


class CommandImport:
    def __init__(self, target: "ImportTarget", contents: "Contents") -> None:
        self._importing = Importing(target, contents, lambda done, total: None)
        self.total = self._importing.total
        self.before = self._importing.before
        self.kept_states = self._importing.kept_states

    @property
    def done(self) -> int:
        return self._importing.done

    @property
    def is_complete(self) -> bool:
        return self._importing.is_complete

    def run(self, file: BinaryIO, progress: Progress) -> None:
        self._importing.progress = progress
        self._importing.run(file)
