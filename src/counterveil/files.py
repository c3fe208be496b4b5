"""Writing files whole or not at all."""

import glob
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from counterveil.errors import DataError, RequestError

Place = str | os.PathLike[str]
CERTIFICATE_FILES = (".json", ".jsonl")  # endings of a file of certificates; others are a folder's


def check_output(path: Place | None, *inputs: Place | None) -> None:
    """Refuse a `path` that cannot be written, or that is one of `inputs`, before any work.

    None stands for a file that was not asked for.
    """
    if path is None:
        return
    target = _target(path)
    for given in inputs:
        if given is not None and is_same_file(target, given):
            raise RequestError(f"{path} is an input of this command; write to another file")
    folder = target.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise RequestError(f"cannot write {path}: {folder} is not a folder you may write to")


def is_same_file(one: Place, two: Place) -> bool:
    """Whether two paths lead to one file, or would if there was one."""
    if os.path.realpath(one) == os.path.realpath(two):
        return True
    return os.path.exists(one) and os.path.exists(two) and os.path.samefile(one, two)


def check_new(path: Place, *, overwrite: bool = False) -> None:
    """Refuse a `path` with a file that would be lost, before any work.

    That is a file there, unless `overwrite`, or a whole one beside it that was never put in place.
    """
    check_output(path)
    target = _target(path)
    with _words_for(path):
        left = [*target.parent.glob(f"{glob.escape(target.name)}*.part")]
    if left:
        raise RequestError(
            f"{left[0]} is the file of another run, or of one that was cut off; it is whole: let "
            "the other run end, move the file to a name of its own, or delete it"
        )
    if target.exists() and not overwrite:
        raise RequestError(
            f"{path} is there already; choose another name, or give --overwrite (overwrite=True in "
            "Python)"
        )


def write_part(path: Place, content: bytes) -> Path:
    """Write `content` whole to X.TOKEN.part beside the file X at `path`; see `put_in_place`.

    The name is new: nobody else writes there.
    """
    target = _target(path)
    return write_whole(
        target.with_name(f"{target.name[:200]}.{secrets.token_hex(4)}.part"), content
    )


def put_in_place(part: Path, path: Place, *, overwrite: bool = False) -> None:
    """Let a file of `write_part` take its place; without `overwrite` only where nothing is."""
    target = _target(path)
    with _words_for(path):
        if overwrite:
            os.replace(part, target)
        else:
            try:
                os.link(part, target)
                part.unlink()
            except FileExistsError:
                raise RequestError(
                    f"{path} was written by another run meanwhile; this file is whole at {part}"
                ) from None
            except OSError:  # a file system without links
                os.replace(part, target)
        _sync_folder(target.parent)


def write_whole(path: Place, content: bytes) -> Path:
    """Write `content` to `path` so that a reader sees the old file or the new one, never a part.

    A symbolic link is followed: what it points to is written, and the link stays. Where the file
    system allows it, the content has no name before it is whole, so that a crash leaves nothing.
    """
    target = _target(path)
    with _words_for(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.parent / f".{target.name[:100]}.{secrets.token_hex(6)}"
        try:
            if not _appears_at(target, draft, content):
                os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)  # it is gone where it has replaced the file
        _sync_folder(target.parent)
    return Path(path)


def _appears_at(target: Path, draft: Path, content: bytes) -> bool:
    """Put a file with this content on the disk: at `target` (True) if that can be done whole and
    nothing is there, otherwise at `draft` (False).
    """
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        nameless = hasattr(os, "O_TMPFILE")
        try:
            handle = os.open(target.parent, getattr(os, "O_TMPFILE", 0) | os.O_WRONLY, 0o600)
        except OSError:  # always so without O_TMPFILE: a folder cannot be written
            nameless = False
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(handle, _mode(target))
            os.fsync(handle)
            for name in (target.name, draft.name) if nameless else ():
                with suppress(FileExistsError):  # with a folder's number, the link is followed
                    os.link(f"/proc/self/fd/{handle}", name, dst_dir_fd=folder)
                    return name == target.name
        return False
    finally:
        os.close(folder)


def _sync_folder(folder: Path) -> None:
    """Put the names in `folder` on the disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _words_for(path: Place) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise RequestError(f"cannot write {path}: {why}") from None


def read_bytes(path: Place, what: str, error: type[Exception], most: int = -1) -> bytes:
    """The content of `path`, or `error` with one line that says what was being looked for.

    `most`: read at most so many bytes; -1 for all.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its other end
            raise error(f"{path} is no file; give the {what} as a file")
        with open(path, "rb") as stream:
            return stream.read(most)
    except FileNotFoundError:
        raise error(f"no {what} at {path}; check the path") from None
    except OSError as reason:
        raise error(f"cannot read the {what} at {path}: {reason.strerror}") from None
    except ValueError:
        raise error(f"no {what} can be at a path with a null character") from None


def check_table_file(path: Path) -> None:
    """Refuse what is no file: reading a pipe would wait for its other end, a device for ever."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise DataError(f"no table at {path}; check the path") from None
    except (OSError, ValueError):
        raise DataError(f"{path} cannot be the path of a table; give another") from None
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{path} is no file; give a .csv, .parquet or .arrow file")


def _target(path: Place) -> Path:
    """The file behind `path`; an existing one must be a regular file."""
    try:
        target = Path(os.path.realpath(path))
        found = target.stat()
    except FileNotFoundError:
        return target
    except (OSError, ValueError):  # too long, a null character, no right to look
        raise RequestError(f"cannot write {path}: it cannot be the name of a file here") from None
    if stat.S_ISDIR(found.st_mode):
        raise RequestError(f"{path} is a directory; give the name of a file")
    if not stat.S_ISREG(found.st_mode):
        raise RequestError(f"{path} is a device, not a file; give the name of a file")
    return target


def _mode(target: Path) -> int:
    """The rights of the file that is replaced, or those of any new file."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
