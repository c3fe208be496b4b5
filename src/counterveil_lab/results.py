"""Stored results: what was run, on which commit, and the rows it gave.

`results/<experiment>.json` = {experiment, command, commit, rows} with a CSV twin beside it. Rows
are saved as they come, so that a run that was cut short goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd

from counterveil.files import write_whole

Row = dict[str, Any]


class Results:
    """The rows of one experiment, on disk after every one of them."""

    def __init__(self, folder: Path, experiment: str, command: str, *, fresh: bool = False) -> None:
        self._stem = folder / experiment
        self._head = {"experiment": experiment, "command": command, "commit": current_commit()}
        self.rows: list[Row] = []
        stored = self._stem.with_suffix(".json")
        if stored.exists() and not fresh:
            content = json.loads(stored.read_text())
            if content["commit"] == self._head["commit"] and content["command"] == command:
                self.rows = content["rows"]

    def has(self, **key: Any) -> bool:
        """Whether a row with these values is there already."""
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.rows)

    def add(self, row: Row) -> None:
        """Keep a row."""
        self.rows.append(row)
        content = {**self._head, "rows": self.rows}
        write_whole(
            self._stem.with_suffix(".json"), (json.dumps(content, indent=1) + "\n").encode()
        )
        table = pd.DataFrame(self.rows).to_csv(index=False)
        write_whole(self._stem.with_suffix(".csv"), table.encode())


def current_commit() -> str:
    """The commit of the working tree, with a + where it was changed since.

    Where there is no repository (a copy on a lent machine) COUNTERVEIL_COMMIT may say it.
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
