"""Writing files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from counterveil.errors import RequestError


def write_whole(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write `content` to `path` so that a reader sees the old file or the new one, never a part."""
    target = Path(path)
    if target.is_dir():
        raise RequestError(f"{target} is a directory; give the name of a file")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise RequestError(f"cannot write {target}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(draft, 0o666 & ~umask)
        os.replace(draft, target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return target


def read_bytes(path: str | os.PathLike[str], what: str, error: type[Exception]) -> bytes:
    """The content of `path`, or `error` with one line that says what was being looked for."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise error(f"no {what} at {path}; check the path") from None
    except OSError as reason:
        raise error(f"cannot read the {what} at {path}: {reason.strerror}") from None
