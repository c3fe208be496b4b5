"""Model files that are archives, with members that a forger has changed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

WEIGHTS = "archive/data/weights/model_weights_config.json"
GRAPH = "archive/models/model.json"
Members = dict[str, bytes]


def members_of(path: Path) -> Members:
    """The content of every member of an archive."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def forge(members: Members, path: Path, compression: int = zipfile.ZIP_STORED) -> Path:
    """Write an archive of these members."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def changed(members: Members, name: str, change: Callable[[Any], object]) -> Members:
    """The members with the JSON of one of them changed in place."""
    content = json.loads(members[name])
    change(content)
    return members | {name: json.dumps(content).encode()}
