"""What a case may not do: see `counterveil_lab.fuzz`."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zipfile
from pathlib import Path

from counterveil_lab.fuzz.cases import Case
from counterveil_lab.fuzz.damage import CANARY, CANARY_NUMBER

MOST_WORDS = 4000  # bytes on standard error
CLOSED_PIPE = 141


def codes(case: Case) -> set[int]:
    """The codes that this command may end with."""
    if case.stdout == "closed":
        return {0, 2, CLOSED_PIPE}
    return {0, 2}


def words(case: Case) -> None:
    if "Traceback (most recent call last)" in case.errors:
        case.failures.append("traceback")
    if len(case.errors.encode()) > MOST_WORDS:
        case.failures.append(f"{len(case.errors.encode())} bytes on standard error")
    if CANARY in case.errors or CANARY_NUMBER in case.errors:
        case.failures.append("a private value on standard error")
    if case.code == 2 and not case.errors.strip() and not case.said:
        case.failures.append("exit code 2 without a word")


def state(folder: Path) -> dict[str, str]:
    """What each file below `folder` holds, by name; links, pipes and folders are not opened."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        plain = stat.S_ISREG(mode)
        found[str(path.relative_to(folder))] = (
            hashlib.sha256(path.read_bytes()).hexdigest() if plain else str(stat.S_IFMT(mode))
        )
    return found


def files(case: Case, before: dict[str, str], folder: Path) -> None:
    after = state(folder)
    spent = any("ledger" in word for word in case.arguments) and "show" not in case.arguments
    for name, content in before.items():
        may_change = (spent and name.endswith(".db")) or _is_output(case, folder, name)
        if after.get(name) != content and not may_change:
            case.failures.append(f"changed the input {name}")
    for name in after.keys() - before.keys():
        if name.startswith(".cache") or (folder / name).is_dir():
            continue
        if _is_output(case, folder, name) and case.code in (0, CLOSED_PIPE):
            if not _is_whole(folder / name):
                case.failures.append(f"{name} is not whole")
        elif not (spent and case.code == 0 and _is_ledger(folder / name)):
            case.failures.append(f"left the file {name[:80]!r} behind")


def _is_output(case: Case, folder: Path, name: str) -> bool:
    words, path = case.arguments, os.path.realpath(folder / name)
    named = [words[at + 1] for at, word in enumerate(words[:-1]) if word in ("--out", "--report")]
    if words[:2] == ["keys", "new"]:  # the public key stands beside the other
        named += [f"{os.path.splitext(each)[0]}.pub" for each in named]
    return any(os.path.realpath(folder / each) == path for each in named)


def _is_ledger(path: Path) -> bool:
    return path.read_bytes().startswith(b"SQLite format 3")


def _is_whole(path: Path) -> bool:
    """Whether an output is one: JSON, a zip, Parquet, a page or a table, by its name."""
    content = path.read_bytes()
    if content.startswith(b"counterveil-"):  # a key
        return content.endswith(b"\n")
    if content.startswith(b"PK"):
        return zipfile.is_zipfile(path)
    match path.suffix.lower():
        case ".json":
            try:
                json.loads(content)
            except ValueError:
                return False
        case ".parquet":
            return content[:4] == content[-4:] == b"PAR1"
        case ".html":
            return content.rstrip().endswith(b"</html>")
    return content.endswith((b"\n", b"}", b"]", b">")) or not content
