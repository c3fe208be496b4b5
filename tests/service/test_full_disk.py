"""The file of keys on a disk that is full: refused, nothing half-written, and it goes on after."""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
import subprocess
import urllib.error
import urllib.request
from contextlib import closing, contextmanager, suppress

import pytest

from counterveil.models import save_exported
from counterveil.service.access import AccessKeys

SIZE = 256  # kB of the small disk


@contextmanager
def small_disk(folder):
    """A file system of its own in this folder; the test is skipped where none can be mounted."""
    options = ["-t", "tmpfs", "-o", f"size={SIZE}k", "tmpfs", str(folder)]
    try:
        subprocess.run(["mount", *options], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root can mount a small disk, where mounting is allowed")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder):
    """Write until nothing more can be written."""
    with (folder / "ballast").open("wb", buffering=0) as file:
        for size in (4096, 1):
            with suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    assert shutil.disk_usage(folder).free == 0


@pytest.fixture(params=[pytest.param("small disk", marks=pytest.mark.slow), "limit of the process"])
def disk(request, tmp_path):
    """A folder, and what makes it full and free again for the process of a service."""
    place = tmp_path / "disk"
    place.mkdir()
    if request.param == "small disk":
        with small_disk(place):
            yield place, lambda _: fill(place), lambda _: (place / "ballast").unlink()
        return
    if not hasattr(resource, "prlimit"):
        pytest.skip("the limit of another process can be set on Linux only")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(process, most):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, before[1]))

    yield place, lambda process: limit(process, 1), lambda process: limit(process, before[0])


def asked(service, key, path="/v1/explain", body=None):
    """Status, headers and text of an answer."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{service.address}{path}", content, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


@pytest.mark.long
def test_a_full_disk(served, disk, people, model, schema, tmp_path):
    place, make_full, make_free = disk
    keys = AccessKeys(place / "keys.db", create=True)
    key = keys.new("branch")
    save_exported(model, schema, tmp_path / "model.pt2")
    service = served("--model", "model.pt2", "--keys", str(place / "keys.db"))
    question = {"rows": people[:1], "target": "granted"}
    assert asked(service, key, body=question)[0] == 200
    make_full(service.process)
    before = (place / "keys.db").read_bytes()
    for path, body in [("/v1/explain", question), ("/v1/decide", {"rows": people[:1]})] * 2:
        status, headers, text = asked(service, key, path, body)
        assert status == 503
        assert headers["Content-Type"] == "application/problem+json"
        assert int(headers["Retry-After"]) > 0
        assert json.loads(text)["title"] == "keys cannot be checked now"
        for word in (key, str(place), "keys.db", "sqlite", "Traceback", str(people[0]["income"])):
            assert word not in text
    assert asked(service, key, "/v1/health")[0] == 200
    assert (place / "keys.db").read_bytes() == before
    make_free(service.process)
    assert asked(service, key, body=question)[0] == 200
    (entry,) = keys.entries()
    assert entry.used_today == 2  # what was refused is not counted
    with closing(sqlite3.connect(place / "keys.db")) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
