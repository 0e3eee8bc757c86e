"""Which texts name a folder, and which name something that is none."""

from pathlib import Path

import pytest

from unibus.errors import UsageError
from unibus.stores.files.local_folder import local_folder, scheme_of

REMOTE = (
    "s3://bucket/lake",
    "s3a://bucket/lake",
    "abfss://container@account.dfs.core.windows.net/lake",
    "hdfs://host/lake",
    "dbfs:/mnt/lake",
    "HTTPS://host/lake",
)


@pytest.mark.parametrize("place", REMOTE)
def test_another_scheme_is_refused(place: str) -> None:
    with pytest.raises(UsageError, match=f"a lake cannot be at .*{scheme_of(place)}:// is not supported"):
        local_folder(place, "a lake")


def test_a_path_that_was_a_url_is_refused() -> None:
    assert str(Path("s3://bucket/lake")) == "s3:/bucket/lake"
    with pytest.raises(UsageError, match="at 's3://bucket/lake': s3:// is not supported"):
        local_folder(Path("s3://bucket/lake"), "a lake")


@pytest.mark.parametrize("place", ["lake", "/data/lake", "C:\\data\\lake", "C:/data/lake", "a:b/c", "./s3:/x", ""])
def test_a_path_stays_as_it_is(place: str) -> None:
    assert local_folder(place, "a lake") == place


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("file:///data/my%20lake", "/data/my lake"),
        ("file:/data/lake", "/data/lake"),
        ("FILE://localhost/data/lake", "/data/lake"),
    ],
)
def test_a_file_url_is_its_path(place: str, path: str) -> None:
    assert local_folder(place, "a lake") == path


@pytest.mark.parametrize("place", ["file://host/data", "file://data"])
def test_a_file_url_of_another_computer_is_refused(place: str) -> None:
    with pytest.raises(UsageError, match="another computer"):
        local_folder(place, "a lake")
