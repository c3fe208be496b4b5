"""Bounds on model files, checked before a file is opened, and on the memory that opening takes."""

import os
import re
import sys
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from counterveil.errors import ModelError

MOST_BYTES = 2**30  # of a file, and of all that is packed in it
MOST_MEMORY = 4 * 2**30  # bytes that may be taken to open a file and to ask its model once
MOST_MEMBERS = 10_000  # of an archive
MOST_GROWTH = 100  # times the bytes of a file that its members may unpack to,
FREE_GROWTH = 64 * 2**20  # unless they are no more than this
_ONE_AT_A_TIME = threading.RLock()


def check_size(path: str | os.PathLike[str]) -> int:
    """The bytes of the file at `path`; one that is far too large is refused."""
    size = Path(path).stat().st_size
    if size > MOST_BYTES:
        raise ModelError(
            f"{os.fspath(path)} has {size} bytes; model files may have {MOST_BYTES}: "
            "give a smaller model, or wrap it in a function"
        )
    return size


def excess_of(members: Sequence[zipfile.ZipInfo], size: int) -> str | None:
    """What is too much of the members of an archive of `size` bytes, by their claims; or None."""
    if len(members) > MOST_MEMBERS:
        return f"it holds {len(members)} members, more than {MOST_MEMBERS}"
    unpacked = sum(member.file_size for member in members)
    if unpacked > min(MOST_BYTES, max(FREE_GROWTH, MOST_GROWTH * size)):
        return f"its {size} bytes unpack to {unpacked}"
    return None


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Let this process take at most MOST_MEMORY more bytes within the block, on Linux.

    What needs more fails with an error of its own instead of filling the machine. The bound is on
    the whole process; model files are opened one at a time.
    """
    if sys.platform != "linux":
        yield
        return
    import resource

    with _ONE_AT_A_TIME:
        usual, most = resource.getrlimit(resource.RLIMIT_DATA)
        # What counts against the limit already: the private memory that this process may write.
        status = Path("/proc/self/status").read_text()
        taken = re.search(r"^VmData:\s+(\d+) kB$", status, re.MULTILINE)
        bounds = [(1024 * int(taken[1]) if taken else 0) + MOST_MEMORY]
        bounds += [bound for bound in (usual, most) if bound != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), most))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (usual, most))


def out_of_memory(error: Exception) -> ModelError | None:
    """The error for a model that wants too much memory, if `error` is what that leads to."""
    words = "allocate memory|not enough memory|bad_alloc"  # of onnxruntime, torch, C++
    if not isinstance(error, MemoryError) and not re.search(words, str(error)):
        return None
    return ModelError(
        f"the model needs more memory than there is (at most {MOST_MEMORY >> 30} GiB to open a "
        "file); give a smaller model"
    )
