"""Numbers that README and docs quote, computed again from stored rows with pandas alone.

Nothing here comes from the report that wrote them: tables are read as text, means are pandas'.
"""

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
DATASETS = {
    "Adult": "adult",
    "Hospital": "hospital",
    "HomeCredit (14.9 %)": "homecredit",
    "MNIST": "mnist",
    "Purchase substitute": "purchase-substitute",
    "Texas substitute": "texas-substitute",
    "Digits": "digits",
}
PEERS = {"CADEX, threshold 0": "cadex-0", "C-CHVAE": "cchvae", "REVISE": "revise"}
FR, AD = "Table 2 of the paper: flip ratio, any other class", "Table 3 of the paper: mean distance"
OURS = [(mechanism, epsilon) for mechanism in ("paper", "functional") for epsilon in (0.025, 0.75)]


def table(path, title):
    """A table of a page below a title or marker, its cells as text."""
    text = (ROOT / path).read_text("utf-8").partition(title)[2]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].splitlines()
    head, _, *body = [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in lines]
    return pd.DataFrame(body, columns=head)


def quoted(cell):
    """The number that a cell begins with, and half a unit of its last place."""
    text = re.match(r"[\d.,]+", cell.strip("* "))[0].replace(",", "")
    return float(text), 0.5 * 10.0 ** -len(text.partition(".")[2])


def stored(name):
    return pd.read_parquet(ROOT / f"results/{name}.parquet")


def same(cell, value):
    number, half = quoted(cell)
    return abs(number - value) <= half * 1.001


@pytest.mark.parametrize(
    ("title", "name", "column"),
    [(FR, "table-fr", "flip_ratio_any"), (AD, "table-ad", "distance")],
)
def test_tables_of_the_paper(title, name, column):
    shown, rows = table("docs/results.md", title), stored(name)
    checked = 0
    for dataset, short in DATASETS.items():
        here = rows[rows.dataset == short]
        found = {(peer, "–"): here[here.method == known] for peer, known in PEERS.items()}
        for mechanism, epsilon in OURS:
            own = "published" if mechanism == "paper" else "full"
            of = (here.part == mechanism) & (here.epsilon == epsilon) & (here.search == own)
            found[mechanism, str(epsilon)] = here[of & (here.guidance == "model")]
        for (method, epsilon), rows_of_method in found.items():
            at = shown[(shown.method == method) & (shown.iloc[:, 1] == epsilon)][dataset].item()
            values = rows_of_method[column].dropna()
            assert bool(at) == bool(len(values)), (dataset, method, epsilon)
            if at:
                assert same(at, values.mean()), (dataset, method, epsilon, at, values.mean())
                checked += 1
    assert checked >= 45


def test_the_table_of_the_readme():
    shown, rows = table("README.md", "<!-- results:answers -->"), stored("believable")
    rows = rows[(rows.dataset == "adult") & (rows.kind == "network")]
    asked = rows[(rows.part == "functional") & (rows.prefer == "believable")].groupby("epsilon")
    alone = rows[rows.part == "surrogate"].groupby("epsilon")
    means = asked[["flip_ratio", "boosted", "near"]].mean()
    means["surrogate"] = alone.flip_ratio.mean()
    for line in shown.itertuples(index=False):
        for cell, value in zip(line[1:], means.loc[float(line[0])], strict=True):
            assert same(cell, value), (line, value)


def test_the_accuracy_of_the_target_models():
    shown = table("docs/results.md", "Accuracy of the target models on held-out rows")
    rows = stored("targets")
    means = (
        rows[rows.method == "target"].groupby("dataset")[["accuracy", "balanced_accuracy"]].mean()
    )
    names = DATASETS | {"Months (generated)": "months"}
    for line in shown.itertuples(index=False):
        for cell, value in zip(line[1:3], means.loc[names[line[0]]], strict=True):
            assert same(cell, 100 * value), (line, value)
