"""What an audit found: rows, verdicts in words, files, and whether anything failed."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from counterveil.files import write_whole

NOTE = (
    "A bound above the claimed ε refutes the claim. A bound of 0 means not detected, never "
    "private. The ceiling is the most that so many draws can certify."
)


@dataclass(frozen=True)
class Row:
    """The result of one game, or of one check, which has no draws.

    `bound`: a lower bound on the true ε; `ceiling`: the highest that so many draws can give.
    `refuted`: the bound is above the claimed ε, or the check has a `finding`.
    """

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
    finding: str = ""

    @property
    def control(self) -> bool:
        """Whether the mechanism has a known fault that must be found."""
        return self.mechanism.startswith("control")

    @property
    def claims(self) -> bool:
        """Whether the mechanism promises anything; `paper` and the controls promise nothing."""
        return not self.control and self.mechanism != "paper"

    @property
    def verdict(self) -> str:
        """The result in words. A claim that was not refuted is not thereby proved."""
        blind = self.ceiling <= self.claimed_epsilon
        few = f"; so few draws certify {self.ceiling:.2f} at most" if blind else ""
        if not self.draws:
            return f"REFUTED: {self.finding}" if self.refuted else "holds"
        if self.control:
            return "caught" if self.refuted else f"NOT CAUGHT{few}"
        if self.refuted:
            return "REFUTED" if self.claims else "refuted, as its statement says"
        return ("not detected" if self.bound == 0 else "not refuted") + few


def failures(rows: Sequence[Row], mechanism: str) -> list[str]:
    """The reasons why an audit of `mechanism` must end with exit code 1, one line each.

    A refuted promise is a failure, and so is a control that was not caught. `paper` promises
    nothing and is a control, unless it was asked about: then being refuted is its failure.
    """
    found = []
    for row in rows:
        name = f"{row.mechanism}, {row.view}, {row.pair}, ε = {row.claimed_epsilon:g}"
        must_be_refuted = not row.claims and row.mechanism != mechanism
        if must_be_refuted and not row.refuted:
            found.append(f"the audit failed: {name}: {row.verdict}")
        elif not must_be_refuted and row.refuted:
            why = row.finding or f"the true ε is at least {row.bound:.3g}"
            found.append(f"refuted: {name}: {why}")
    return found


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    """The rows for a terminal, one table for each mechanism."""
    for mechanism in dict.fromkeys(row.mechanism for row in rows):
        shown = Table(title=mechanism, title_justify="left")
        shown.add_column("view of a pair")
        for heading in ("draws", "claimed ε", "bound", "ceiling"):
            shown.add_column(heading, justify="right", no_wrap=True)
        shown.add_column("verdict")
        for row in rows:
            if row.mechanism == mechanism:
                delta = f", δ {row.delta:g}" if row.delta else ""
                shown.add_row(
                    f"{row.view}: {row.pair}{delta}",
                    f"{row.draws:,}" if row.draws else "check",
                    f"{row.claimed_epsilon:g}",
                    f"{row.bound:.3f}" if row.draws else "",
                    f"{row.ceiling:.2f}" if row.draws else "",
                    row.verdict,
                    style="bold red" if row.refuted == row.claims else "",
                )
        yield shown


def content(rows: Sequence[Row], command: str) -> dict[str, Any]:
    """The rows for a JSON file, with the command and the commit that made them."""
    made = {"experiment": "audit", "command": command, "commit": commit()}
    return made | {"rows": [asdict(row) for row in rows]}


def save(rows: Sequence[Row], command: str, path: Path) -> tuple[Path, Path]:
    """Write a JSON file, and a CSV file with the same rows beside it."""
    text = json.dumps(content(rows, command), ensure_ascii=False, indent=1)
    written = write_whole(path, f"{text}\n".encode())
    sheet = pd.DataFrame(rows).to_csv(index=False, lineterminator="\n")
    return written, write_whole(path.with_suffix(".csv"), sheet.encode())


def commit() -> str:
    """The commit of counterveil's own sources, with a + where they were changed since."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        changed = git("status", "--porcelain", "--", ".")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
