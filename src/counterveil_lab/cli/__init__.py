"""The `counterveil-lab` command: run experiments, store results, attack a veil."""

from counterveil_lab.cli import measure, attack  # isort: skip - the order of --help
from counterveil_lab.cli.shared import app

__all__ = ["app", "attack", "main", "measure"]


def main() -> None:
    app()
