"""An attack on a veil: the lab's command in a process of its own, as for the audit.

The product does not import the lab; it only starts it.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from counterveil.errors import RequestError
from counterveil.studio.bodies import AskAttack
from counterveil.studio.commands import Process, run_command, shown
from counterveil.studio.folder import MODELS, TABLES, VEIL, Folder
from counterveil.studio.jobs import Job

LAB = ("-m", "counterveil_lab.cli")


def timestamp() -> str:
    """Now, in UTC, for the name of a file."""
    return f"{datetime.now(UTC):%Y-%m-%d-%H%M%S}"


def run_attack(
    folder: Folder, asked: AskAttack, job: Job, running: list[Process], lab: Sequence[str]
) -> dict[str, Any]:
    """Attack a veil and its model; the report is written into the folder.

    Returns the names of the files, the commands that were run, what was attacked and the verdicts.
    Without a model the veil's private model is written beside the report, and attacked.
    """
    if importlib.util.find_spec("counterveil_lab") is None:
        raise RequestError("an attack needs the package counterveil_lab, which is not installed")
    table, others = (folder.file(name, TABLES) for name in (asked.table, asked.others))
    if table == others:
        raise RequestError("both tables are the same; the second must hold other people")
    veil, name = folder.file(asked.file, VEIL), f"attack-{timestamp()}"
    page, commands = folder.new(name, ".html"), []
    if asked.model is None:
        model = folder.new(name, ".pt2")
        words = ["model", "export", str(veil), "--pt2", str(model)]
        run_command(words, job, running, as_json=False)
        commands.append(shown(words))
    else:
        model = folder.file(asked.model, MODELS)
    words = ["attack", "--quick", "--veil", str(veil), "--model", str(model)]
    words += ["--data", str(table), "--others", str(others), "--out", str(page)]
    words += ["--attribute", asked.attribute] if asked.attribute else []
    run_command(words, job, running, program=lab, as_json=False)
    commands.append(shown(words, "counterveil-lab"))
    numbers = page.with_suffix(".json")
    content = json.loads(numbers.read_text(encoding="utf-8"))
    return {
        "file": page.name,
        "numbers": numbers.name,
        "commands": commands,
        "facts": content["facts"],
        "verdicts": content["verdicts"],
    }
