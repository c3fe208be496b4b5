"""The page says how soon answers give a model away: the figure is that of the stored rows."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from counterveil_lab.attacks.extraction import ATTACKERS

ROOT = Path(__file__).parents[2]
QUESTIONS = 500


def test_the_figure_is_that_of_the_red_team():
    table = pd.read_parquet(ROOT / "results" / "table-extraction.parquet")
    # The answers of the service say the decision, and lie where the model itself agrees.
    asked = table[
        (table.dataset == "adult")
        & (table.defence == "functional-model")
        & (table.epsilon == 0.75)
        & (table.predictions == "labels")
        & (table.queries + table.extra_queries == QUESTIONS)
    ]
    played = asked[asked.attacker.isin(ATTACKERS)]
    means = played.groupby("attacker").fidelity.mean()
    alone = asked[asked.attacker == "base-2n"].groupby("queries").fidelity.mean()[QUESTIONS // 2]
    best = f"{100 * means.max():.1f}", f"{100 * alone:.1f}"
    assert played.seed.nunique() == 5
    assert played.attacker.nunique() == 4
    english, german = _words("ration")
    service = (ROOT / "docs" / "service.md").read_text()
    for figure in best:
        assert f"{figure} %" in english
        assert f"{figure.replace('.', ',')} %" in german
        assert re.search(rf">{figure}<!-- end:[\w-]+ --> %", service), figure
    assert f"{QUESTIONS} answers" in english
    assert f"{QUESTIONS} Antworten" in german


def _words(name: str) -> list[str]:
    """A text of the page, in English and in German."""
    page = ROOT / "src" / "counterveil" / "service" / "page" / "words.toml"
    lines = page.read_text().splitlines()
    return [line for line in lines if line.strip().startswith(f"{name} = ")]
