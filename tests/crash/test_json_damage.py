"""Damaged JSON files: the file and the line are named, or what is served is some whole past. Never something else."""

import random

import pytest

from tests.crash.power import PATH
from tests.crash.test_damage import Damage, Truth, check, flip, opened, served, shorten, truth_of, zero
from unibus.errors import StoreDamaged
from unibus.stores.jsonfile.log import is_segment
from unibus.stores.jsonfile.snapshot import PART
from unibus.testing.files import FolderDisk

TRIES = 12
"""Of each kind of damage to each kind of file. A few seconds."""


@pytest.fixture(scope="module")
def truth() -> Truth:
    return truth_of("damage", "jsonfile", steps_after=12)


def copied(truth: Truth) -> FolderDisk:
    assert isinstance(truth.disk, FolderDisk)
    return truth.disk.copy()


def files(disk: FolderDisk) -> dict[str, list[str]]:
    """By what they are for. The last segment of the log is another thing than those before it."""
    names = sorted(disk.files())
    segments = [name for name in names if is_segment(name.rpartition("/")[2])]
    return {
        "state": [f"{PATH}/state.json"],
        "entities": [name for name in names if "/entities/" in name],
        "messages": [name for name in names if "/messages/" in name],
        "log": segments[:-1],
        "end": segments[-1:],
    }


def test_without_damage_everything_is_served(truth: Truth) -> None:
    rows, _ = served(copied(truth)) or ([], {})
    assert rows == truth.history
    kinds = files(copied(truth))
    assert all(kinds.values()), kinds
    others = set(copied(truth).files()) - {name for names in kinds.values() for name in names}
    assert others <= {f"{PATH}/{PART}"}, "a snapshot was being taken when the process died"


@pytest.mark.parametrize("kind", ["state", "entities", "messages", "log", "end"])
@pytest.mark.parametrize("damage", [flip, zero, shorten])
def test_damage_is_named_or_harmless(truth: Truth, damage: Damage, kind: str) -> None:
    noticed = 0
    for number in range(TRIES):
        disk, chance = copied(truth), random.Random(number)
        noticed += check(truth, disk, damage(disk, chance.choice(files(disk)[kind]), chance))
    # A log that is cut is a log that ends there, and a segment before the snapshot is read by readers of history only.
    assert noticed == TRIES or kind in ("end", "entities")
    assert noticed > 0 or kind == "end"


@pytest.mark.parametrize("kind", ["state", "entities", "messages", "log"])
def test_a_file_that_is_missing_is_named(truth: Truth, kind: str) -> None:
    disk = copied(truth)
    name = files(disk)[kind][-1]
    disk.names.lead(name, None)
    assert check(truth, disk, f"{name} is missing")


def test_a_torn_end_of_the_log_is_cut(truth: Truth) -> None:
    """What was being written when the process died is not there, and all before it is."""
    disk = copied(truth)
    name = files(disk)["end"][0]
    disk.put(name, disk.content(name) + b'{"op":"sent","seq":' + random.Random(1).randbytes(5_000))
    assert not check(truth, disk, "a torn end")
    answer = served(disk)
    assert answer is not None
    assert answer[0] == truth.history


def edited(truth: Truth, name: str, old: bytes, new: bytes) -> tuple[FolderDisk, int]:
    """Change a file by hand. Returns the line, too."""
    disk = copied(truth)
    content = disk.content(name)
    at = content.index(old)
    disk.put(name, content[:at] + new + content[at + len(old) :])
    return disk, content.count(b"\n", 0, at) + 1


def said(disk: FolderDisk) -> str:
    with pytest.raises(StoreDamaged) as caught:
        opened(disk)
    return caught.value.what


def test_an_edited_message_is_named_with_its_line(truth: Truth) -> None:
    count = b'"delivery_count": 0'
    name = next(name for name in files(copied(truth))["messages"] if count in truth.disk.content(name))
    disk, line = edited(truth, name, count, b'"delivery_count": 7')
    text = said(disk)
    assert name in text
    begins = int(text.partition("line ")[2].split(" ")[0])
    assert begins <= line < begins + 10, "the message begins there"


def test_an_edited_line_of_the_log_is_named(truth: Truth) -> None:
    name = files(copied(truth))["end"][0]
    disk, line = edited(truth, name, b'"op":"sent"', b'"op":"lost"')
    text = said(disk)
    assert f"{name}, line {line} " in text


def test_an_edited_state_is_named(truth: Truth) -> None:
    disk, _ = edited(truth, f"{PATH}/state.json", b'"domain": "local"', b'"domain": "other"')
    assert f"{PATH}/state.json, line " in said(disk)
    disk, line = edited(truth, f"{PATH}/state.json", b'"domain": "local",', b'"domain": "local"')
    assert f"{PATH}/state.json, line {line + 1} " in said(disk)


def test_the_check_finds_what_is_wrong(truth: Truth) -> None:
    """A history that is not the true one is found by the comparison alone."""
    with pytest.raises(AssertionError):
        check(Truth(truth.disk, truth.history[1:]), copied(truth), "another past")
