"""Stored results: what was run, on which commit, and the rows it gave.

`results/<experiment>.json` = {experiment, command, commit, rows} with a CSV twin beside it. Rows
are saved as they come, so that a run that was cut short goes on where it stopped. A row also has
the `fingerprint` of the code that measured it. A number that is not there (NaN, infinity) is null,
as JSON wants it.
"""

import json
import math
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from counterveil.files import write_whole
from counterveil_lab.fingerprints import fingerprint

Row = dict[str, Any]
REPETITIONS = ("seed", "draw")  # the entries of a case that a mean runs over


class Results:
    """The rows of one experiment, on disk after every one of them.

    Rows of another command or commit are dropped when the first new one comes: they were measured
    on other code. `fresh` drops all of them. `keep` keeps all of them, so that an experiment can be
    added to, and rows of earlier code are replaced case by case; every row then says its own
    `commit`. A mean over seeds never mixes two versions of the code: the first new seed of a case
    drops what earlier code measured with other seeds.
    """

    def __init__(
        self,
        folder: Path,
        experiment: str,
        command: str,
        *,
        fresh: bool = False,
        keep: bool = False,
    ) -> None:
        self._stem = folder / experiment
        self._head = {"experiment": experiment, "command": command, "commit": current_commit()}
        self.rows: list[Row] = []
        stored = self._stem.with_suffix(".json")
        if stored.exists() and not fresh:
            content = json.loads(stored.read_text())
            same = all(content[name] == self._head[name] for name in ("commit", "command"))
            if same or keep:
                self.rows = content["rows"]
            if not same:
                self.rows = [{"commit": content["commit"], **row} for row in self.rows]
        # Once a file has rows of several commits, those that follow say theirs too.
        self._mixed = any("commit" in row for row in self.rows)
        self._code = fingerprint(experiment)

    def has(self, **case: Any) -> bool:
        """Whether the present code has measured a row with these values."""
        return any(is_of(row, case) and row.get("fingerprint") == self._code for row in self.rows)

    def add(self, *rows: Row, case: Row | None = None) -> None:
        """Keep rows, all of them or, if this is cut short, none; they replace those of `case`."""
        about = {"commit": self._head["commit"]} if self._mixed else {}
        about |= {"fingerprint": self._code} if self._code else {}
        kept = [row for row in self.rows if case is None or not self._replaced(row, case)]
        self.rows = kept + [{**plain(row), **about} for row in rows]
        content = {**self._head, "rows": self.rows}
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        write_whole(self._stem.with_suffix(".json"), text.encode())
        table = pd.DataFrame(self.rows).to_csv(index=False)
        write_whole(self._stem.with_suffix(".csv"), table.encode())

    def _replaced(self, row: Row, case: Row) -> bool:
        """Whether new rows of a case take the place of this one."""
        repeated = {name: value for name, value in case.items() if name not in REPETITIONS}
        is_earlier = row.get("fingerprint") != self._code
        return is_of(row, case) or (is_earlier and is_of(row, repeated))


def is_of(row: Row, case: Row) -> bool:
    """Whether a row has the values of a case."""
    return all(row.get(name) == value for name, value in case.items())


def stored_rows(folder: Path, experiment: str) -> Sequence[Row]:
    """The rows of an experiment as stored; none where there is no file."""
    path = folder / f"{experiment}.json"
    rows: Sequence[Row] = json.loads(path.read_text())["rows"] if path.exists() else []
    return rows


def earlier(rows: Sequence[Row], experiment: str, commit: str) -> str:
    """A sentence about rows that the present code did not measure; "" where it measured all.

    `commit`: of rows that do not say theirs.
    """
    present = fingerprint(experiment)
    old = [row for row in rows if present is None or row.get("fingerprint") != present]
    commits = list(dict.fromkeys(str(row.get("commit") or commit) for row in old))
    if not commits:
        return ""
    named = f"commit{'s' if len(commits) > 1 else ''} {', '.join(f'`{it}`' for it in commits)}"
    if present is None:
        return f"Measured at {named}, which may be an earlier version of the code."
    which, where = "These rows", ""
    if len(old) < len(rows):
        which, where = "Some of these rows", _where(old, rows)
    return f"{which} were measured by an earlier version of the code ({named}){where}."


def _where(old: Sequence[Row], rows: Sequence[Row]) -> str:
    """Such as ": mnist, adult `paper`": datasets of old rows, with parts where others are new."""
    if not all("dataset" in row for row in rows):
        return ""
    names = []
    for dataset in dict.fromkeys(row["dataset"] for row in old):
        here = [row for row in old if row["dataset"] == dataset]
        parts = dict.fromkeys(row.get("part") or row.get("mechanism") for row in here)
        is_whole = len(here) == sum(row["dataset"] == dataset for row in rows)
        words = () if is_whole else [f"`{part}`" for part in parts if part]
        names.append(" ".join([dataset, *words]))
    return f": {', '.join(names)}"


def plain(content: Any) -> Any:
    """The content with None in the place of NaN and infinity, which JSON does not know."""
    if isinstance(content, dict):
        return {name: plain(value) for name, value in content.items()}
    if isinstance(content, list):
        return [plain(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def current_commit() -> str:
    """The commit of the working tree, with a + where it was changed since.

    Where there is no repository (a copy on another machine) COUNTERVEIL_COMMIT may say it.
    """
    if "COUNTERVEIL_COMMIT" in os.environ:
        return os.environ["COUNTERVEIL_COMMIT"]
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    run = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return run.stdout.strip()
