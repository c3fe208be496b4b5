"""Write tables of stored results into README.md, between their marks. Run it after experiments.

python tools/quote_results.py
"""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent
DATASETS = ("adult", "hospital", "homecredit", "mnist", "purchase-substitute", "texas-substitute")


def paper_adult() -> str:
    """Mechanism `paper` on Adult over ε."""
    rows = pd.read_csv(ROOT / "results/paper-adult.csv")
    columns = ["mse", "flip_ratio", "distance", "legal", "seconds_per_query"]
    means = rows.groupby("epsilon")[columns].mean()
    lines = [
        "| ε | reconstruction error | flip ratio | distance | legal rows | ms a query |",
        "|---|---|---|---|---|---|",
    ]
    order = sorted(means.index, key=lambda text: float("inf") if text == "none" else float(text))
    for name in reversed(order):
        row = means.loc[name]
        label = "no noise" if name == "none" else name
        lines.append(
            f"| {label} | {row.mse:.5f} | {row.flip_ratio:.3f} | {row.distance:.2f} | "
            f"{row.legal:.3f} | {1000 * row.seconds_per_query:.2f} |"
        )
    return "\n".join(lines)


def frontier() -> str:
    """Mechanism `functional` on every dataset."""
    rows = pd.read_csv(ROOT / "results/frontier.csv")
    rows = rows[rows.asked_order.isna()]
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


def quote(text: str, name: str, table: Callable[[], str]) -> str:
    """`text` with the table called `name` made anew."""
    start, end = f"<!-- results:{name} -->\n", f"<!-- end:{name} -->"
    head, rest = text.split(start)
    return f"{head}{start}{table()}\n{end}{rest.split(end, 1)[1]}"


readme = ROOT / "README.md"
content = readme.read_text()
for mark, make in {"paper-adult": paper_adult, "frontier": frontier}.items():
    content = quote(content, mark, make)
readme.write_text(content)
