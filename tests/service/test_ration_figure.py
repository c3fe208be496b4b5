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
    asked = table.query(
        "dataset == 'adult' and defence == 'functional-model' and epsilon == 0.75 "
        f"and predictions == 'labels' and queries + extra_queries == {QUESTIONS}"
    )
    played = asked[asked.attacker.isin(ATTACKERS)]
    means = played.groupby("attacker").fidelity.mean()
    alone = asked[asked.attacker == "base-2n"].groupby("queries").fidelity.mean()[QUESTIONS // 2]
    assert (played.seed.nunique(), played.attacker.nunique()) == (5, 4)
    page = ROOT / "src" / "counterveil" / "service" / "page" / "words.toml"
    english, german = re.findall(r"^\s*ration = .*$", page.read_text(), re.MULTILINE)
    service = (ROOT / "docs" / "service.md").read_text()
    for figure in (f"{100 * means.max():.1f}", f"{100 * alone:.1f}"):
        assert f"{figure} %" in english
        assert f"{figure.replace('.', ',')} %" in german
        assert re.search(rf">{figure}<!-- end:[\w-]+ --> %", service), figure
    assert f"{QUESTIONS} answers" in english
    assert f"{QUESTIONS} Antworten" in german
