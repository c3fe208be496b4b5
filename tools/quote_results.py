"""Write tables of stored results into README.md and docs/. Run it after experiments.

python tools/quote_results.py
"""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent
DATASETS = ("adult", "hospital", "homecredit", "mnist", "purchase-substitute", "texas-substitute")


def table_fr() -> str:
    """Flip ratios of every method; the lab has written the table."""
    lines = (ROOT / "results/table-fr.md").read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))


def frontier() -> str:
    """Mechanism `functional` on every dataset."""
    rows = pd.read_csv(ROOT / "results/frontier.csv")
    rows = rows[rows.asked_order.isna() & (rows.mechanism == "functional")]
    lines = [
        "| dataset | ε | flip ratio | specified class | distance | legal rows | "
        "flip ratio, guidance `surrogate` |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in DATASETS:
        for epsilon in sorted(rows[rows.dataset == name].epsilon.unique()):
            here = rows[(rows.dataset == name) & (rows.epsilon == epsilon)]
            model = here[here.guidance == "model"].mean(numeric_only=True)
            surrogate = here[here.guidance == "surrogate"].mean(numeric_only=True)
            specified = model.flip_ratio_specified
            lines.append(
                f"| {name} | {epsilon:g} | {model.flip_ratio:.3f} | "
                f"{'' if pd.isna(specified) else f'{specified:.3f}'} | {model.distance:.2f} | "
                f"{model.legal:.3f} | {surrogate.flip_ratio:.3f} |"
            )
    return "\n".join(lines)


def objective() -> str:
    """Where the amortised search ends, beside Algorithm 2."""
    rows = pd.read_csv(ROOT / "results/bench-search.csv")
    rows = rows[rows.part == "objective"]
    names = {"amortised": "amortised", "amortised, refined": "amortised + 60 iterations",
             "algorithm-2": "Algorithm 2, 300 iterations",
             "amortised, whole": "whole answers, amortised",
             "algorithm-2, whole": "whole answers, Algorithm 2"}  # fmt: skip
    lines = [
        "| dataset | search | mean objective | flip ratio | distance |",
        "|---|---|---|---|---|",
    ]
    means = rows.groupby(["dataset", "method"], sort=False)[["objective", "flip_ratio", "distance"]]
    for row in means.mean().reset_index().itertuples():
        reached = "" if pd.isna(row.objective) else f"{row.objective:.3f}"
        lines.append(
            f"| {row.dataset} | {names[row.method]} | {reached} | "
            f"{row.flip_ratio:.3f} | {row.distance:.2f} |"
        )
    return "\n".join(lines)


def peers() -> str:
    """counterveil beside other methods, one run."""
    rows = pd.read_csv(ROOT / "results/bench-search.csv")
    rows = rows[(rows.part == "peers") & (rows.batch == 500)]
    keys = ["method", "guidance", "epsilon"]
    means = rows.groupby(keys, dropna=False, sort=False).mean(numeric_only=True)
    timed = rows[rows.seed == 0].set_index(keys)  # quality is over seeds, time of one run
    lines = [
        "| method | ε | ms a query | times ours | flip ratio | legal rows | distance | "
        "changed features |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (method, guidance, epsilon), row in means.iterrows():
        time = timed.loc[[(method, guidance, epsilon)]].iloc[0]
        way = ", guidance `surrogate`" if guidance == "surrogate" else ""
        lines.append(
            f"| {method}{way} | {'' if pd.isna(epsilon) else f'{epsilon:g}'} | "
            f"{1000 * time.seconds_per_query:.3g} | {time.times_counterveil:,.1f} | "
            f"{row.flip_ratio:.3f} | {row.legal:.3f} | {row.distance:.2f} | "
            f"{row.changed_features:.2f} |"
        )
    return "\n".join(lines)


def quote(text: str, name: str, table: Callable[[], str]) -> str:
    """`text` with the table called `name` made anew."""
    start, end = f"<!-- results:{name} -->\n", f"<!-- end:{name} -->"
    head, rest = text.split(start)
    return f"{head}{start}{table()}\n{end}{rest.split(end, 1)[1]}"


PLACES = {
    "README.md": {"frontier": frontier, "table-fr": table_fr, "peers": peers},
    "docs/method.md": {"objective": objective},
}
for place, tables in PLACES.items():
    path = ROOT / place
    content = path.read_text()
    for mark, make in tables.items():
        content = quote(content, mark, make)
    path.write_text(content)
