"""The exchange of all tables for rebuilt ones, see rebuild.py. It is idempotent: after a crash it is done again."""

import os
import shutil

import msgspec

from unibus.errors import LakeIncomplete
from unibus.pipeline.lake import SWAP, Lake
from unibus.pipeline.storage.files import File
from unibus.stores.files.disk import RealFiles, replace
from unibus.stores.files.private import make_folder


class Swap(msgspec.Struct, frozen=True):
    number: int
    """Of the last batch in the new tables, in the numbers of the lake."""
    shadow: str
    files: dict[str, list[File]]


def save_swap(lake: str, swap: Swap) -> None:
    replace(RealFiles(), os.path.join(lake, SWAP), msgspec.json.encode(swap))


def exchange(lake: Lake) -> None:
    """Finish the exchange that swap.json describes, if there is one."""
    path = os.path.join(lake.path, SWAP)
    if not os.path.exists(path):
        return
    with open(path, "rb") as file:
        swap = msgspec.json.decode(file.read(), type=Swap)
    for name, files in swap.files.items():
        _exchange(lake, swap, name, files)
        lake.folder(name).settle()
    os.remove(path)
    shutil.rmtree(os.path.join(lake.path, swap.shadow), ignore_errors=True)


def _exchange(lake: Lake, swap: Swap, name: str, files: list[File]) -> None:
    folder = lake.folder(name)
    old = folder.files()
    if folder.done() >= swap.number or not (old or files):
        return
    make_folder(folder.path)
    for each in files:
        made = os.path.join(lake.path, swap.shadow, name, each.path)
        if os.path.exists(made):  # Else an earlier attempt moved it.
            make_folder(os.path.dirname(folder.full_path(each)))
            os.replace(made, folder.full_path(each))
        elif not os.path.exists(folder.full_path(each)):
            raise LakeIncomplete(f"{made} is missing", "`unibus pipeline rebuild` computes it again")
    folder.commit(files, old, batch=swap.number)
