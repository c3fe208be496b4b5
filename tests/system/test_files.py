"""Outputs: whole or not at all, never over an input, never into a device."""

import errno
import os

import pytest

from counterveil.errors import RequestError
from counterveil.files import check_output, write_whole


def test_links_are_followed_and_stay(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert real.stat().st_mode & 0o777 == 0o600
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "later")
    write_whole(dangling, b"made")
    assert (tmp_path / "later").read_bytes() == b"made"


@pytest.mark.parametrize("write", [check_output, lambda path: write_whole(path, b"")])
def test_devices_and_folders_are_refused(tmp_path, write):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("")
    for path, words in (
        ("/dev/null", "is a device"),
        (tmp_path / "pipe", "is a device"),
        (tmp_path, "is a directory"),
        (tmp_path / "file" / "below", "cannot write"),
    ):
        with pytest.raises(RequestError, match=words):
            write(path)


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RequestError, match="No space left on device"):
        write_whole(tmp_path / "x", b"content")
    assert list(tmp_path.iterdir()) == []
