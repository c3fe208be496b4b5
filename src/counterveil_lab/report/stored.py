"""The files of `results/`: rows with command and commit, and the pictures that belong to them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from counterveil_lab.report.blocks import Picture
from counterveil_lab.results import Row

LARGEST = 1_500_000  # bytes of one picture
KINDS = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Stored:
    """One results file."""

    name: str
    command: str
    commit: str
    rows: list[Row]

    @property
    def commits(self) -> tuple[str, ...]:
        """The commits of the rows, where they say so themselves, else that of the file."""
        own = {str(row["commit"]): None for row in self.rows if row.get("commit")}
        return tuple(own) or (self.commit,)

    @property
    def quick(self) -> bool:
        """Whether it is of toy size."""
        return "--quick" in self.command


def load(folder: Path) -> tuple[dict[str, Stored], dict[str, str]]:
    """Every results file of a folder, and the files that could not be read with the reason."""
    found, broken = {}, {}
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            rows = [row for row in content["rows"] if isinstance(row, dict)]
            head = {key: str(content.get(key) or "unknown") for key in ("command", "commit")}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            broken[path.stem] = f"{path.name} cannot be read ({type(error).__name__})"
            continue
        found[path.stem] = Stored(path.stem, head["command"], head["commit"], rows)
    return found, broken


def pictures(
    folder: Path, name: str, every: Iterable[str], alts: dict[str, str]
) -> tuple[Picture, ...]:
    """The pictures of one experiment: SVG where there is one of a bearable size, else PNG.

    A file belongs to the longest of all experiments' names that it begins with.
    """
    names = sorted(every, key=len, reverse=True)
    stems = {path.stem for kind in KINDS for path in folder.glob(f"{name}*{kind}")}
    found = []
    for stem in sorted(stems):
        owner = next((each for each in names if stem == each or stem.startswith(f"{each}-")), None)
        if owner != name:
            continue
        for kind, mime in KINDS.items():
            path = folder / f"{stem}{kind}"
            if path.exists() and path.stat().st_size < LARGEST:
                code = base64.b64encode(path.read_bytes()).decode("ascii")
                alt = alts.get(stem) or alts.get(name) or f"Figure {stem}"
                found.append(Picture(stem, f"data:{mime};base64,{code}", alt))
                break
    return tuple(found)
