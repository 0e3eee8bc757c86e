"""A durable figure is taken on a disk: where files only seem to be files, the benchmark refuses to run."""

from pathlib import Path

import pytest

from benchmarks.disk import NotADisk, check_disk, file_system, scratch

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /run tmpfs rw 0 0
/dev/vdb /run/media ext4 rw 0 0
tmpfs /data\\040sets tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/srv/code", "ext4"),
        ("/run/user", "tmpfs"),
        ("/run/media/disk", "ext4"),
        ("/runner", "ext4"),
        ("/data sets/a", "tmpfs"),
    ],
)
def test_the_deepest_mount_holds_the_folder(folder: str, kind: str) -> None:
    assert file_system(Path(folder), MOUNTS) == kind


def test_the_last_mount_on_a_point_hides_the_earlier_ones() -> None:
    assert file_system(Path("/run/user"), MOUNTS + "/dev/vdc /run xfs rw 0 0\n") == "xfs"


def test_without_a_list_of_mounts_nothing_is_known() -> None:
    assert file_system(Path("/srv"), "") is None
    check_disk(Path("/srv"), "")


def test_memory_is_refused_by_name() -> None:
    check_disk(Path("/srv"), MOUNTS)
    with pytest.raises(NotADisk, match="/run/user is on tmpfs"):
        check_disk(Path("/run/user"), MOUNTS)


def test_a_scratch_folder_is_below_the_current_one_and_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("benchmarks.disk.MOUNTS", tmp_path / "mounts")  # Wherever the tests run, also in memory.
    with scratch() as folder, scratch() as other:
        assert folder.is_relative_to(tmp_path)
        assert folder != other
        (folder / "bus.db").write_text("left behind")
    assert not folder.exists()
