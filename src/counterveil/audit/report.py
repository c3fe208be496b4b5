"""What an audit found: rows, verdicts in words, files, and whether anything failed."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich.table import Table

from counterveil.files import write_whole

NOTE = (
    "A bound above the claimed ε refutes the claim. A bound of 0 means not detected, never "
    "private. The ceiling is the most that so many draws can certify."
)


@dataclass(frozen=True)
class Row:
    """One game: `bound` is a lower bound on the true ε of what this mechanism did on this pair."""

    mechanism: str
    view: str
    pair: str
    claimed_epsilon: float
    delta: float
    draws: int
    bound: float
    ceiling: float
    confidence: float
    refuted: bool

    @property
    def control(self) -> bool:
        """Whether the mechanism has a known fault that must be found."""
        return self.mechanism.startswith("control")

    @property
    def claims(self) -> bool:
        """Whether anything is promised: `paper` and the controls promise nothing."""
        return not self.control and self.mechanism != "paper"

    @property
    def verdict(self) -> str:
        """In words. A claim that was not refuted has not been proved by that."""
        blind = self.ceiling <= self.claimed_epsilon
        few = f"; so few draws certify {self.ceiling:.2f} at most" if blind else ""
        if self.control:
            return "caught" if self.refuted else f"NOT CAUGHT{few}"
        if self.refuted:
            return "REFUTED" if self.claims else "refuted, as its statement says"
        return ("not detected" if self.bound == 0 else "not refuted") + few


def failures(rows: Sequence[Row], mechanism: str) -> list[str]:
    """Why an audit of `mechanism` must end with exit code 1; nothing if it need not.

    A mechanism that claims something and is refuted fails, and so does the audit itself if a known
    fault was not caught. `paper` claims nothing: among others it is a control, and it fails only
    when it is what was asked about.
    """
    found = []
    for row in rows:
        name = f"{row.mechanism}, {row.view}, {row.pair}, ε = {row.claimed_epsilon:g}"
        must_fall = not row.claims and row.mechanism != mechanism
        if must_fall and not row.refuted:
            found.append(f"the audit failed: {name}: {row.verdict}")
        elif not must_fall and row.refuted:
            found.append(f"refuted: {name}: the true ε is at least {row.bound:.3g}")
    return found


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """The rows for a terminal, a table for each mechanism."""
    for mechanism in dict.fromkeys(row.mechanism for row in rows):
        shown = Table(title=mechanism, title_justify="left")
        shown.add_column("view of a pair")
        for heading in ("draws", "claimed ε", "bound", "ceiling"):
            shown.add_column(heading, justify="right", no_wrap=True)
        shown.add_column("verdict")
        for row in rows:
            if row.mechanism == mechanism:
                delta = f", δ {row.delta:g}" if row.delta else ""
                style = "bold red" if row.refuted == row.claims else ""
                shown.add_row(
                    f"{row.view}: {row.pair}{delta}", f"{row.draws:,}",
                    f"{row.claimed_epsilon:g}", f"{row.bound:.3f}", f"{row.ceiling:.2f}",
                    row.verdict, style=style,
                )  # fmt: skip
        yield shown


def content(rows: Sequence[Row], command: str) -> dict[str, Any]:
    """The rows for machines."""
    return {
        "experiment": "audit",
        "command": command,
        "commit": commit(),
        "rows": [asdict(row) for row in rows],
    }


def save(rows: Sequence[Row], command: str, path: Path) -> tuple[Path, Path]:
    """A JSON file, and a CSV file with the same rows beside it."""
    text = json.dumps(content(rows, command), ensure_ascii=False, indent=1)
    written = write_whole(path, f"{text}\n".encode())
    buffer = io.StringIO()
    sheet = csv.DictWriter(buffer, [one.name for one in fields(Row)], lineterminator="\n")
    sheet.writeheader()
    sheet.writerows(asdict(row) for row in rows)
    return written, write_whole(path.with_suffix(".csv"), buffer.getvalue().encode())


def commit() -> str:
    """The commit of counterveil's own sources, with a + where they were changed since."""
    here = Path(__file__).parent.parent
    try:
        _git(here, "ls-files", "--error-unmatch", "__init__.py")
        changed = _git(here, "status", "--porcelain", "--", ".")
        return _git(here, "rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
