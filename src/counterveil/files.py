"""Writing files whole or not at all."""

import os
import stat
import tempfile
from pathlib import Path

from counterveil.errors import RequestError

Place = str | os.PathLike[str]


def check_output(path: Place | None, *inputs: Place | None) -> None:
    """Refuse a `path` that cannot be written, or that is one of `inputs`, before any work.

    None stands for a file that was not asked for.
    """
    if path is None:
        return
    target = _target(path)
    for given in (each for each in inputs if each is not None):
        same = target == Path(os.path.realpath(given))
        if same or (target.exists() and Path(given).exists() and target.samefile(given)):
            raise RequestError(f"{path} is an input of this command; write to another file")
    folder = target.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise RequestError(f"cannot write {path}: {folder} is not a folder you may write to")


def write_whole(path: Place, content: bytes) -> Path:
    """Write `content` to `path` so that a reader sees the old file or the new one, never a part.

    A symbolic link is followed: what it points to is written, and the link stays.
    """
    target = _target(path)
    draft: str | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(draft, _mode(target))
        os.replace(draft, target)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise RequestError(f"cannot write {path}: {why}") from None
    finally:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)  # it is gone where it has replaced the file
    return Path(path)


def read_bytes(path: Place, what: str, error: type[Exception], most: int = -1) -> bytes:
    """The content of `path`, or `error` with one line that says what was being looked for.

    `most`: read at most so many bytes; -1 for all.
    """
    try:
        with open(path, "rb") as stream:
            return stream.read(most)
    except FileNotFoundError:
        raise error(f"no {what} at {path}; check the path") from None
    except OSError as reason:
        raise error(f"cannot read the {what} at {path}: {reason.strerror}") from None


def _target(path: Place) -> Path:
    """The file behind `path`; an existing one must be a regular file."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise RequestError(f"{path} is a directory; give the name of a file")
    if target.exists() and not target.is_file():
        raise RequestError(f"{path} is a device, not a file; give the name of a file")
    return target


def _mode(target: Path) -> int:
    """The rights of the file that is replaced, or those of any new file."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
